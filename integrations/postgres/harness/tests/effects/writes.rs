//! COPY, INSERT and UPDATE with look-ahead in indexes: the same rows at the same places, the same errors, the same
//! counters.

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Server, Session};

use crate::{PRELOADED, connect, serve_with, wal};

/// What is written: 1,000 rows, whose keys lie anywhere among those of the table.
const SOURCE: &str =
    "create table source as select g as id, case when g % 11 > 0 then key(g) end as key, g % 5 as kind
         from generate_series(30001, 31000) g;
     copy source to program 'cat > source.copy';
     copy (select id, key(id), kind from source) to program 'cat > full.copy'";
const KEY: &str = "create function key(int) returns text language sql immutable as
    $$ select md5($1::text) || repeat('k', 180) $$";
/// 12,000 rows, with an index of more pages than there are buffers.
const ROWS: &str =
    "insert into keyed (id, key, kind) select g, key(g), g % 5 from generate_series(1, 12000) g";

struct Write {
    name: &'static str,
    /// How the table is made, and what is done once it has its rows.
    table: &'static str,
    then: &'static str,
    command: &'static str,
    /// Whether leaves are prefetched.
    looks_ahead: bool,
    /// The first server that has it.
    since: u32,
}

const PLAIN: Write = Write {
    name: "a primary key",
    table: "create table keyed (id int, key text, kind int)",
    then: "alter table keyed add primary key (key)",
    command: "copy keyed from program 'cat full.copy'",
    looks_ahead: true,
    since: 14,
};
const NULLS: &str = "copy keyed from program 'cat source.copy'";

/// Two, with their columns in different orders.
const PARTITIONS: &str = "create table keyed (id int, key text, kind int) partition by hash (id);
    create table keyed_0 partition of keyed for values with (modulus 2, remainder 0);
    create table keyed_1 (kind int, key text, id int);
    alter table keyed attach partition keyed_1 for values with (modulus 2, remainder 1)";
const INSERT: Write = Write {
    name: "INSERT ... SELECT",
    then: "create index on keyed (key desc); create index on keyed (kind, key) include (id); create index on keyed (id)",
    command: "insert into keyed select id, key(id), kind from source",
    ..PLAIN
};
/// Every tenth row gets another key.
const UPDATE: Write = Write {
    name: "UPDATE",
    table: "create table keyed (id int, key text, kind int) with (fillfactor = 90)",
    command: "update keyed set key = key(id + 50000) where id % 10 = 3",
    ..INSERT
};
/// It cannot be inlined.
const OTHER: &str = "create function other(int) returns text language plpgsql immutable as
    $$ begin return md5($1::text); end $$";
const KEEP: &str = "create function keep() returns trigger language plpgsql as $$ begin
    if new.id % 10 = 0 then return null; end if;
    perform set_config('my.last', new.id::text, true);
    if new.id % 10 = 1 then new.key = new.key || 'x'; end if; return new; end $$";

const WRITES: &[Write] = &[
    PLAIN,
    Write {
        name: "three indexes, with nulls, and columns that are not keys",
        then: "create index on keyed (key desc nulls last); create index on keyed (kind, key) include (id);
               create index on keyed (id)",
        command: NULLS,
        ..PLAIN
    },
    Write {
        name: "a unique violation in the middle",
        then: "alter table keyed add primary key (key); insert into keyed values (0, key(30500), 0)",
        ..PLAIN
    },
    Write {
        name: "partitions",
        table: PARTITIONS,
        then: "create index on keyed (key)",
        ..PLAIN
    },
    Write {
        name: "a generated column",
        table: "create table keyed (id int, key text, kind int, hash text generated always as (md5(key)) stored)",
        then: "create index on keyed (hash, key)",
        ..PLAIN
    },
    Write {
        name: "columns that were dropped and added",
        table: "create table keyed (first int, id int, key text, kind int); alter table keyed drop first",
        then: "alter table keyed add more text default 'more'; create index on keyed (more, key)",
        command: "copy keyed (id, key, kind) from program 'cat full.copy'",
        ..PLAIN
    },
    Write {
        name: "rows after others of the same transaction",
        command: "begin; insert into keyed select 70000 + g, key(70000 + g), 1 from generate_series(1, 50) g;
               copy keyed from program 'cat full.copy'; delete from keyed where id = 31000; commit",
        ..PLAIN
    },
    Write {
        name: "a trigger after each row",
        then: "create index on keyed (key);
               create function note() returns trigger language plpgsql as $$ begin
                   if new.id % 1000 = 0 then raise notice '%', new.id; end if; return null; end $$;
               create trigger each after insert on keyed for each row execute function note()",
        ..PLAIN
    },
    Write {
        name: "rows that are not numbers",
        command: "copy keyed from program 'sed \"s/^3[0-9]*9\\t/x\\t/\" full.copy' (on_error ignore)",
        since: 17,
        ..PLAIN
    },
    Write {
        name: "an expression",
        then: "create index on keyed (lower(key), (id + 1))",
        ..PLAIN
    },
    Write {
        name: "a part of the rows",
        then: "create index on keyed (key) where kind + 1 <> 2",
        ..PLAIN
    },
    Write {
        name: "an expression that fails",
        then: "create index on keyed (key); create index on keyed ((key || 1 / (id - 30500)))",
        ..PLAIN
    },
    Write {
        name: "an expression with a function that is not the server's",
        then: "create index on keyed (other(id))",
        looks_ahead: false,
        ..PLAIN
    },
    Write {
        name: "a trigger before each row",
        then: "create index on keyed (key);
               create trigger each before insert on keyed for each row execute function keep()",
        looks_ahead: false,
        ..PLAIN
    },
    Write {
        name: "switched off",
        command: "set forebay.writes = off; copy keyed from program 'cat full.copy'",
        looks_ahead: false,
        ..PLAIN
    },
    INSERT,
    Write {
        name: "INSERT of many VALUES",
        command: "do $$ begin execute (select 'insert into keyed values ' ||
            string_agg(format('(%s, %L, %s)', id, key(id), kind), ', ') from source); end $$",
        ..INSERT
    },
    Write {
        name: "INSERT of rows in the order of the key, of the table itself",
        command: "insert into keyed select id + 40000, key || id, kind from keyed where id % 10 = 3",
        ..INSERT
    },
    Write {
        // An expression is evaluated for each row, in memory that is then reset.
        name: "INSERT of two sources, of which the second begins ahead",
        then: "create index on keyed (key); create index on keyed (lower(key || key || key))",
        command: "insert into keyed select id, key(id), kind from source where id % 2 = 0
                  union all select id, key(id), kind from source where id % 2 = 1",
        ..INSERT
    },
    Write {
        name: "INSERT with a sequence, random numbers and stable functions",
        table: "drop sequence if exists numbers; create sequence numbers start 30001;
                create table keyed (id int default nextval('numbers'), key text, kind int, at timestamptz default date_trunc('year', now()))",
        command: "select setseed(0.5); insert into keyed (key, kind)
                  select md5(random()::text) || current_setting('application_name'), kind from source;
                  select setval('numbers', nextval('numbers'))",
        ..INSERT
    },
    Write {
        name: "INSERT with a unique violation in the middle",
        then: "alter table keyed add primary key (key); insert into keyed values (0, key(30500), 0)",
        ..INSERT
    },
    Write {
        name: "INSERT with a trigger before each row that changes and drops rows",
        then: "create index on keyed (key); create trigger each before insert on keyed for each row execute function keep()",
        ..INSERT
    },
    Write {
        name: "INSERT of what a trigger sets",
        then: "create index on keyed (key); create trigger each before insert on keyed for each row execute function keep()",
        command: "set my.last = '0'; insert into keyed select id, key(id) || current_setting('my.last'), kind from source",
        looks_ahead: false,
        ..INSERT
    },
    Write {
        name: "INSERT with RETURNING of a sequence",
        table: "drop sequence if exists numbers; create sequence numbers start 30001;
                create table keyed (id int default nextval('numbers'), key text, kind int)",
        command: "insert into keyed (key, kind) select key(id), kind from source returning currval('numbers')",
        looks_ahead: false,
        ..INSERT
    },
    Write {
        name: "INSERT into partitions",
        table: PARTITIONS,
        then: "create index on keyed (key); create index on keyed (lower(key), kind)",
        command: "insert into keyed select id, key(id), kind from source",
        ..INSERT
    },
    Write {
        name: "INSERT into partitions, of which one has a trigger",
        table: PARTITIONS,
        then: "create index on keyed (key);
               create trigger each before insert on keyed_1 for each row execute function keep()",
        command: "set my.last = '0'; insert into keyed select id, key(id) || current_setting('my.last'), kind from source",
        looks_ahead: false,
        ..INSERT
    },
    Write {
        name: "INSERT with RETURNING",
        command: "with new as (insert into keyed select id, key(id), kind from source returning id, key)
                  select md5(string_agg(id || key, ',')) from new",
        ..INSERT
    },
    Write {
        name: "INSERT of a generated key",
        table: "create table keyed (id int, key text, kind int, hash text generated always as (md5(key)) stored)",
        then: "create index on keyed (hash, key)",
        command: "insert into keyed (id, key, kind) select id, key(id), kind from source",
        looks_ahead: false,
        ..PLAIN
    },
    Write {
        name: "INSERT after a lock of the source",
        command: "insert into keyed select id, key(id), kind from source for update",
        looks_ahead: false,
        ..INSERT
    },
    Write {
        name: "INSERT that ends with an error of the source",
        command: "insert into keyed select id, key(id), 1 / (id - 30500) from source",
        ..INSERT
    },
    Write {
        name: "INSERT ... ON CONFLICT DO NOTHING",
        then: "alter table keyed add primary key (key)",
        command: "insert into keyed select id, key(id - id % 3 * 10000), kind from source on conflict do nothing",
        ..INSERT
    },
    Write {
        name: "INSERT ... ON CONFLICT DO UPDATE, with a second index",
        then: "alter table keyed add primary key (key); create index on keyed (id); create index on keyed (kind, key)",
        command: "insert into keyed select id, key(id - id % 3 * 10000), kind from source
                  on conflict (key) do update set id = excluded.id, kind = keyed.kind + 1",
        ..INSERT
    },
    Write {
        name: "INSERT with an expression, a part of the rows, and the whole row",
        then: "create index on keyed (lower(key)); create index on keyed (key) where id % 10 <> 1;
               create index on keyed ((keyed is null), id)",
        ..INSERT
    },
    UPDATE,
    Write {
        name: "UPDATE with an expression, and a part of the rows",
        then: "create index on keyed (lower(key), id); create index on keyed (key) where kind > 1",
        ..UPDATE
    },
    Write {
        name: "UPDATE of a column that is not a key, with a key",
        command: "update keyed set id = id + 50000, kind = 7 where id % 10 = 3",
        ..UPDATE
    },
    Write {
        name: "UPDATE of partitions",
        table: PARTITIONS,
        then: "create index on keyed (key); create index on keyed (kind, id)",
        ..UPDATE
    },
    Write {
        name: "UPDATE that moves rows to other partitions",
        table: PARTITIONS,
        then: "create index on keyed (key); create index on keyed (kind, id)",
        command: "update keyed set id = id + 50001, key = key(id + 50000) where id % 10 = 3",
        ..UPDATE
    },
    Write {
        name: "UPDATE of a join, some rows twice",
        command: "update keyed set key = s.key || s.id from (select id, key from source union all select id + 1, 'second' from source) s
                  where keyed.id = s.id - 30000 and s.id % 2 = 0",
        ..UPDATE
    },
    Write {
        name: "UPDATE with a trigger before each row",
        then: "create index on keyed (key); create trigger each before update on keyed for each row execute function keep()",
        ..UPDATE
    },
    Write {
        name: "MERGE",
        command: "merge into keyed using source s on keyed.id = s.id - 30000
                  when matched and s.kind > 1 then update set key = key(s.id) when matched then delete
                  when not matched then insert values (s.id, key(s.id), 1)",
        since: 15,
        ..UPDATE
    },
    Write {
        name: "MERGE with conditions on the rows that it updates",
        command: "merge into keyed using source s on keyed.id = s.id - 30000
                  when matched and keyed.kind = 2 and keyed.key < '8' then update set kind = keyed.kind + s.id, key = lower(keyed.key) || s.id
                  when matched and keyed.kind = 3 then do nothing
                  when matched and keyed.id % 7 = 1 then update set id = s.id + keyed.id",
        since: 15,
        ..UPDATE
    },
    Write {
        name: "MERGE that updates rows without a match",
        command: "merge into keyed using (select * from source where id % 2 = 0) s on keyed.id = s.id - 30000
                  when not matched by source and keyed.id % 5 = 1 then update set key = key(keyed.id + 70000)
                  when not matched by source and keyed.id % 5 = 2 then delete
                  when matched then update set kind = keyed.kind + 1, key = key(s.id)
                  when not matched then insert values (s.id, key(s.id), 1)",
        since: 17,
        ..UPDATE
    },
    Write {
        name: "MERGE that inserts",
        command: "merge into keyed using source s on keyed.id = s.id - 18500 when matched then delete
                  when not matched and s.kind = 4 then do nothing
                  when not matched then insert values (s.id, key(s.id), s.kind)",
        since: 15,
        ..INSERT
    },
    Write {
        name: "MERGE with volatile functions",
        command: "merge into keyed using source s on keyed.id = s.id
                  when not matched then insert values (s.id, key(s.id) || random() * 0, s.kind)",
        looks_ahead: false,
        since: 15,
        ..INSERT
    },
    Write {
        name: "INSERT, switched off",
        command: "set forebay.writes = off; insert into keyed select id, key(id), kind from source",
        looks_ahead: false,
        ..INSERT
    },
];

/// The rows with their places, and some as an index on the key returns them.
const SEEN: &[&str] = &[
    "select md5(string_agg(tableoid::regclass::text || ctid || keyed::text, ',' order by tableoid, ctid)), count(*) from keyed",
    "select string_agg(id::text, ',' order by id) from keyed \
     where key = any (array(select key(id) from source where id % 50 = 0)) and id > 30000",
    "select count(*) from keyed where kind = 3",
    "select count(bt_index_check(oid, true)) from pg_class where relname like 'keyed%' and relkind = 'i'",
];
/// Accesses to blocks of the table and its indexes, in this transaction.
const BLOCKS: &str =
    "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class where relname like 'keyed%'";

/// What a command does to the tables that `setup` makes, as `seen` shows it, and how many blocks are prefetched for it.
pub(crate) fn outcome(
    server: &Server,
    setup: &[&str],
    command: &str,
    seen: &[&str],
    session: &mut Session,
) -> Result<(Vec<Vec<String>>, u64), String> {
    let mut owner = connect(server, &[])?;
    let quick = server.quick_reads().map_err(text)?;
    for sql in setup {
        owner.rows(sql).map_err(text)?;
    }
    drop(quick);
    let count = server.hint_count().map_err(text)?;
    let before = count.now().map_err(text)?;
    let outcome = session.run(command);
    let hints = count.now().map_err(text)? - before;
    let _quick = server.quick_reads().map_err(text)?;
    session.run("rollback");
    let mut all = vec![
        outcome.error.map(|(code, message)| vec![code, message]).unwrap_or_default(),
        outcome.notices,
        outcome.counts.iter().map(ToString::to_string).collect(),
    ];
    for sql in seen {
        all.push(must(&mut owner, sql)?);
    }
    Ok((all, hints))
}

fn written(
    server: &Server,
    write: &Write,
    session: &mut Session,
) -> Result<(Vec<Vec<String>>, u64), String> {
    let setup = [
        "drop table if exists keyed",
        "drop function if exists note",
        write.table,
        ROWS,
        write.then,
        "vacuum analyze keyed",
        "checkpoint",
    ];
    outcome(server, &setup, write.command, SEEN, session)
}

pub(crate) fn do_the_same(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "2MB")?;
    let mut owner = connect(&server, &[])?;
    for sql in [KEY, SOURCE, KEEP, OTHER, "create extension amcheck"] {
        owner.rows(sql).map_err(text)?;
    }
    for write in WRITES.iter().filter(|write| case.installation.major >= write.since) {
        let stock = written(&server, write, &mut connect(&server, &[])?)?;
        let ours = written(&server, write, &mut connect(&server, PRELOADED)?)?;
        equal(write.name, &ours.0, &stock.0)?;
        // The server prefetches for bitmap scans of the source.
        if (ours.1 >= stock.1 + 50) != write.looks_ahead {
            return Err(format!(
                "{}: {} leaves prefetched, {} without",
                write.name, ours.1, stock.1
            ));
        }
    }
    for write in [&PLAIN, &INSERT, &UPDATE] {
        counters(&server, write)?;
        log(case, &server, write)?;
    }
    if case.installation.major >= 18 {
        explained(&server)?;
    }
    refusals(&server)
}

/// EXPLAIN shows at the Insert what was prefetched for it.
fn explained(server: &Server) -> Result<(), String> {
    let mut session = connect(server, PRELOADED)?;
    written(server, &Write { command: "select", ..INSERT }, &mut session)?;
    let explain = format!("explain (analyze, forebay, costs off, buffers off) {}", INSERT.command);
    let plan = must(&mut session, &explain)?;
    let line = plan.get(1).filter(|line| line.trim_start().starts_with("Forebay: prefetched="));
    line.map(|_| ()).ok_or_else(|| format!("{plan:?}"))
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

/// The accesses to blocks that a command counts are those of stock.
fn counters(server: &Server, write: &Write) -> Result<(), String> {
    let [stock, ours] = [&[][..], PRELOADED].map(|settings| {
        let mut session = connect(server, settings)?;
        written(server, &Write { command: "select", ..*write }, &mut session)?;
        must(&mut session, "begin")?;
        must(&mut session, write.command)?;
        let blocks = must(&mut session, BLOCKS)?;
        must(&mut session, "rollback")?;
        Ok::<_, String>(blocks)
    });
    equal(write.name, ours?, stock?)
}

/// The records that a command writes to the log are those of stock, in its order.
fn log(case: &Case, server: &Server, write: &Write) -> Result<(), String> {
    let [stock, ours] = [&[][..], PRELOADED].map(|settings| {
        let mut session = connect(server, settings)?;
        written(server, &Write { command: "select", ..*write }, &mut session)?;
        let begin = wal::end(server)?;
        must(&mut session, write.command)?;
        wal::records(case, server, &begin, "^keyed")
    });
    wal::same(write.name, &ours?, &stock?)
}
