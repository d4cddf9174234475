//! Hash and GiST scans with look-ahead: the same rows in the same order, the same counters.

use forebay_postgres_harness::suite::{Case, equal, must};

use crate::{PRELOADED, connect, serve_with};

/// Rows anywhere; the tables have more pages than there are buffers.
const TABLES: &[&str] = &[
    "create table places (id int, at point, area polygon, span int4range, kind int, pad text)",
    "insert into places select g, point(x, y), polygon(circle(point(x, y), 2)), int4range((h >> 5) & 127, ((h >> 5) & 127) + 5), h & 15,
         repeat('p', 250)
     from (select g, hashint4(g) as h, (hashint4(g) & 1023) as x, (hashint4(-g) & 1023) as y from generate_series(1, 6000) g) s",
    "create index on places using gist (at)",
    "create index on places using gist (area)",
    "create index on places using gist (span)",
    "create index on places using hash (kind)",
    "create table frames (around box)",
    "insert into frames select box(point(g * 50, g * 40), point(g * 50 + 130, g * 40 + 130)) from generate_series(1, 18) g",
    "create table shifts (span int4range, pad text, exclude using gist (span with &&))",
    "insert into shifts select int4range(g * 10, g * 10 + 6), repeat('s', 400) from generate_series(1, 3000) g order by hashint4(g)",
    "vacuum analyze places, shifts",
];

/// Statements, and whether blocks are prefetched for them.
const STATEMENTS: &[(&str, bool)] = &[
    ("select id, at from places where at <@ box(point(100, 100), point(600, 500))", true),
    ("select id from places where span && int4range(40, 44) and pad > ''", true),
    ("select id from places order by at <-> point(500, 500)", true),
    ("select id from places order by at <-> point(300, 800) limit 1500", true),
    // The distance in the index is that of the bounding box.
    ("select id from places order by area <-> point(400, 300) limit 1500", true),
    ("select id from places where area && polygon(circle(point(500, 500), 200))", true),
    ("select id from places where kind = 7 and id > 0", true),
    ("select id from places where kind = 99", false),
    (
        "declare c scroll cursor for select id from places where kind = 3; fetch 200 from c; fetch backward 150 from c;
         fetch 300 from c; fetch backward all from c",
        true,
    ),
    (
        "declare d cursor for select id from places order by at <-> point(0, 0); fetch 900 from d; fetch 50 from d; close d",
        true,
    ),
    ("select id, around from frames join places on at <@ around", true),
    ("select p.id, (select s.id from places s where s.kind = p.kind and s.id > p.id limit 1) from places p where p.id < 40", false),
    ("select id from places order by at <-> point(200, 200) limit 700", true),
    ("select span from places where span <@ int4range(10, 30)", false),
    ("update places set pad = 'q' where at <@ box(point(0, 0), point(300, 500))", true),
    ("delete from places where kind = 5", true),
    ("insert into shifts select int4range(g * 10 + 6, g * 10 + 8) from generate_series(1, 300) g", false),
    ("insert into shifts select int4range(g * 10 + 5, g * 10 + 9) from generate_series(900, 1000) g", false),
];
const PLAN: &str = "set enable_bitmapscan = off; set enable_seqscan = off";
const BLOCKS: &str = "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class
    where relname ~ '^(places|frames|shifts)'";

pub(crate) fn do_the_same(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "1MB")?;
    let mut owner = connect(&server, &[])?;
    for sql in TABLES {
        must(&mut owner, sql)?;
    }
    let count = server.hint_count().map_err(|error| error.to_string())?;
    let now = || count.now().map_err(|error| error.to_string());
    let run = |statement: &str, settings| {
        let mut session = connect(&server, settings)?;
        must(&mut session, PLAN)?;
        let before = now()?;
        must(&mut session, "begin")?;
        let outcome = session.run(statement);
        let hints = now()? - before;
        let blocks = outcome.error.is_none().then(|| must(&mut session, BLOCKS)).transpose()?;
        must(&mut session, "rollback")?;
        Ok::<_, String>((outcome, blocks, hints))
    };
    for (statement, looks_ahead) in STATEMENTS {
        let stock = run(statement, &[])?;
        let ours = run(statement, PRELOADED)?;
        ours.0.same(&stock.0, true).map_err(|difference| format!("{statement}: {difference}"))?;
        // Writes leave traces, even if they are rolled back.
        if statement.starts_with("select") || statement.starts_with("declare") {
            equal(statement, &ours.1, &stock.1)?;
        }
        // The server looks ahead of bitmap and sequential scans itself.
        if (ours.2 >= stock.2 + 20) != *looks_ahead {
            return Err(format!("{statement}: {} blocks prefetched, {} without", ours.2, stock.2));
        }
    }
    Ok(())
}
