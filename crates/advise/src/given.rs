//! The user's queries, and the session in which they run.
//!
//! A query does not show what it calls: a view, an operator, a cast, an aggregate, the CHECK of a domain or a row
//! security policy may call any function. A declaration does not show what its function does: one that is declared
//! immutable may call one that runs a program, and the server calls it as soon as it plans the query, or even parses
//! the literal of a type. So the server is protected only by the privileges with which all this runs. A user's query is
//! parsed, planned and run only in a separate session, whose role must have no privileges except to read.
//!
//! Against mistakes, a query is refused before it runs if it is not valid as a subquery, if its plan changes or locks
//! rows, or if it names a function that is volatile.
//!
//! Rejected: checking all functions that a query reaches, by OID. It would trust their declarations, and functions may
//! change between the check and the query. SET ROLE in a session with more privileges: any function can undo it.
//!
//! Invariants:  [QRY-1] the server gets the text of a user's query only in a session that was opened by [`session`],
//!              and in a read-only transaction

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::APPLICATION;
use super::query::{self, Query};
use crate::args::PostgresArgs;
use forebay_measure::bad_input;
use forebay_session::{Config, Connection, Refused};

/// Predefined roles that only extend what their members may read.
const READERS: &str = "'pg_read_all_data', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables', \
                       'pg_monitor', 'pg_database_owner', 'pg_use_reserved_connections'";

/// Built-in volatile functions that change nothing.
const HARMLESS: &str = "'random', 'clock_timestamp', 'timeofday', 'pg_sleep'";

/// Identifies the database of a session: a copy of the server would have another start time.
const DATABASE: &str = "select (select system_identifier from pg_control_system()), \
                        extract(epoch from pg_postmaster_start_time()), current_database()";

/// Opens a session for the user's queries. `config`: that of `own`, which the run itself uses.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): it has more rights than it needs, or reaches another database; as
/// [`Connection::open`].
pub(super) fn session(
    args: &PostgresArgs,
    config: &Config,
    own: &mut Connection,
) -> anyhow::Result<Connection> {
    let config = match &args.queries_dsn {
        None => config.clone(),
        Some(dsn) => forebay_session::config(Some(dsn), APPLICATION)?,
    };
    // The queries need the search path of their role; the look-ups here do not use it.
    let mut connection = Connection::open(&config.with_roles_path())?;
    let rights = in_catalog(
        &mut connection,
        &format!(
            "select session_user, r.rolname, r.rolsuper from pg_roles r where pg_has_role(session_user, r.oid, 'member') \
             and (r.rolsuper or r.rolcreaterole or r.rolreplication or r.oid < 16384 and r.rolname not in ({READERS})) \
             order by r.rolsuper desc, r.rolname <> session_user, r.rolname limit 1"
        ),
    )?;
    if let Some(row) = rights.first() {
        let (role, of) = (row.text(0), row.text(1));
        let rights = match (role == of, row.is_true(2)) {
            (true, true) => "is a superuser".to_owned(),
            (true, false) => "may create roles, or replicate".to_owned(),
            (false, _) => format!("has the rights of {of}"),
        };
        bad_input!(
            "--queries: the role {role} {rights}, and a function that a query calls, even by an operator or a view, \
             could use them; name with --queries-dsn how to connect as a role that may only read, such as one made by: \
             CREATE ROLE name LOGIN PASSWORD '...' IN ROLE pg_read_all_data"
        );
    }
    let there = in_catalog(&mut connection, DATABASE)?;
    let here = own.rows(DATABASE)?;
    let values = |rows: &[forebay_session::Row]| {
        rows.first().map(|row| [0, 1, 2].map(|column| row.text(column).to_owned()))
    };
    if values(&there) != values(&here) {
        bad_input!("--queries-dsn: it leads to another server or database than --dsn");
    }
    Ok(connection)
}

/// The rows of `sql`, a single statement of this program; its names are looked up only in pg_catalog.
fn in_catalog(connection: &mut Connection, sql: &str) -> anyhow::Result<Vec<forebay_session::Row>> {
    connection.rows(&format!(
        "begin transaction read only; set local search_path = pg_catalog; {sql}; rollback"
    ))
}

/// A file of the user's queries.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Each with the line on which it begins.
    statements: Vec<(usize, String)>,
}

impl File {
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput): it cannot be read, or there is no query in it.
    pub(super) fn read(path: &Path) -> anyhow::Result<File> {
        let statements = match std::fs::read_to_string(path) {
            Ok(text) => split(&text),
            Err(error) => bad_input!("--queries {}: {error}", path.display()),
        };
        if statements.is_empty() {
            bad_input!("--queries {}: there is no query in it", path.display());
        }
        Ok(File { path: path.to_owned(), statements })
    }

    /// Its queries, after the server has examined each. `connection`: a [`session`].
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput), with the line on which the query begins.
    pub(super) fn checked(&self, connection: &mut Connection) -> anyhow::Result<Vec<Query>> {
        let checked = |(line, text): &(usize, String)| {
            let place = format!("--queries {}, line {line}", self.path.display());
            match check(connection, text) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    bad_input!("{place}: refused because it {why}; only read-only queries are run")
                }
                Err(error) if error.is::<Refused>() => {
                    bad_input!("{place}: the server refuses it: {error}")
                }
                Err(error) => return Err(error),
            }
            Ok(Query::given(text, format!("query in line {line}")))
        };
        self.statements.iter().map(checked).collect()
    }
}

/// The statements of a file, each with the line on which it begins. A statement ends in a line that ends in `;`.
fn split(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let is_idle = line.trim_start().is_empty() || line.trim_start().starts_with("--");
        if open.is_none() && is_idle {
            continue;
        }
        let (_, statement) = open.get_or_insert((number + 1, String::new()));
        statement.push_str(line.strip_suffix(';').unwrap_or(line));
        statement.push('\n');
        if line.ends_with(';') {
            found.extend(open.take());
        }
    }
    found.extend(open);
    found
}

/// Why the query may not run, as far as its text and plan show.
fn check(connection: &mut Connection, text: &str) -> anyhow::Result<Option<String>> {
    // Only a query is valid as a subquery; any other statement fails here, and cannot end the transaction.
    connection.rows("begin transaction read only")?; // [QRY-1]
    let plan = connection
        .plan(&format!("explain (verbose, costs off, format json) select * from (\n{text}\n) q"));
    connection.rows("rollback")?;
    let plan = plan?;
    if let Some(node) =
        query::nodes(&plan).into_iter().find(|node| ["ModifyTable", "LockRows"].contains(node))
    {
        return Ok(Some(format!("changes or locks rows ({node})")));
    }
    let called = called(&plan);
    let names: Vec<String> =
        called.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let volatile = in_catalog(
        connection,
        &format!(
            "select proname from pg_proc p where proname in ({}) \
             and (provolatile = 'v' or exists (select from pg_aggregate a join pg_proc f on f.oid in (aggtransfn, \
             aggfinalfn, aggcombinefn, aggserialfn, aggdeserialfn, aggmtransfn, aggminvtransfn, aggmfinalfn) \
             where a.aggfnoid = p.oid and f.provolatile = 'v')) \
             and not (pronamespace = 'pg_catalog'::regnamespace and proname in ({HARMLESS})) order by 1 limit 1",
            names.join(",")
        ),
    )?;
    Ok(volatile.first().map(|row| format!("calls {}, which is declared VOLATILE", row.text(0))))
}

/// Every word before an opening parenthesis in the texts of a plan: functions, and some that are not.
fn called(plan: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    query::walk(plan, &mut |_, text| {
        for (at, _) in text.match_indices('(') {
            let before = &text[..at];
            let name = match before.strip_suffix('"') {
                Some(quoted) => unquoted(quoted),
                None => {
                    let is_of_word =
                        |letter: char| letter.is_alphanumeric() || "_$".contains(letter);
                    before[before.trim_end_matches(is_of_word).len()..].to_owned()
                }
            };
            found.extend(Some(name).filter(|name| !name.is_empty()));
        }
    });
    found
}

/// The name at the end of `text`, up to its closing quote: two quotes within a name stand for one.
fn unquoted(text: &str) -> String {
    let mut start = text.len();
    while let Some(at) = text[..start].rfind('"') {
        if !text[..at].ends_with('"') {
            return text[at + 1..].replace("\"\"", "\"");
        }
        start = at - 1;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_in_lines_that_end_in_a_semicolon() {
        let text = "-- first\n\nselect ';';\nselect 1\n  from t -- here\n;\n\nselect 2";
        let expected =
            [(3, "select ';'\n"), (4, "select 1\n  from t -- here\n\n"), (8, "select 2\n")];
        assert_eq!(split(text), expected.map(|(line, text)| (line, text.to_owned())));
        assert!(split("\n-- nothing\n").is_empty());
    }

    #[test]
    fn what_a_plan_calls_is_found_however_it_is_quoted() {
        let plan = serde_json::json!([{"Plan": {
            "Node Type": "Result", "Output": ["s.\"my F\"(x)", "count(*)", "\"s\".\"a\"\"b\"(1)", "\"\"\"\"()"],
            "Filter": "(a.b > lower_it(y))",
            "Plans": [{"Node Type": "Function Scan", "Function Call": "ns.f$1()"}],
        }}]);
        let names: Vec<String> = called(&plan).into_iter().collect();
        assert_eq!(names, ["\"", "a\"b", "count", "f$1", "lower_it", "my F"]);
    }
}
