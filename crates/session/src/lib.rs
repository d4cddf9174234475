//! A session on a PostgreSQL server: connects as libpq does, and cancels the running statement on Ctrl-C.
//!
//! The whole session is read-only, so the server refuses any statement that it counts as a change. Statements are sent
//! and results are received as text; the user's statements use the extended protocol, which accepts one statement at a
//! time and so refuses another one after a `;`.
//!
//! Invariants:  [CON-1] every session opened here is read-only from its first statement on
//! Concurrency: a thread checks for Ctrl-C while a statement runs, and cancels the statement; a cancel request that
//!              arrives late finds an idle session, which has nothing more to run.
//! Failure:     any reason not to get a session is [`BadInput`], one sentence.
#![forbid(unsafe_code)]

mod files;
mod tls;

use std::env;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use postgres::config::{Host, SslMode};
use postgres::types::{FromSql, Kind, Type};
use postgres::{Client, SimpleQueryMessage};

use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::{BadInput, bad_input};
pub use tls::Config;

/// The socket directories of Linux distributions, and that of PostgreSQL's own build.
const SOCKET_DIRECTORIES: [&str; 3] = ["/run/postgresql", "/var/run/postgresql", "/tmp"];

/// The settings of each session, as startup options; a connection pooler drops them. If the client is lost, the server
/// ends the session within a second. No other session waits long for a lock of this one, nor this one for theirs. A
/// session may be idle while a disk is measured.
const OPTIONS: [(&str, &str); 7] = [
    ("default_transaction_read_only", "on"),
    ("standard_conforming_strings", "on"),
    (SINCE_14, "1s"),
    ("idle_in_transaction_session_timeout", "1min"),
    ("idle_session_timeout", "0"),
    ("lock_timeout", "1s"),
    ("statement_timeout", "30s"),
];

/// The value of sslrootcert for the certificates that the machine trusts.
const SYSTEM: &str = "system";

/// Keeps the functions and operators of other roles out of our own statements: those in an earlier schema, or with a
/// better match, could replace the server's.
const OWN_PATH: &str = " -c search_path=pg_catalog";

/// The option of these that PostgreSQL 13 and older do not have, and refuse.
const SINCE_14: &str = "client_connection_check_interval";

/// Interval between checks for Ctrl-C while a statement runs.
const LOOK: Duration = Duration::from_millis(20);

/// How to reach the server: from `dsn`, and for what that leaves open, from the service, the environment variables and
/// the password file that libpq uses. `application`: the application name of the sessions.
///
/// # Errors
/// [`BadInput`].
pub fn config(dsn: Option<&str>, application: &str) -> anyhow::Result<Config> {
    // The `postgres` crate supports no services, no certificates of authorities, and not all TLS modes.
    let mut rest = dsn.unwrap_or_default().to_owned();
    let [named, mode, roots] =
        ["service", "sslmode", "sslrootcert"].map(|key| files::taken(&mut rest, key));
    let dsn = dsn.map(|_| rest.as_str());
    let service = named.or_else(|| variable("PGSERVICE")).map(|name| files::service(&name));
    let service = service.transpose()?.unwrap_or_default();
    let variable = |name: &str| {
        let key = name.trim_start_matches("PG").to_lowercase();
        let key = if key == "database" { "dbname" } else { &key };
        service.get(key).cloned().or_else(|| variable(name))
    };
    let mut config = match dsn.map(str::parse::<postgres::Config>) {
        None => postgres::Config::new(),
        Some(Ok(config)) => config,
        Some(Err(error)) => bad_input!(
            "--dsn: {}; it looks like 'host=/run/postgresql dbname=shop' or postgresql://user@host/shop",
            said(&error)
        ),
    };
    if config.get_ports().is_empty() {
        let port = variable("PGPORT").unwrap_or_else(|| "5432".to_owned());
        let Ok(port) = port.parse() else { bad_input!("PGPORT={port}: that is no port") };
        config.port(port);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let port = config.get_ports()[0];
        let socket =
            |directory: &&&str| Path::new(directory).join(format!(".s.PGSQL.{port}")).exists();
        let found = SOCKET_DIRECTORIES.iter().find(socket).unwrap_or(&SOCKET_DIRECTORIES[0]);
        config.host(variable("PGHOST").as_deref().unwrap_or(found));
    }
    if let Some(user) = variable("PGUSER").filter(|_| config.get_user().is_none()) {
        config.user(&user);
    }
    if let Some(password) = variable("PGPASSWORD").filter(|_| config.get_password().is_none()) {
        config.password(password);
    }
    if let Some(database) = variable("PGDATABASE").filter(|_| config.get_dbname().is_none()) {
        config.dbname(&database);
    }
    if let Some(options) = variable("PGOPTIONS").filter(|_| config.get_options().is_none()) {
        config.options(&options);
    }
    if config.get_password().is_none() {
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            // The password file lists the default socket directories under this name.
            Some(Host::Unix(path)) if SOCKET_DIRECTORIES.iter().any(|it| path == Path::new(it)) => {
                "localhost".to_owned()
            }
            Some(Host::Unix(path)) => path.display().to_string(),
            None => config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
        };
        let user = config.get_user().map(str::to_owned).or_else(|| variable("USER"));
        let user = user.unwrap_or_default();
        let port = config.get_ports()[0].to_string();
        let database = config.get_dbname().unwrap_or(&user);
        if let Some(password) = files::password([&host, &port, database, &user]) {
            config.password(password);
        }
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    config.application_name(application);
    // After the user's own options, since the last one of a name takes effect.
    let options = config.get_options().unwrap_or_default().to_owned();
    let own = OPTIONS.map(|(name, value)| format!(" -c {name}={value}")).concat();
    config.options((options + &own + OWN_PATH).trim_start());
    // A mode that only the crate can read from the string also takes precedence over the environment.
    let mode = mode.or_else(|| match config.get_ssl_mode() {
        SslMode::Require => Some("require".to_owned()),
        SslMode::Disable => Some("disable".to_owned()),
        _ => variable("PGSSLMODE"),
    });
    Config::new(config, mode.as_deref(), roots.or_else(|| variable("PGSSLROOTCERT")))
}

/// An environment variable, if it is not empty.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether `config` leads to this machine.
pub fn is_local(config: &Config) -> bool {
    let local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|it: std::net::IpAddr| it.is_loopback())
        }
    };
    let addresses = config.get_hostaddrs();
    if addresses.is_empty() {
        config.get_hosts().iter().all(local)
    } else {
        addresses.iter().all(std::net::IpAddr::is_loopback)
    }
}

/// Opens a session, and verifies that it has the options of a session [CON-1].
///
/// # Errors
/// [`BadInput`], [`Interrupted`], or [`Refused`].
pub fn session(config: &Config) -> anyhow::Result<Client> {
    let mut client = config.reach().map_err(|error| refused(config, &error))?;
    let shown = rows(&mut client, &OPTIONS.map(|(name, _)| format!("show {name};")).concat())?;
    for (at, (name, value)) in OPTIONS.into_iter().enumerate() {
        if shown.get(at).is_none_or(|row| row.text(0) != value) {
            bad_input!(
                "the session does not have its options ({name} is not {value}): a connection pooler, such as PgBouncer, drops \
                 them; connect to the server itself"
            );
        }
    }
    Ok(client)
}

/// The rows of the last of our own statements in `sql` that returns any.
///
/// # Errors
/// [`Refused`].
pub fn rows(client: &mut Client, sql: &str) -> anyhow::Result<Vec<Row>> {
    read(client, sql).map_err(|error| failed(&error))
}

fn read(client: &mut Client, sql: &str) -> Result<Vec<Row>, postgres::Error> {
    let mut rows = Vec::new();
    for message in client.simple_query(sql)? {
        if let SimpleQueryMessage::Row(row) = message {
            let columns = (0..row.len()).map(|column| Ok(row.try_get(column)?.map(str::to_owned)));
            rows.push(Row(columns.collect::<Result<_, postgres::Error>>()?));
        }
    }
    Ok(rows)
}

/// A session.
pub struct Connection {
    client: Client,
    running: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    canceller: Option<JoinHandle<()>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// A row as text; columns are addressed by number.
#[derive(Debug)]
pub struct Row(Vec<Option<String>>);

impl Row {
    /// A column; `""` for null.
    pub fn text(&self, column: usize) -> &str {
        self.0[column].as_deref().unwrap_or("")
    }

    /// A column, if it is not null and not empty.
    pub fn some(&self, column: usize) -> Option<String> {
        self.0[column].clone().filter(|it| !it.is_empty())
    }

    /// A column as a number, if it is one.
    pub fn number<T: std::str::FromStr>(&self, column: usize) -> Option<T> {
        self.text(column).parse().ok()
    }

    /// Whether the column is `t`.
    pub fn is_true(&self, column: usize) -> bool {
        self.text(column) == "t"
    }
}

/// JSON, as the server sent it.
struct Json(String);

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Json, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Json(std::str::from_utf8(raw)?.to_owned()))
    }

    fn accepts(given: &Type) -> bool {
        *given == Type::JSON && *given.kind() == Kind::Simple
    }
}

impl Connection {
    /// Opens a read-only session.
    ///
    /// # Errors
    /// [`BadInput`], or [`Interrupted`].
    pub fn open(config: &Config) -> anyhow::Result<Connection> {
        interrupt::check()?;
        let (running, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let client = session(config)?;
        let (token, config) = (client.cancel_token(), config.clone());
        let looks = (Arc::clone(&running), Arc::clone(&ended));
        let canceller = std::thread::spawn(move || {
            while !looks.1.load(Ordering::SeqCst) {
                if looks.0.load(Ordering::SeqCst) && interrupt::is_requested() {
                    // If the request fails, the next iteration sends another.
                    let _ = token.cancel_query(config.connector());
                }
                std::thread::park_timeout(LOOK);
            }
        });
        Ok(Connection { client, running, ended, canceller: Some(canceller) })
    }

    /// Runs `work`, which ends soon after Ctrl-C.
    fn during<T>(
        &mut self,
        work: impl FnOnce(&mut Client) -> Result<T, postgres::Error>,
    ) -> anyhow::Result<T> {
        self.running.store(true, Ordering::SeqCst);
        let done = interrupt::check().map_err(anyhow::Error::from);
        let done = done.and_then(|()| work(&mut self.client).map_err(|error| failed(&error)));
        self.running.store(false, Ordering::SeqCst);
        if done.is_err() {
            interrupt::check()?;
        }
        done
    }

    /// The rows of the last of our own statements in `sql` that returns any.
    ///
    /// # Errors
    /// [`Refused`], or [`Interrupted`].
    pub fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Row>> {
        self.during(|client| read(client, sql))
    }

    /// The only row of `sql`.
    ///
    /// # Errors
    /// As [`Connection::rows`]; or `sql` returns no row.
    pub fn row(&mut self, sql: &str) -> anyhow::Result<Row> {
        let row = self.rows(sql)?.pop();
        row.ok_or_else(|| anyhow::anyhow!("the server has no answer to: {sql}"))
    }

    /// The plan of `sql`, which is one EXPLAIN (FORMAT JSON) and may contain text of the user's.
    ///
    /// # Errors
    /// As [`Connection::rows`].
    pub fn plan(&mut self, sql: &str) -> anyhow::Result<serde_json::Value> {
        let statement = self.during(|client| client.prepare(sql))?;
        if !statement.params().is_empty() {
            let message = "it has parameters, and no values for them".to_owned();
            return Err(Refused { message, code: String::new() }.into());
        }
        let rows = self.during(|client| client.query(&statement, &[]))?;
        let Some(row) = rows.first() else { anyhow::bail!("the server has no plan of: {sql}") };
        let Json(plan) = row.try_get(0)?;
        Ok(serde_json::from_str(&plan)?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(canceller) = self.canceller.take() {
            canceller.thread().unpark();
            // After a second Ctrl-C, another thread ends the process.
            let _ = canceller.join();
        }
    }
}

/// The server has refused a statement.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The server's message.
    pub message: String,
    /// SQLSTATE; empty if the connection was lost.
    pub code: String,
}

fn failed(error: &postgres::Error) -> anyhow::Error {
    let code = error.code().map_or("", postgres::error::SqlState::code);
    // A dropped database, 57P04, is not such a case.
    if code.is_empty() && (error.is_closed() || is_of_system(error))
        || ["57P01", "57P02", "57P03", "57P05"].contains(&code)
    {
        let message = format!(
            "the server has ended the session, as it does when it is stopped or restarted ({}); run this again when it is back",
            said(error)
        );
        return Refused { message, code: String::new() }.into();
    }
    Refused { message: said(error), code: code.to_owned() }.into()
}

/// Whether a system call to send or receive has failed.
fn is_of_system(error: &postgres::Error) -> bool {
    matches!(std::error::Error::source(error), Some(source) if source.is::<std::io::Error>())
}

/// The server's message, or else the system's.
fn said(error: &postgres::Error) -> String {
    if let Some(refusal) = error.as_db_error() {
        return refusal.message().to_owned();
    }
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn refused(config: &Config, error: &postgres::Error) -> anyhow::Error {
    if interrupt::check().is_err() {
        return Interrupted.into();
    }
    let host = match config.get_hosts().first() {
        Some(Host::Unix(path)) => path.display().to_string(),
        Some(Host::Tcp(name)) => name.clone(),
        None => config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let said = said(error);
    if said == "password missing" {
        return BadInput(format!(
            "the server at {host}, port {port}, requires a password: set PGPASSWORD, or add it to ~/.pgpass"
        ))
        .into();
    }
    let code = error.code().map_or("", postgres::error::SqlState::code);
    if is_too_old(code, &said) {
        return BadInput(format!(
            "the server at {host}, port {port}, is older than PostgreSQL 14; this command knows 14 to 18"
        ))
        .into();
    }
    if said.starts_with(UNSUPPORTED) {
        return BadInput(format!(
            "the server at {host}, port {port}, is a connection pooler, such as PgBouncer, that refuses the session's options \
             ({said}): connect to the server itself"
        ))
        .into();
    }
    let is_who = code == postgres::error::SqlState::INVALID_AUTHORIZATION_SPECIFICATION.code();
    BadInput(if error.as_db_error().is_some() {
        // The default pg_hba.conf of distributions maps the system user `postgres` to the role of that name, and admits
        // no other.
        let how = if is_who && matches!(config.get_hosts().first(), Some(Host::Unix(_))) {
            "; name a role with user=, and be the system's user of that name, as by sudo -u postgres"
        } else {
            ""
        };
        format!("the server at {host}, port {port}, refuses the connection: {said}{how}")
    } else {
        format!("cannot connect to a server at {host}, port {port}: {said}; name another with --dsn or PGHOST and PGPORT")
    })
    .into()
}

/// Start of a pooler's refusal, as PgBouncer words it.
const UNSUPPORTED: &str = "unsupported startup parameter";

/// Whether the connection was refused because the server is too old for [`SINCE_14`].
fn is_too_old(code: &str, said: &str) -> bool {
    code == postgres::error::SqlState::UNDEFINED_OBJECT.code() && said.contains(SINCE_14)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[test]
    fn a_stated_mode_of_tls_is_kept_however_it_is_written() {
        for (dsn, mode) in [
            ("host=db sslmode = require", SslMode::Require),
            ("host=db password=o'brien sslmode=require", SslMode::Require),
            ("host=db password=a://b sslmode=require", SslMode::Require),
            ("postgresql://u:p?w@h/db?sslmode=require", SslMode::Require),
            // The crate takes everything up to the @ as the password; libpq does not.
            ("postgresql://u:p/w?x@h/db?sslmode=require", SslMode::Require),
            ("postgresql://u:p/w?x@h/db?sslmode=disable", SslMode::Disable),
        ] {
            assert_eq!(config(Some(dsn), "").unwrap().get_ssl_mode(), mode, "{dsn}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn certificates_of_the_machine_and_names_that_are_missing_are_never_checked_by_half() {
        let refused = |dsn: &str| {
            config(Some(dsn), "").err().map(|error| error.to_string()).unwrap_or_default()
        };
        for mode in ["disable", "allow", "prefer", "require", "verify-ca"] {
            let text = refused(&format!("host=db sslrootcert=system sslmode={mode}"));
            assert!(text.contains("only with sslmode=verify-full"), "{mode}: {text}");
        }
        let text = refused("hostaddr=127.0.0.1 sslrootcert=system");
        assert!(text.contains("name it with host"), "{text}");
        let reached = config(Some("hostaddr=127.0.0.1,::1 sslmode=require"), "").unwrap();
        assert_eq!(reached.get_hosts().len(), 2);
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn a_mode_that_insists_on_tls_is_refused_without_the_feature_and_others_are_not() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let error = config(Some(&format!("host=db sslmode={mode}")), "").err().unwrap();
            assert!(error.to_string().contains("built without TLS"), "{mode}: {error}");
        }
        for mode in ["disable", "allow", "prefer"] {
            config(Some(&format!("host=db sslmode={mode}")), "").unwrap();
        }
        config(Some("host=/run/postgresql sslmode=require"), "").unwrap();
    }

    #[test]
    fn our_options_follow_the_users_and_show_an_old_server() {
        let config = config(Some("options='-c work_mem=1MB'"), "").unwrap();
        let options = config.get_options().unwrap();
        assert!(
            options.starts_with("-c work_mem=1MB -c default_transaction_read_only=on "),
            "[CON-1] {options}"
        );
        assert!(options.contains(&format!("-c {SINCE_14}=1s")) && options.ends_with(OWN_PATH));
        let of_role = config.clone().with_roles_path();
        assert_eq!(
            of_role.get_options().map(|it| it.to_owned() + OWN_PATH).as_deref(),
            Some(options)
        );
        let said = |name: &str| format!("unrecognized configuration parameter \"{name}\"");
        assert!(is_too_old("42704", &said(SINCE_14)));
        assert!(!is_too_old("42704", &said("work_memory")) && !is_too_old("22023", SINCE_14));
    }
}
