//! TLS to the server, according to libpq's sslmode and sslrootcert.
//!
//! `prefer` (the default), `allow` and `require` encrypt and trust any server that answers, as in libpq; `verify-ca`
//! requires a certificate of an authority in sslrootcert, `verify-full` also requires the host's name in it.
//! sslrootcert is a file of certificates, or `system` for those that the machine trusts; `system` allows only
//! `verify-full`, which is then the default. The default of sslrootcert is ~/.postgresql/root.crt. If sslrootcert is
//! given or that file exists, `require` means `verify-ca`. Connections through a Unix socket are not encrypted.
//!
//! Without the feature `tls` nothing is encrypted: `allow` and `prefer` connect without TLS, and the modes that require
//! encryption are refused.
//!
//! Source:      PostgreSQL's documentation, "SSL Support" of libpq, for the meaning of the modes.

#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
use certificates::{Connector, connector};

use std::fmt;
use std::ops::Deref;

use postgres::Client;
use postgres::config::{Host, SslMode};

use super::{OWN_PATH, SYSTEM};
use forebay_measure::bad_input;

/// How to reach a server.
#[derive(Clone)]
pub struct Config {
    plain: postgres::Config,
    tls: Connector,
}

impl fmt::Debug for Config {
    /// Without the password, which `postgres` hides.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plain.fmt(out)
    }
}

impl Deref for Config {
    type Target = postgres::Config;

    fn deref(&self) -> &postgres::Config {
        &self.plain
    }
}

impl Config {
    /// `mode` and `roots`: the values of sslmode and sslrootcert, if they are given.
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): there is no such mode, the certificates are missing, or there is no host name to
    /// compare with.
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
        // TLS needs a name, if only to send it.
        if plain.get_hosts().is_empty() {
            if mode == "verify-full" {
                bad_input!(
                    "sslmode=verify-full compares the host's name: name it with host in addition to hostaddr"
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
        let tls = connector(plain.get_ssl_mode(), mode, roots)?;
        Ok(Config { plain, tls })
    }

    /// The same, for another database.
    pub fn in_database(mut self, name: &str) -> Config {
        self.plain.dbname(name);
        self
    }

    /// The same, with the role's own search path.
    pub fn with_roles_path(mut self) -> Config {
        let options = self.plain.get_options().unwrap_or_default();
        let options = options.strip_suffix(OWN_PATH).unwrap_or(options).to_owned();
        self.plain.options(&options);
        self
    }

    /// Opens a session.
    ///
    /// # Errors
    /// As [`postgres::Config::connect`].
    pub(super) fn reach(&self) -> Result<Client, postgres::Error> {
        self.plain.connect(self.connector())
    }

    /// The connector for sessions and for the requests that cancel their statements.
    #[cfg_attr(not(feature = "tls"), expect(clippy::clone_on_copy, reason = "no copy with TLS"))]
    pub(super) fn connector(&self) -> Connector {
        self.tls.clone()
    }
}

#[cfg(not(feature = "tls"))]
type Connector = postgres::NoTls;

/// The connector without TLS.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): `mode` requires TLS.
#[cfg(not(feature = "tls"))]
fn connector(ssl: SslMode, mode: &str, _: Option<String>) -> anyhow::Result<Connector> {
    if ssl == SslMode::Require {
        bad_input!(
            "sslmode={mode}: this forebay was built without TLS; build it with `--features tls`, or connect through the server's Unix socket"
        );
    }
    Ok(postgres::NoTls)
}
