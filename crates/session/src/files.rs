//! libpq's files that name a server and its password: pg_service.conf and .pgpass.
//!
//! Source:      PostgreSQL's documentation, "The Connection Service File" and "The Password File".

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::variable;
use forebay_measure::{bad_input, output};

/// The settings of a service, by libpq keyword.
pub(super) type Service = BTreeMap<String, String>;

/// Removes `key` from a connection string of either form, and returns its value; if it occurs several times, the last.
pub(super) fn taken(dsn: &mut String, key: &str) -> Option<String> {
    let (begin, between, all) = match query(dsn) {
        Some(begin) => (begin, "&", dsn[begin..].split('&').map(parameter).collect()),
        None => (0, " ", settings(dsn)),
    };
    let (own, rest): (Vec<Setting<'_>>, Vec<_>) = all.into_iter().partition(|it| it.key == key);
    let value = own.into_iter().next_back()?.value;
    let rest = rest.iter().map(|it| it.all).collect::<Vec<_>>().join(between);
    // Without the `?` if no parameter is left.
    let begin = if rest.is_empty() { begin.saturating_sub(1) } else { begin };
    *dsn = dsn[..begin].to_owned() + &rest;
    Some(value)
}

/// One setting of a connection string.
struct Setting<'a> {
    all: &'a str,
    key: String,
    value: String,
}

/// Offset of the parameters of a connection URI; `None` for a keyword string.
fn query(dsn: &str) -> Option<usize> {
    let rest = ["postgres://", "postgresql://"].iter().find_map(|it| dsn.strip_prefix(it))?;
    // A password may contain a `?`.
    let named = rest.find(['@', '/']).filter(|&at| rest[at..].starts_with('@')).unwrap_or(0);
    let at = rest[named..].find('?').map_or(rest.len(), |at| named + at + 1);
    Some(dsn.len() - rest.len() + at)
}

fn parameter(all: &str) -> Setting<'_> {
    let (key, value) = all.split_once('=').unwrap_or((all, ""));
    let [key, value] =
        [key, value].map(|it| percent_decode_str(it).decode_utf8_lossy().into_owned());
    Setting { all, key, value }
}

/// The settings of a keyword string, up to the first text that is not a setting.
fn settings(dsn: &str) -> Vec<Setting<'_>> {
    let (mut all, mut rest) = (Vec::new(), dsn.trim());
    while !rest.is_empty() {
        let begun = rest;
        let end = rest.find(|it: char| it == '=' || it.is_whitespace()).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(end);
        let Some(behind) = behind.trim_start().strip_prefix('=').map(str::trim_start) else {
            all.push(Setting { all: begun, key: String::new(), value: String::new() });
            break;
        };
        let quoted = behind.strip_prefix('\'');
        let mut value = String::new();
        let mut letters = quoted.unwrap_or(behind).chars();
        loop {
            rest = letters.as_str();
            match letters.next() {
                None => break,
                Some('\\') => value.extend(letters.next()),
                Some('\'') if quoted.is_some() => {
                    rest = letters.as_str();
                    break;
                }
                Some(letter) if letter.is_whitespace() && quoted.is_none() => break,
                Some(letter) => value.push(letter),
            }
        }
        let set = &begun[..begun.len() - rest.len()];
        all.push(Setting { all: set, key: key.to_owned(), value });
        rest = rest.trim_start();
    }
    all
}

/// The service `name` from the user's file, or else from the system's.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): neither file has it.
pub(super) fn service(name: &str) -> anyhow::Result<Service> {
    let own = variable("PGSERVICEFILE").map(PathBuf::from).or_else(|| at_home(".pg_service.conf"));
    let system = PathBuf::from(
        variable("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".to_owned()),
    );
    let files = own.into_iter().chain([system.join("pg_service.conf")]);
    for file in files {
        if let Some(service) = fs::read_to_string(file).ok().and_then(|text| section(&text, name)) {
            return Ok(service);
        }
    }
    bad_input!(
        "there is no service {name} in ~/.pg_service.conf (PGSERVICEFILE) or the system's pg_service.conf"
    )
}

fn section(text: &str, name: &str) -> Option<Service> {
    let heading = format!("[{name}]");
    let mut lines = text.lines().map(str::trim).skip_while(|line| *line != heading);
    lines.next()?;
    let own = lines.take_while(|line| !line.starts_with('['));
    let pairs = own.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Some(pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
}

/// The password for host, port, database and user, from the file that PGPASSFILE names or from ~/.pgpass.
pub(super) fn password(of: [&str; 4]) -> Option<String> {
    let file = variable("PGPASSFILE").map(PathBuf::from).or_else(|| at_home(".pgpass"))?;
    let text = fs::read_to_string(&file).ok()?;
    if fs::metadata(&file).ok()?.mode() & 0o077 != 0 {
        output::note(&format!(
            "{} is not used: others than its owner may read it (chmod 600)",
            file.display()
        ));
        return None;
    }
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| matching(line, of))
}

/// The password in a line of five fields, if the first four match.
fn matching(line: &str, of: [&str; 4]) -> Option<String> {
    let mut fields = vec![(String::new(), false)];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let is_last = fields.len() == 5;
        let (field, is_quoted) = fields.last_mut()?;
        match letter {
            '\\' => {
                field.extend(letters.next());
                *is_quoted = true;
            }
            ':' if !is_last => fields.push((String::new(), false)),
            letter => field.push(letter),
        }
    }
    let fits = |((field, is_quoted), of): (&(String, bool), &str)| {
        field == of || field == "*" && !is_quoted
    };
    let (password, _) = fields.get(4).filter(|(password, _)| !password.is_empty())?;
    fields.iter().zip(of).all(fits).then(|| password.clone())
}

/// A libpq file below the user's home directory.
pub(super) fn at_home(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(variable("HOME")?).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_out_of_either_kind_of_connection_string() {
        for (dsn, value, rest) in [
            ("host=a sslmode=verify-full dbname=b", Some("verify-full"), "host=a dbname=b"),
            ("sslmode='require'", Some("require"), ""),
            ("options='-c sslmode=x' host=a", None, "options='-c sslmode=x' host=a"),
            (
                "password='a\\' sslmode=x' user=b sslmode=y",
                Some("y"),
                "password='a\\' sslmode=x' user=b",
            ),
            ("sslmodes=a", None, "sslmodes=a"),
            ("postgresql://a@b/c?sslmode=require", Some("require"), "postgresql://a@b/c"),
            (
                "postgresql://a@b/c?user=d&sslmode=x&port=7&sslmode=y",
                Some("y"),
                "postgresql://a@b/c?user=d&port=7",
            ),
            ("postgresql://sslmode=x@b/c", None, "postgresql://sslmode=x@b/c"),
            ("host=db sslmode = require", Some("require"), "host=db"),
            (
                "password=o'brien sslmode=require host=db",
                Some("require"),
                "password=o'brien host=db",
            ),
            (
                "host=db password=a://b?c sslmode=require",
                Some("require"),
                "host=db password=a://b?c",
            ),
            ("postgresql://u:p?w@h/db?sslmode=require", Some("require"), "postgresql://u:p?w@h/db"),
            (
                "postgres://h/db?ssl%6Dode=verify%2Dca&port=1",
                Some("verify-ca"),
                "postgres://h/db?port=1",
            ),
            ("host=db sslmode=x what", Some("x"), "host=db what"),
        ] {
            let mut left = dsn.to_owned();
            assert_eq!(taken(&mut left, "sslmode").as_deref(), value, "{dsn}");
            assert_eq!(left, rest, "{dsn}");
        }
    }

    #[test]
    fn a_password_is_of_the_first_line_that_fits() {
        let of = ["db.example", "5432", "shop", "ann"];
        for (line, password) in [
            ("db.example:5432:shop:ann:secret", Some("secret")),
            ("*:*:*:ann:a\\:b\\\\c", Some("a:b\\c")),
            ("*:*:*:*:a:b", Some("a:b")),
            ("\\*:*:*:*:no", None),
            ("db.example:5433:*:*:no", None),
            ("db.example:5432:shop:ann:", None),
            ("db.example:5432:shop", None),
        ] {
            assert_eq!(matching(line, of).as_deref(), password, "{line}");
        }
    }

    #[test]
    fn a_service_has_the_lines_under_its_name() {
        let text =
            "# ours\n[one]\nhost=a\n\n[shop]\n# the shop's\nhost = b\nport=6000\n[three]\nport=1\n";
        let service = section(text, "shop").unwrap();
        assert_eq!(service.len(), 2);
        assert_eq!((&*service["host"], &*service["port"]), ("b", "6000"));
        assert!(section(text, "sho").is_none());
    }
}
