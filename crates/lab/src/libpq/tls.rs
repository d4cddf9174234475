//! TLS to the server, as libpq's sslmode and sslrootcert have it, by rustls.
//!
//! `prefer` (what counts where nothing is said), `allow` and `require` encrypt and trust any server that answers, as
//! libpq does; `verify-ca` wants a certificate of an authority in sslrootcert, `verify-full` also the name of the
//! host in it. sslrootcert is a file of certificates, or `system` for those that the machine trusts, with
//! `verify-full` only, which counts then where nothing is said; without it it is ~/.postgresql/root.crt. Where
//! sslrootcert is named or that file is there, `require` is as `verify-ca`. Through a Unix socket nothing is encrypted.
//!
//! Source:      PostgreSQL's documentation, "SSL Support" of libpq, for what the modes mean.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use postgres::Client;
use postgres::config::{Host, SslMode};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{OWN_PATH, files};
use crate::bad_input;

/// The value of sslrootcert for what the machine trusts.
const SYSTEM: &str = "system";

/// How to reach a server.
#[derive(Clone)]
pub(crate) struct Config {
    plain: postgres::Config,
    /// For sessions and for what cancels their statements.
    pub(super) tls: MakeRustlsConnect,
}

impl Deref for Config {
    type Target = postgres::Config;

    fn deref(&self) -> &postgres::Config {
        &self.plain
    }
}

impl Config {
    /// With what sslmode and sslrootcert say, if they are given.
    ///
    /// # Errors
    /// [`BadInput`](crate::BadInput): there is no such mode, there are no certificates where they should be, or nothing to compare one with.
    pub(super) fn new(
        mut plain: postgres::Config,
        mode: Option<&str>,
        roots: Option<String>,
    ) -> anyhow::Result<Config> {
        let is_socket = !plain.get_hosts().is_empty()
            && plain.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let of_machine = roots.as_deref() == Some(SYSTEM);
        let mode = mode.unwrap_or(if of_machine { "verify-full" } else { "prefer" });
        if of_machine && mode != "verify-full" {
            bad_input!("sslmode={mode}: sslrootcert=system goes only with sslmode=verify-full");
        }
        // TLS asks for a name, if only to send it.
        if plain.get_hosts().is_empty() {
            if mode == "verify-full" {
                bad_input!(
                    "sslmode=verify-full compares the host's name: name it with host beside hostaddr"
                );
            }
            for address in plain.get_hostaddrs().to_vec() {
                plain.host(&address.to_string());
            }
        }
        plain.ssl_mode(match mode {
            "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full"
                if is_socket =>
            {
                SslMode::Disable
            }
            "disable" => SslMode::Disable,
            "allow" | "prefer" => SslMode::Prefer,
            "require" | "verify-ca" | "verify-full" => SslMode::Require,
            _ => bad_input!(
                "sslmode={mode}: it is disable, allow, prefer, require, verify-ca or verify-full"
            ),
        });
        let is_there = || roots.is_some() || usual_roots().is_some_and(|path| path.exists());
        let checks = mode.starts_with("verify") || mode == "require" && is_there();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = if checks && !is_socket {
            let roots = Arc::new(certificates(roots)?);
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            Some(verifier.build()?)
        } else {
            None
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous();
        let verifier = Verifier { chain, names: mode == "verify-full", provider };
        let config =
            builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
        Ok(Config { plain, tls: MakeRustlsConnect::new(config) })
    }

    /// The same, in another database.
    pub(crate) fn in_database(mut self, name: &str) -> Config {
        self.plain.dbname(name);
        self
    }

    /// The same, with the search path of the role.
    pub(crate) fn with_roles_path(mut self) -> Config {
        let options = self.plain.get_options().unwrap_or_default();
        let options = options.strip_suffix(OWN_PATH).unwrap_or(options).to_owned();
        self.plain.options(&options);
        self
    }

    /// A session.
    ///
    /// # Errors
    /// As [`postgres::Config::connect`].
    pub(super) fn reach(&self) -> Result<Client, postgres::Error> {
        self.plain.connect(self.tls.clone())
    }
}

fn usual_roots() -> Option<PathBuf> {
    files::at_home(".postgresql/root.crt")
}

/// The authorities that are trusted: of the file `roots`, or of the machine.
fn certificates(roots: Option<String>) -> anyhow::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    if roots.as_deref() == Some(SYSTEM) {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            bad_input!("sslrootcert=system: this machine has no certificates of authorities");
        }
        return Ok(store);
    }
    let Some(path) = roots.map(PathBuf::from).or_else(usual_roots) else {
        bad_input!("sslmode=verify-...: name the authority's certificates with sslrootcert");
    };
    let shown = path.display();
    let all = match CertificateDer::pem_file_iter(&path) {
        Ok(all) => all.collect::<Result<Vec<_>, _>>(),
        Err(error) => Err(error),
    };
    match all {
        Ok(all) => {
            store.add_parsable_certificates(all);
        }
        Err(error) => bad_input!(
            "the authority's certificates in {shown} cannot be read: {error}; name others with sslrootcert"
        ),
    }
    if store.is_empty() {
        bad_input!(
            "there is no certificate of an authority in {shown}; name another file with sslrootcert"
        );
    }
    Ok(store)
}

/// What is asked of the server's certificate; that it has the certificate's key, of all.
#[derive(Debug)]
struct Verifier {
    /// None: nothing.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The host's name is in it.
    names: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let found =
            chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // The name is looked at last: all else is well.
        match found {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.names => Ok(ServerCertVerified::assertion()),
            found => found,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
