//! Checks and actions of foreign keys with look-ahead: the same rows at the same places, the same errors, the same
//! counters.

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Server, Session};

use crate::writes::outcome;
use crate::{PRELOADED, connect, serve_with, wal};

struct Keyed {
    name: &'static str,
    /// The tables `parent` and `kid`.
    tables: &'static str,
    /// The constraint, and what else is made once they have their rows.
    constraint: &'static str,
    command: &'static str,
    looks_ahead: bool,
    since: u32,
    /// The last server that looks ahead.
    until: u32,
}

/// The table and its index have more pages than there are buffers. Kids refer to parents in another order.
const TABLES: &str = "create table parent (id int, code text, kind int, pad text);
    create table kid (id int, parent int, code text, kind int, pad text)";
const PARTITIONS: &str =
    "create table parent (id int, code text, kind int, pad text) partition by hash (id);
    create table parent_0 partition of parent for values with (modulus 2, remainder 0);
    create table parent_1 partition of parent for values with (modulus 2, remainder 1);
    create table kid (id int, parent int, code text, kind int, pad text)";
const ROWS: &str = "insert into parent select g, code(g), g % 5, repeat('p', 300) from generate_series(1, 5000) g;
    insert into kid select g, (hashint4(g) & 4095) + 1, code((hashint4(g) & 4095) + 1), ((hashint4(g) & 4095) + 1) % 5,
        repeat('k', 300) from generate_series(1, 5000) g";
const CODE: &str = "create function code(int) returns text language sql immutable as
    $$ select md5($1::text) || repeat('c', 150) $$";
const REFERS: &str = "alter table parent add primary key (id); create index on kid (parent);
    alter table kid add foreign key (parent) references parent";
const KEY_AND_REFERENCE: &str =
    "alter table parent add primary key (id); alter table kid add primary key (id);
    alter table kid add foreign key (parent) references parent";
/// Rows for 1,000 kids, whose parents lie anywhere.
const NEW: &str = "create table new as select g as id, (hashint4(g) & 4095) + 1 as parent from generate_series(20001, 21000) g;
    copy (select *, repeat('k', 300) from new) to program 'cat > new.copy' (format csv);
    copy (select id + 1000, parent, repeat('k', 300) from new limit 5) to program 'cat > more.copy' (format csv);
    copy (select id, id, case when id % 3 > 0 then code(parent) end, parent % 5, repeat('k', 300) from new) to program 'cat > full.copy';
    copy (select id, parent, null, (hashint4(-id) & 4095) + 1, repeat('k', 300) from new) to program 'cat > two.copy'";

const INSERT: Keyed = Keyed {
    name: "INSERT",
    tables: TABLES,
    constraint: REFERS,
    command: "insert into kid select id, parent from new",
    looks_ahead: true,
    since: 14,
    until: 18,
};
const COPY: Keyed = Keyed {
    name: "COPY",
    command: "copy kid (id, parent, pad) from program 'cat new.copy' (format csv)",
    ..INSERT
};
const DELETE: Keyed = Keyed {
    name: "DELETE that cascades",
    constraint: "alter table parent add primary key (id); create index on kid (parent, id);
        alter table kid add foreign key (parent) references parent on delete cascade",
    command: "delete from parent where id between 3000 and 4000",
    until: 99,
    ..INSERT
};

const CASES: &[Keyed] = &[
    INSERT,
    Keyed {
        name: "INSERT without a parent in the middle",
        command: "insert into kid select id, case when id <> 20650 then parent else -1 end from new",
        ..INSERT
    },
    Keyed {
        name: "INSERT of nulls",
        command: "insert into kid select id, case when id % 3 > 0 then parent end from new",
        ..INSERT
    },
    Keyed {
        name: "INSERT with two columns, in another order than the index",
        constraint: "alter table parent add unique (code, kind);
            alter table kid add foreign key (kind, code) references parent (kind, code)",
        command: "insert into kid (id, code, kind) select id, code(parent), parent % 5 from new",
        ..INSERT
    },
    Keyed {
        name: "INSERT of another type, and of a domain",
        tables: "create table parent (id int, code text, kind int, pad text); create domain long as bigint check (value > -5);
            create table kid (id int, parent long, code varchar(300), kind int, pad text)",
        constraint: "alter table parent add primary key (id), add unique (code);
            alter table kid add foreign key (parent) references parent, add foreign key (code) references parent (code)",
        command: "insert into kid (id, parent, code) select id, parent, code(parent) from new",
        ..INSERT
    },
    Keyed {
        name: "INSERT with triggers that change and drop rows, and one that deletes parents meanwhile",
        constraint: "alter table parent add primary key (id); alter table kid add foreign key (parent) references parent;
            create trigger each before insert on kid for each row execute function change();
            create trigger a after insert on kid for each row execute function disturb()",
        ..INSERT
    },
    Keyed {
        name: "INSERT of rows that refer to each other",
        constraint: "alter table kid add primary key (id); alter table kid add foreign key (parent) references kid",
        ..INSERT
    },
    Keyed {
        name: "INSERT into a table that has room for rows",
        constraint: "alter table parent add primary key (id); alter table kid add foreign key (parent) references parent;
            delete from kid where id % 3 = 0",
        ..INSERT
    },
    Keyed {
        name: "INSERT with a deferred constraint",
        constraint: "alter table parent add primary key (id);
            alter table kid add foreign key (parent) references parent deferrable initially deferred",
        looks_ahead: false,
        ..INSERT
    },
    Keyed {
        name: "INSERT into partitions",
        tables: "create table parent (id int, code text, kind int, pad text);
            create table kid (id int, parent int, code text, kind int, pad text) partition by hash (id);
            create table kid_0 partition of kid for values with (modulus 2, remainder 0);
            create table kid_1 partition of kid for values with (modulus 2, remainder 1)",
        looks_ahead: false,
        ..INSERT
    },
    Keyed {
        name: "INSERT that refers to partitions",
        tables: PARTITIONS,
        looks_ahead: false,
        ..INSERT
    },
    Keyed {
        name: "INSERT, switched off",
        command: "set forebay.writes = off; insert into kid select id, parent from new",
        looks_ahead: false,
        ..INSERT
    },
    Keyed {
        name: "UPDATE of the column that refers",
        constraint: KEY_AND_REFERENCE,
        command: "update kid set parent = (hashint4(id + 7) & 4095) + 1 where id between 3000 and 4000",
        ..INSERT
    },
    Keyed {
        name: "MERGE",
        constraint: KEY_AND_REFERENCE,
        command: "merge into kid using new on kid.id = new.id when not matched then insert values (new.id, new.parent)",
        since: 15,
        ..INSERT
    },
    COPY,
    Keyed {
        name: "COPY without a parent in the middle",
        command: "copy kid (id, parent, pad) from program 'sed s/^20650,[0-9]*/20650,-1/ new.copy' (format csv)",
        ..COPY
    },
    Keyed {
        name: "COPY with two columns, in another order than the index, nulls, and one that refers to the table itself",
        constraint: "alter table parent add unique (code, kind); alter table kid add primary key (id);
            alter table kid add foreign key (kind, code) references parent (kind, code);
            alter table kid add foreign key (parent) references kid",
        command: "copy kid from program 'cat full.copy'",
        ..COPY
    },
    Keyed {
        name: "COPY with two constraints that refer to the same table",
        constraint: "alter table parent add primary key (id);
            alter table kid add foreign key (parent) references parent, add foreign key (kind) references parent not valid",
        command: "copy kid from program 'cat two.copy'",
        ..COPY
    },
    Keyed {
        name: "COPY with triggers that change and drop rows, and one that copies rows",
        constraint: "alter table parent add primary key (id); alter table kid add foreign key (parent) references parent;
            create trigger each before insert on kid for each row execute function change();
            create trigger a after insert on kid for each row execute function copy_more()",
        ..COPY
    },
    Keyed {
        name: "COPY with a deferred constraint",
        constraint: "alter table parent add primary key (id);
            alter table kid add foreign key (parent) references parent deferrable initially deferred",
        looks_ahead: false,
        ..COPY
    },
    DELETE,
    Keyed {
        name: "DELETE that cascades twice, and raises notices",
        constraint: "alter table parent add primary key (id); create index on kid (parent);
            alter table kid add primary key (id), add foreign key (parent) references parent on delete cascade;
            create table other as select g as id, g as kid from generate_series(1, 5000, 3) g; create index on other (kid);
            alter table other add foreign key (kid) references kid on delete cascade;
            create trigger each after delete on kid for each row execute function report()",
        ..DELETE
    },
    Keyed {
        name: "DELETE with a trigger that drops the index meanwhile",
        constraint: "alter table parent add primary key (id); create index used on kid (parent);
            alter table kid add primary key (id), add foreign key (parent) references parent on delete cascade;
            create trigger each after delete on parent for each row execute function drop_used()",
        command: "delete from parent where id between 3000 and 3300",
        ..DELETE
    },
    Keyed {
        name: "DELETE that is refused in the middle",
        constraint: REFERS,
        command: "begin; delete from kid where parent between 3000 and 3600; delete from parent where id between 3000 and 4000",
        ..DELETE
    },
    Keyed {
        name: "DELETE of rows without others",
        constraint: "delete from kid where parent between 3000 and 4000;
            alter table parent add primary key (code); create index on kid (code);
            alter table kid add foreign key (code) references parent",
        ..DELETE
    },
    Keyed {
        name: "DELETE that sets nulls",
        constraint: "alter table parent add primary key (id); create index on kid (parent);
            alter table kid add foreign key (parent) references parent on delete set null",
        ..DELETE
    },
    Keyed {
        name: "DELETE that sets the default, which is missing",
        constraint: "alter table parent add primary key (id); create index on kid (parent); alter table kid alter parent set default 3500;
            alter table kid add foreign key (parent) references parent on delete set default",
        ..DELETE
    },
    Keyed {
        name: "DELETE in another order than the table's",
        command: "delete from parent using new where parent.id = new.parent",
        ..DELETE
    },
    Keyed {
        name: "DELETE without an index to look in",
        constraint: "alter table parent add primary key (id); create index on kid (parent) where id > 0; create index on kid using hash (parent);
            alter table kid add foreign key (parent) references parent on delete cascade",
        command: "delete from parent where id between 3000 and 3050",
        looks_ahead: false,
        ..DELETE
    },
    Keyed {
        name: "DELETE of partitions",
        tables: PARTITIONS,
        ..DELETE
    },
];

const FUNCTIONS: &str = "create function change() returns trigger language plpgsql as $$ begin
        if new.id % 10 = 0 then return null; end if;
        if new.id % 10 = 1 then new.parent = new.parent + 1; end if; return new; end $$;
    create function disturb() returns trigger language plpgsql as $$ begin
        if new.id = 20600 then delete from parent where id > 4096; delete from kid where id between 20700 and 20800; end if;
        return null; end $$;
    create function copy_more() returns trigger language plpgsql as $$ begin
        if new.id = 20600 then copy kid (id, parent, pad) from program 'cat more.copy' (format csv); end if; return null; end $$;
    create function drop_used() returns trigger language plpgsql as $$ begin
        if old.id = 3200 then drop index used; end if; return null; end $$;
    create function report() returns trigger language plpgsql as $$ begin
        if old.id % 100 = 0 then raise notice '%', old.id; end if; return null; end $$";
const DROP: &str = "drop table if exists parent, kid, other cascade; drop domain if exists long";

const SEEN: &[&str] = &[
    "select md5(string_agg(tableoid::regclass::text || ctid || parent::text, ',' order by tableoid, ctid)), count(*) from parent",
    "select md5(string_agg(tableoid::regclass::text || ctid || kid::text, ',' order by tableoid, ctid)), count(*) from kid",
    "select count(bt_index_check(i.oid, true)) from pg_class i join pg_am a on a.oid = i.relam
         where i.relname ~ '^(parent|kid|other)' and i.relkind = 'i' and amname = 'btree'",
];
const BLOCKS: &str = "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class
    where relname ~ '^(parent|kid)'";

fn checked(
    server: &Server,
    case: &Keyed,
    session: &mut Session,
) -> Result<(Vec<Vec<String>>, u64), String> {
    let setup = [DROP, case.tables, ROWS, case.constraint, "vacuum analyze parent, kid"];
    outcome(server, &setup, case.command, SEEN, session)
}

pub(crate) fn do_the_same(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "2MB")?;
    let mut owner = connect(&server, &[])?;
    for sql in [CODE, NEW, FUNCTIONS, "create extension amcheck"] {
        owner.rows(sql).map_err(text)?;
    }
    let major = case.installation.major;
    for keyed in CASES.iter().filter(|keyed| major >= keyed.since) {
        let stock = checked(&server, keyed, &mut connect(&server, &[])?)?;
        let ours = checked(&server, keyed, &mut connect(&server, PRELOADED)?)?;
        equal(keyed.name, &ours.0, &stock.0)?;
        let looks_ahead = keyed.looks_ahead && major <= keyed.until;
        if (ours.1 >= stock.1 + 50) != looks_ahead {
            return Err(format!(
                "{}: {} blocks prefetched, {} without",
                keyed.name, ours.1, stock.1
            ));
        }
    }
    for keyed in [&INSERT, &COPY, &DELETE] {
        wal::some_equal(|| counters(case, &server, keyed))?;
    }
    Ok(())
}

/// The accesses to blocks that a command counts are those of stock, and so are the records that it writes to the log.
fn counters(case: &Case, server: &Server, keyed: &Keyed) -> Result<(), String> {
    let [stock, ours] = [&[][..], PRELOADED].map(|settings| {
        let mut session = connect(server, settings)?;
        checked(server, &Keyed { command: "select", ..*keyed }, &mut session)?;
        must(&mut connect(server, &[])?, "checkpoint")?;
        let begin = wal::end(server)?;
        must(&mut session, &format!("begin; {}", keyed.command))?;
        let records = wal::records(case, server, &begin, "^(parent|kid)")?;
        let blocks = must(&mut session, BLOCKS)?;
        must(&mut session, "rollback")?;
        Ok::<_, String>((blocks, records))
    });
    let (stock, ours) = (stock?, ours?);
    equal(keyed.name, &ours.0, &stock.0)?;
    wal::same(keyed.name, &ours.1, &stock.1)
}
