//! TLS to the server, as libpq's sslmode and sslrootcert have it.
//!
//! `prefer` (what counts where nothing is said), `allow` and `require` encrypt and trust any server that answers, as
//! libpq does; `verify-ca` wants a certificate of an authority in sslrootcert, `verify-full` also the name of the
//! host in it. sslrootcert is a file of certificates, or `system` for those that the machine trusts, with
//! `verify-full` only, which counts then where nothing is said; without it it is ~/.postgresql/root.crt. Where
//! sslrootcert is named or that file is there, `require` is as `verify-ca`. Through a Unix socket nothing is encrypted.
//!
//! Without the feature `tls` nothing is encrypted: `allow` and `prefer` connect without, and the modes that insist on
//! encryption are refused.
//!
//! Source:      PostgreSQL's documentation, "SSL Support" of libpq, for what the modes mean.

#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
use certificates::{Connector, connector};

use std::ops::Deref;

use postgres::Client;
use postgres::config::{Host, SslMode};

use super::OWN_PATH;
use crate::bad_input;

/// The value of sslrootcert for what the machine trusts.
const SYSTEM: &str = "system";

/// How to reach a server.
#[derive(Clone)]
pub(crate) struct Config {
    plain: postgres::Config,
    tls: Connector,
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
        let tls = connector(plain.get_ssl_mode(), mode, roots)?;
        Ok(Config { plain, tls })
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
        self.plain.connect(self.connector())
    }

    /// What connects, for sessions and for what cancels their statements.
    #[cfg_attr(not(feature = "tls"), expect(clippy::clone_on_copy, reason = "no copy with TLS"))]
    pub(super) fn connector(&self) -> Connector {
        self.tls.clone()
    }
}

#[cfg(not(feature = "tls"))]
type Connector = postgres::NoTls;

/// What connects without TLS.
///
/// # Errors
/// [`BadInput`](crate::BadInput): `mode` insists on TLS.
#[cfg(not(feature = "tls"))]
fn connector(ssl: SslMode, mode: &str, _: Option<String>) -> anyhow::Result<Connector> {
    if ssl == SslMode::Require {
        bad_input!(
            "sslmode={mode}: this forebay was built without TLS; build it with `--features tls`, or connect through the server's Unix socket"
        );
    }
    Ok(postgres::NoTls)
}
