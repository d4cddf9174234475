//! Which server certificates are trusted, with rustls.

use std::path::PathBuf;
use std::sync::Arc;

use postgres::config::SslMode;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{SYSTEM, files};
use forebay_measure::bad_input;

pub(super) type Connector = MakeRustlsConnect;

/// The connector with TLS, for the values `mode` of sslmode and `roots` of sslrootcert.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): the certificates are missing.
pub(super) fn connector(
    ssl: SslMode,
    mode: &str,
    roots: Option<String>,
) -> anyhow::Result<Connector> {
    let is_there = || roots.is_some() || usual_roots().is_some_and(|path| path.exists());
    let checks = mode.starts_with("verify") || mode == "require" && is_there();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = if checks && ssl != SslMode::Disable {
        let roots = Arc::new(certificates(roots)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
        Some(verifier.build()?)
    } else {
        None
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous();
    let verifier = Verifier { chain, names: mode == "verify-full", provider };
    let config = builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn usual_roots() -> Option<PathBuf> {
    files::at_home(".postgresql/root.crt")
}

/// The trusted authorities: those in the file `roots`, or those of the machine.
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

/// What is verified about the server's certificate, besides that the server has its key.
#[derive(Debug)]
struct Verifier {
    /// None: nothing is verified.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// The certificate must contain the host's name.
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
        // The name is checked last, so everything else is valid.
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
