//! TLS: a server with a certificate of the test's authority, and each sslmode.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use forebay_postgres_harness::Disk;
use forebay_postgres_harness::suite::{Case, text};

use crate::{Site, ensure, site};

/// Runs `openssl ARGS` in `directory`; the error says why it cannot run.
fn openssl(directory: &Path, arguments: &str) -> Result<(), String> {
    let mut command = Command::new("openssl");
    command.args(arguments.split_whitespace()).current_dir(directory);
    let output = command.output().map_err(|error| format!("openssl: {error}"))?;
    ensure(output.status.success(), String::from_utf8_lossy(&output.stderr))
}

/// Creates an authority with a certificate for `localhost`, and an unrelated authority.
fn certificates(directory: &Path) -> Result<(), String> {
    for authority in ["authority", "stranger"] {
        openssl(
            directory,
            &format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN={authority} \
                 -addext basicConstraints=critical,CA:TRUE -keyout {authority}.key -out {authority}.crt"
            ),
        )?;
    }
    openssl(
        directory,
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout server.key -out server.csr",
    )?;
    fs::write(directory.join("names"), "subjectAltName=DNS:localhost").map_err(text)?;
    openssl(
        directory,
        "x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 3 -extfile names -out server.crt",
    )
}

pub(crate) fn tls(case: &Case) -> Result<(), String> {
    let mut site = site(case, Disk::Real)?;
    // Queried now, because the restarts below end the session.
    let table = site.rows("select pg_relation_filepath('rows')")?.remove(0);
    let made = site.path("tls");
    fs::create_dir(&made).map_err(text)?;
    certificates(&made)?;
    let data = site.server.data_directory().to_owned();
    for file in ["server.crt", "server.key"] {
        fs::copy(made.join(file), data.join(file)).map_err(text)?;
        let owner = fs::metadata(&data).map_err(text)?;
        std::os::unix::fs::chown(data.join(file), Some(owner.uid()), Some(owner.gid()))
            .map_err(text)?;
        fs::set_permissions(data.join(file), Permissions::from_mode(0o600)).map_err(text)?;
    }
    // TLS is not used through a socket, so this needs a loopback address that no other test uses.
    let process = std::process::id();
    let address =
        format!("127.{}.{}.{}", 1 + process % 200, process / 200 % 250, case.installation.major);
    let hba = data.join("pg_hba.conf");
    let listening = [("listen_addresses", address.as_str())];
    let reach = |site: &Site, host: &str, more: &str| {
        let host = if host.is_empty() { String::new() } else { format!("host={host}") };
        let dsn = format!("{host} hostaddr={address} user=postgres dbname=postgres {more}");
        // Either the connection is refused, or the command reports that there is nothing to take back.
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["advise", "postgres", "--rollback", "--dsn", &dsn, "--state"]);
        command.arg(site.path("state")).env_remove("PGSSLMODE").env_remove("PGSSLROOTCERT");
        command.env("HOME", site.path("tls"));
        let output = command.output().map_err(text)?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure(output.status.code() == Some(2), format!("{dsn}: {} {stderr}", output.status))?;
        Ok::<_, String>(stderr)
    };
    let nothing = "nothing is recorded";

    // A server without TLS.
    fs::write(&hba, "local all all trust\nhost all all 127.0.0.0/8 trust\n").map_err(text)?;
    site.server.restart(&listening).map_err(text)?;
    for mode in ["", "sslmode=disable", "sslmode=prefer"] {
        let stderr = reach(&site, "localhost", mode)?;
        ensure(stderr.contains(nothing), format!("without TLS, {mode}: {stderr}"))?;
    }
    let stderr = reach(&site, "localhost", "sslmode=require")?;
    ensure(stderr.contains("TLS") && !stderr.contains(nothing), stderr)?;

    // A server that accepts only TLS.
    fs::write(&hba, "local all all trust\nhostssl all all 127.0.0.0/8 trust\n").map_err(text)?;
    site.server.restart(&[&listening[..], &[("ssl", "on")]].concat()).map_err(text)?;
    let path = |name: &str| format!("sslrootcert={}", made.join(name).display());
    let (own, other) = (path("authority.crt"), path("stranger.crt"));
    let served = [
        ("localhost", String::new()),
        (address.as_str(), "sslmode=require".to_owned()),
        ("", "sslmode=require".to_owned()),
        (address.as_str(), format!("sslmode=verify-ca {own}")),
        ("localhost", format!("sslmode=verify-full {own}")),
    ];
    for (host, more) in served {
        let stderr = reach(&site, host, &more)?;
        ensure(stderr.contains(nothing), format!("{host} {more}: {stderr}"))?;
    }
    let refused = [
        ("localhost", "sslmode=disable".to_owned(), "no encryption"),
        ("localhost", format!("sslmode=verify-full {other}"), "certificate"),
        ("localhost", format!("sslmode=require {other}"), "certificate"),
        ("localhost", format!("sslmode=verify-ca {other}"), "certificate"),
        (address.as_str(), format!("sslmode=verify-full {own}"), "certificate"),
        ("localhost", format!("sslmode=verify-full {}", path("none")), "cannot be read"),
        ("localhost", format!("sslmode=verify-full {}", path("names")), "no certificate of"),
        ("localhost", "sslmode=any".to_owned(), "it is disable, allow"),
    ];
    for (host, more, expected) in refused {
        let stderr = reach(&site, host, &more)?;
        let is_reported = stderr.contains(expected) && !stderr.contains(nothing);
        ensure(is_reported && stderr.lines().count() == 1, format!("{host} {more}: {stderr}"))?;
    }
    // `watch` connects in the same way, before it checks whether it may trace.
    let json = site.path("watched.json");
    for (authority, is_served) in [(&own, true), (&other, false)] {
        let dsn = format!(
            "host=localhost hostaddr={address} user=postgres sslmode=verify-full {authority}"
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["watch", "--dsn", &dsn, "--json"]).arg(&json).arg("cat");
        let output = command.arg(data.join(&table)).output().map_err(text)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if is_served && output.status.success() {
            let watched = fs::read_to_string(&json).map_err(text)?;
            ensure(watched.contains("\"rows\""), format!("{table} has no name: {watched}"))?;
        } else {
            let is_reported =
                stderr.contains("certificate") != is_served && stderr.lines().count() == 1;
            ensure(output.status.code() == Some(2) && is_reported, format!("watch: {stderr}"))?;
        }
    }
    // The authorities in the default location also apply to `require`.
    fs::create_dir(made.join(".postgresql")).map_err(text)?;
    for (authority, is_served) in [("authority.crt", true), ("stranger.crt", false)] {
        fs::copy(made.join(authority), made.join(".postgresql/root.crt")).map_err(text)?;
        let stderr = reach(&site, &address, "sslmode=require")?;
        ensure(stderr.contains(nothing) == is_served, format!("{authority}: {stderr}"))?;
    }
    site.server.restart(&[]).map_err(text)
}
