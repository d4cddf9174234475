//! COPY with look-ahead in its indexes: the same rows at the same places, the same errors, the same counters.

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Server, Session};

use crate::{PRELOADED, connect, serve_with};

/// What is copied: 2,000 rows, whose keys lie anywhere among those of the table.
const SOURCE: &str =
    "create table source as select g as id, case when g % 11 > 0 then key(g) end as key, g % 5 as kind
         from generate_series(30001, 32000) g;
     copy source to program 'cat > source.copy';
     copy (select id, key(id), kind from source) to program 'cat > full.copy'";
const KEY: &str = "create function key(int) returns text language sql immutable as
    $$ select md5($1::text) || repeat('k', 60) $$";
/// 30,000 rows, with an index of more pages than there are buffers.
const ROWS: &str =
    "insert into keyed (id, key, kind) select g, key(g), g % 5 from generate_series(1, 30000) g";

struct Copy {
    name: &'static str,
    /// How the table is made, and what is done once it has its rows.
    table: &'static str,
    then: &'static str,
    copy: &'static str,
    /// Whether leaves are prefetched.
    looks_ahead: bool,
    /// The first server that has it.
    since: u32,
}

const PLAIN: Copy = Copy {
    name: "a primary key",
    table: "create table keyed (id int, key text, kind int)",
    then: "alter table keyed add primary key (key)",
    copy: "copy keyed from program 'cat full.copy'",
    looks_ahead: true,
    since: 14,
};
const NULLS: &str = "copy keyed from program 'cat source.copy'";

const COPIES: &[Copy] = &[
    PLAIN,
    Copy {
        name: "three indexes, with nulls, and columns that are not keys",
        then: "create index on keyed (key desc nulls last); create index on keyed (kind, key) include (id);
               create index on keyed (id)",
        copy: NULLS,
        ..PLAIN
    },
    Copy {
        name: "a unique violation in the middle",
        then: "alter table keyed add primary key (key); insert into keyed values (0, key(31000), 0)",
        ..PLAIN
    },
    Copy {
        name: "partitions",
        table: "create table keyed (id int, key text, kind int) partition by hash (id);
                create table keyed_0 partition of keyed for values with (modulus 2, remainder 0);
                create table keyed_1 (kind int, key text, id int);
                alter table keyed attach partition keyed_1 for values with (modulus 2, remainder 1)",
        then: "create index on keyed (key)",
        ..PLAIN
    },
    Copy {
        name: "a generated column",
        table: "create table keyed (id int, key text, kind int, hash text generated always as (md5(key)) stored)",
        then: "create index on keyed (hash, key)",
        ..PLAIN
    },
    Copy {
        name: "columns that were dropped and added",
        table: "create table keyed (first int, id int, key text, kind int); alter table keyed drop first",
        then: "alter table keyed add more text default 'more'; create index on keyed (more, key)",
        copy: "copy keyed (id, key, kind) from program 'cat full.copy'",
        ..PLAIN
    },
    Copy {
        name: "rows after others of the same transaction",
        copy: "begin; insert into keyed select 70000 + g, key(70000 + g), 1 from generate_series(1, 50) g;
               copy keyed from program 'cat full.copy'; delete from keyed where id = 31000; commit",
        ..PLAIN
    },
    Copy {
        name: "a trigger after each row",
        then: "create index on keyed (key);
               create function note() returns trigger language plpgsql as $$ begin
                   if new.id % 1000 = 0 then raise notice '%', new.id; end if; return null; end $$;
               create trigger each after insert on keyed for each row execute function note()",
        ..PLAIN
    },
    Copy {
        name: "rows that are not numbers",
        copy: "copy keyed from program 'sed \"s/^3[0-9]*9\\t/x\\t/\" full.copy' (on_error ignore)",
        since: 17,
        ..PLAIN
    },
    Copy {
        name: "an expression",
        then: "create index on keyed (lower(key))",
        looks_ahead: false,
        ..PLAIN
    },
    Copy {
        name: "a part of the rows",
        then: "create index on keyed (key) where kind = 1",
        looks_ahead: false,
        ..PLAIN
    },
    Copy {
        name: "a trigger before each row",
        then: "create index on keyed (key);
               create function keep() returns trigger language plpgsql as $$ begin return new; end $$;
               create trigger each before insert on keyed for each row execute function keep()",
        looks_ahead: false,
        ..PLAIN
    },
    Copy {
        name: "switched off",
        copy: "set forebay.writes = off; copy keyed from program 'cat full.copy'",
        looks_ahead: false,
        ..PLAIN
    },
];

/// The rows with their places, and some as an index on the key returns them.
const SEEN: &[&str] = &[
    "select md5(string_agg(tableoid::regclass::text || ctid || keyed::text, ',' order by tableoid, ctid)), count(*) from keyed",
    "select string_agg(id::text, ',' order by id) from keyed \
     where key = any (array(select key(id) from source where id % 50 = 0)) and id > 30000",
    "select count(*) from keyed where kind = 3",
];
/// Accesses to blocks of the table and its indexes, in this transaction.
const BLOCKS: &str =
    "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class where relname like 'keyed%'";

fn copied(
    server: &Server,
    copy: &Copy,
    session: &mut Session,
) -> Result<(Vec<Vec<String>>, u64), String> {
    let mut owner = connect(server, &[])?;
    for sql in ["drop table if exists keyed", "drop function if exists note, keep", copy.table] {
        must(&mut owner, sql)?;
    }
    for sql in [ROWS, copy.then, "vacuum analyze keyed", "checkpoint"] {
        owner.rows(sql).map_err(text)?;
    }
    let count = server.hint_count().map_err(text)?;
    let before = count.now().map_err(text)?;
    let outcome = session.run(copy.copy);
    let hints = count.now().map_err(text)? - before;
    session.run("rollback");
    let mut seen = vec![
        outcome.error.map(|(code, message)| vec![code, message]).unwrap_or_default(),
        outcome.notices,
        outcome.counts.iter().map(ToString::to_string).collect(),
    ];
    for sql in SEEN {
        seen.push(must(&mut owner, sql)?);
    }
    Ok((seen, hints))
}

pub(crate) fn does_the_same(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "2MB")?;
    let mut owner = connect(&server, &[])?;
    for sql in [KEY, SOURCE] {
        owner.rows(sql).map_err(text)?;
    }
    for copy in COPIES.iter().filter(|copy| case.installation.major >= copy.since) {
        let stock = copied(&server, copy, &mut connect(&server, &[])?)?;
        let ours = copied(&server, copy, &mut connect(&server, PRELOADED)?)?;
        equal(copy.name, &ours.0, &stock.0)?;
        if stock.1 > 0 || (ours.1 >= 200) != copy.looks_ahead {
            return Err(format!(
                "{}: {} leaves prefetched, {} without",
                copy.name, ours.1, stock.1
            ));
        }
    }
    counters(&server)?;
    refusals(&server)
}

/// A command that is refused for two reasons names the one that the server finds first.
fn refusals(server: &Server) -> Result<(), String> {
    let mut owner = connect(server, &[])?;
    must(
        &mut owner,
        "create role guest; create schema hidden; create table hidden.rows (id int primary key)",
    )?;
    for command in [
        "copy hidden.rows from '/no/such/file'",
        "copy missing.rows from stdin",
        "copy hidden.rows from stdin",
    ] {
        let [stock, ours] = [&[][..], PRELOADED].map(|settings| {
            let mut session = connect(server, settings)?;
            must(&mut session, "set role guest")?;
            Ok::<_, String>(session.run(command).error)
        });
        let stock = stock?;
        equal(command, &ours?, &stock)?;
        equal(command, stock.is_some(), true)?;
    }
    Ok(())
}

/// The accesses to blocks that COPY counts are those of stock.
fn counters(server: &Server) -> Result<(), String> {
    let [stock, ours] = [&[][..], PRELOADED].map(|settings| {
        let mut session = connect(server, settings)?;
        copied(server, &Copy { copy: "select", ..PLAIN }, &mut session)?;
        must(&mut session, "begin")?;
        must(&mut session, PLAIN.copy)?;
        let blocks = must(&mut session, BLOCKS)?;
        must(&mut session, "rollback")?;
        Ok::<_, String>(blocks)
    });
    equal("blocks", ours?, stock?)
}
