//! What the server itself has read, and for which statements: pg_stat_io (16 and later) and pg_stat_statements.
//!
//! Generated queries represent disks, not the user's workload. So the report gives the share of the server's reads that
//! each setting affects: scans of large tables for io_combine_limit and the device's readahead, vacuum for
//! maintenance_io_concurrency, the rest, with all bitmap scans, for effective_io_concurrency; and it names statements
//! that could prove a setting instead of generated ones.
//!
//! Invariants:  [RDS-1] no statement's text is kept whole, and no literal or comment of it
//! Failure:     what this version does not count, and what this role may not see, is left out.
//! Source:      PostgreSQL's documentation, "Monitoring Database Activity", for the contexts; an entry of
//!              pg_stat_statements that was evicted while its statement ran returns as it was typed, with its literals.

use serde::Serialize;

use super::server::Server;
use forebay_measure::report::numbers;
use forebay_measure::report::terminal::text::cut;
use forebay_measure::units::shown_size;
use forebay_session::{Connection, Refused};

/// Maximum number of reported statements, and maximum characters of their texts.
const STATEMENTS: usize = 3;
const TEXT_MAX: usize = 80;

/// Counted since the statistics were reset.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Reads {
    /// Largest first; empty up to 15.
    contexts: Vec<ByContext>,
    /// Statements of this database that only read: those that read most, each at least a hundredth of the total.
    statements: Vec<Statement>,
}

/// Reads into shared buffers in one context.
#[derive(Debug, Clone, Serialize)]
struct ByContext {
    /// As in pg_stat_io, but everything that autovacuum reads is `vacuum`.
    context: String,
    bytes: f64,
    /// 0 without track_io_timing.
    waited_s: f64,
    since_s: f64,
}

/// An entry of pg_stat_statements.
#[derive(Debug, Clone, Serialize)]
struct Statement {
    queryid: String,
    calls: f64,
    bytes: f64,
    /// 0 without track_io_timing.
    waited_s: f64,
    /// Share of the reads of all statements in all databases.
    share: f64,
    /// Its beginning, with `?` for literals and comments.
    text: String,
}

impl Reads {
    /// # Errors
    /// A server error on our own statements, or an interruption.
    pub(super) fn read(connection: &mut Connection, server: &Server) -> anyhow::Result<Reads> {
        let mut contexts = Vec::new();
        if server.major >= 16 {
            let bytes = if server.major >= 18 { "read_bytes" } else { "reads * op_bytes" };
            let rows = connection.rows(&format!(
                "select case when backend_type like 'autovacuum%' then 'vacuum' else context end, sum({bytes}), \
                 sum(read_time) / 1000, extract(epoch from now() - min(stats_reset)) \
                 from pg_stat_io where object = 'relation' and reads > 0 group by 1 order by 2 desc"
            ))?;
            contexts.extend(rows.iter().map(|row| ByContext {
                context: row.text(0).to_owned(),
                bytes: row.number(1).unwrap_or(0.0),
                waited_s: row.number(2).unwrap_or(0.0),
                since_s: row.number(3).unwrap_or(0.0),
            }));
        }
        let statements = match statements(connection) {
            Err(error) if !error.is::<Refused>() => return Err(error),
            // Without pg_read_all_stats a role sees only its own statements; without the library, the view refuses.
            found => found.ok().filter(|_| server.sees_load).unwrap_or_default(),
        };
        Ok(Reads { contexts, statements })
    }

    /// A summary in a few sentences.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let sum = |of: fn(&ByContext) -> f64| self.contexts.iter().map(of).sum::<f64>();
        let (bytes, waited) = (sum(|it| it.bytes), sum(|it| it.waited_s));
        if bytes > 0.0 {
            let since = self.contexts.iter().map(|it| it.since_s).fold(0.0, f64::max);
            let parts: Vec<String> = self.contexts.iter().map(|it| it.text(bytes)).collect();
            let waited = Some(waited).filter(|it| *it > 0.0).map_or_else(String::new, |waited| {
                format!("; {} of waiting", numbers::seconds(waited))
            });
            let (size, since) = (shown_size(bytes as u64), numbers::seconds(since));
            lines.push(format!(
                "read in {since} (pg_stat_io): {size}: {}{waited}",
                parts.join(", ")
            ));
        }
        lines.extend(self.statements.iter().map(|it| {
            let share = numbers::percent(it.share);
            let (size, calls) = (shown_size(it.bytes as u64), numbers::grouped(it.calls));
            format!(
                "{share} % of what statements read (pg_stat_statements): {size} in {calls} runs of {}: {}",
                it.queryid, it.text
            )
        }));
        lines
    }
}

impl ByContext {
    fn text(&self, all: f64) -> String {
        let what = match self.context.as_str() {
            "bulkread" => "in scans of large tables",
            "normal" => "in other queries",
            "vacuum" => "by vacuum",
            other => other,
        };
        format!("{} % {what}", numbers::percent(self.bytes / all))
    }
}

/// The statements that read most, if the extension is in this database.
fn statements(connection: &mut Connection) -> anyhow::Result<Vec<Statement>> {
    // From 1.11 on, which comes with 17 and takes effect after ALTER EXTENSION, this column has another name.
    let view = connection.rows(
        "select quote_ident(n.nspname), a.attname from pg_extension e join pg_namespace n on n.oid = e.extnamespace \
         join pg_class c on c.relnamespace = n.oid and c.relname = e.extname \
         join pg_attribute a on a.attrelid = c.oid and a.attname in ('blk_read_time', 'shared_blk_read_time') \
         where e.extname = 'pg_stat_statements'",
    )?;
    let Some(view) = view.first() else { return Ok(Vec::new()) };
    let (schema, time) = (view.text(0), view.text(1));
    // [RDS-1] Queries of the catalog, many of them from this program, are not part of the workload.
    let rows = connection.rows(&format!(
        r"with s as (select queryid, dbid, sum(calls) as calls, sum(shared_blks_read) as blocks, sum({time}) as ms,
            btrim(regexp_replace(regexp_replace(min(query), '''[^'']*''|/\*([^*]|\*+[^*/])*\*+/|--[^\n]*|(?<![$\w])\d+', '?', 'g'),
              '\s+', ' ', 'g')) as text
            from {schema}.pg_stat_statements where queryid is not null group by 1, 2)
          select queryid, calls, blocks * 8192, ms / 1000, blocks / (select sum(blocks) from s), text
          from s where blocks > 0.01 * (select sum(blocks) from s) and dbid = (select oid from pg_database where datname = current_database())
            and text ~* '^[ (?]*(select|with|table|values)\M' and text !~* '\m(insert|update|delete|merge)\M|\m(from|join) pg_'
          order by blocks desc limit {STATEMENTS}"
    ))?;
    let statement = |row: &forebay_session::Row| Statement {
        queryid: row.text(0).to_owned(),
        calls: row.number(1).unwrap_or(0.0),
        bytes: row.number(2).unwrap_or(0.0),
        waited_s: row.number(3).unwrap_or(0.0),
        share: row.number(4).unwrap_or(0.0),
        text: cut(row.text(5), TEXT_MAX),
    };
    Ok(rows.iter().map(statement).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_listed_by_kind_and_statement() {
        let of = |context: &str, gib: f64, waited_s| ByContext {
            context: context.to_owned(),
            bytes: gib * (1_u64 << 30) as f64,
            waited_s,
            since_s: 7200.0,
        };
        let mut reads = Reads {
            contexts: vec![
                of("bulkread", 30.0, 40.0),
                of("normal", 9.5, 20.0),
                of("vacuum", 0.5, 0.0),
            ],
            statements: vec![Statement {
                queryid: "-17".to_owned(),
                calls: 1234.0,
                bytes: 9.0 * (1_u64 << 30) as f64,
                waited_s: 0.0,
                share: 0.415,
                text: "select * from".to_owned(),
            }],
        };
        let lines = reads.lines();
        let words = "read in 2 h 00 min (pg_stat_io): 40.0 GiB: 75 % in scans of large tables, 24 % in other queries, 1.2 % by \
                     vacuum; 1 min 00 s of waiting";
        assert_eq!(lines[0], words);
        let words = "42 % of what statements read (pg_stat_statements): 9.0 GiB in 1,234 runs of -17: select * from";
        assert_eq!(lines[1], words);
        reads.contexts = vec![of("normal", 1.0, 0.0)];
        assert!(reads.lines()[0].ends_with("1.0 GiB: 100 % in other queries"), "no time is known");
        assert!(Reads::default().lines().is_empty());
    }
}
