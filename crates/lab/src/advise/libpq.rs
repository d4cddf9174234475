//! The files by which libpq finds a server and its password: pg_service.conf and .pgpass.
//!
//! Source:      PostgreSQL's documentation, "The Connection Service File" and "The Password File".

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::connection::variable;
use crate::{bad_input, output};

/// What a service stands for, by libpq's keywords.
pub(super) type Service = BTreeMap<String, String>;

/// Takes `key` and its value out of a connection string, of either kind; of several the last.
pub(super) fn taken(dsn: &mut String, key: &str) -> Option<String> {
    let is_it = |word: &str| word.strip_prefix(key).is_some_and(|rest| rest.starts_with('='));
    let (begin, is_between): (usize, fn(char) -> bool) = match dsn.find("://") {
        Some(at) => match dsn[at..].find('?') {
            Some(query) => (at + query + 1, |letter| letter == '&'),
            None => return None,
        },
        None => (0, char::is_whitespace),
    };
    let is_address = begin > 0;
    let (mut is_quoted, mut escaped) = (false, false);
    let words: Vec<String> = dsn[begin..]
        .split(|letter| {
            let is_plain = !escaped;
            escaped = letter == '\\' && is_plain;
            is_quoted ^= letter == '\'' && is_plain && !is_address;
            is_between(letter) && !is_quoted
        })
        .map(str::to_owned)
        .collect();
    let (own, rest): (Vec<String>, Vec<String>) = words.into_iter().partition(|it| is_it(it));
    let value = own.last()?[key.len() + 1..].trim_matches('\'').to_owned();
    *dsn = match (is_address, &rest[..]) {
        (true, []) => dsn[..begin - 1].to_owned(),
        (true, rest) => dsn[..begin].to_owned() + &rest.join("&"),
        (false, rest) => rest.join(" "),
    };
    Some(value)
}

/// The service `name` of the user's file, or else the system's.
///
/// # Errors
/// [`BadInput`](crate::BadInput): none of them has it.
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

/// The password for host, port, database and user, in the file that PGPASSFILE names or ~/.pgpass.
pub(super) fn password(of: [&str; 4]) -> Option<String> {
    let file = variable("PGPASSFILE").map(PathBuf::from).or_else(|| at_home(".pgpass"))?;
    let text = fs::read_to_string(&file).ok()?;
    if fs::metadata(&file).ok()?.mode() & 0o077 != 0 {
        output::tell(&format!(
            "{} is not used: others than its owner may read it (chmod 600)",
            file.display()
        ));
        return None;
    }
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| matching(line, of))
}

/// The password in a line of five fields, if the first four fit.
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

fn at_home(name: &str) -> Option<PathBuf> {
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
