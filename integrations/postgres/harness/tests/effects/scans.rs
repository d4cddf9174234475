//! Scans with look-ahead: the same rows in the same order, the same counters.

use std::ops::Range;

use forebay_postgres_harness::suite::{Case, equal, must, text};
use forebay_postgres_harness::{Disk, Server};

use crate::{PRELOADED, connect, serve_on, serve_with};

/// Tables with more pages than there are buffers, and statements that scan them.
struct Scans {
    /// All tables have names that begin so, as a regular expression.
    tables: &'static str,
    creation: &'static [&'static str],
    plan: &'static str,
    /// Statements, and whether blocks are prefetched for them.
    statements: &'static [(&'static str, bool)],
}

/// Hash, GiST and SP-GiST indexes of rows anywhere.
const OTHER_INDEXES: Scans = Scans {
    tables: "places|frames|shifts|spots",
    creation: &[
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
        "create table spots as select id, at, case when id % 50 = 0 then null else at end as maybe, md5(id::text) as name, pad from places",
        "create index on spots using spgist (at)",
        "create index on spots using spgist (maybe)",
        "create index on spots using spgist (name)",
        "vacuum analyze places, shifts, spots",
    ],
    plan: "set enable_bitmapscan = off; set enable_seqscan = off",
    statements: &[
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
        (
            "select p.id, (select s.id from places s where s.kind = p.kind and s.id > p.id limit 1) from places p where p.id < 40",
            false,
        ),
        ("select id from places order by at <-> point(200, 200) limit 700", true),
        ("select span from places where span <@ int4range(10, 30)", false),
        ("select id, at from spots where at <@ box(point(100, 100), point(600, 500))", true),
        ("select id from spots where name between '3' and '8'", true),
        ("select id, maybe from spots order by maybe <-> point(500, 500)", true),
        ("select id from spots order by at <-> point(300, 800) limit 1500", true),
        (
            "declare e cursor for select id from spots order by at <-> point(9, 9); fetch 900 from e; fetch 50 from e; close e",
            true,
        ),
        ("select id, around from frames join spots on at <@ around", true),
        ("select name from spots where name < '2'", false),
        ("update places set pad = 'q' where at <@ box(point(0, 0), point(300, 500))", true),
        ("delete from places where kind = 5", true),
        (
            "insert into shifts select int4range(g * 10 + 6, g * 10 + 8) from generate_series(1, 300) g",
            false,
        ),
        (
            "insert into shifts select int4range(g * 10 + 5, g * 10 + 9) from generate_series(900, 1000) g",
            false,
        ),
    ],
};

/// Nested loops whose inner side is partitioned, by hash or by ranges that are partitioned by a list again.
const PARTITIONS: Scans = Scans {
    tables: "parts|ranges|wants",
    creation: &[
        "create table parts (id int, other int, pad text) partition by hash (id)",
        "create table parts_0 partition of parts for values with (modulus 4, remainder 0)",
        "create table parts_1 partition of parts for values with (modulus 4, remainder 1)",
        "create table parts_2 partition of parts for values with (modulus 4, remainder 2)",
        "create table parts_3 partition of parts for values with (modulus 4, remainder 3)",
        "insert into parts select g, g, repeat('p', 400) from generate_series(1, 8000) g order by hashint4(g)",
        "create index on parts (id) include (pad)",
        "create index on parts (other)",
        "create table ranges (at int, kind int, pad text) partition by range (at)",
        "create table ranges_1 partition of ranges for values from (0) to (2000)",
        "create table ranges_2 partition of ranges for values from (2000) to (6000) partition by list (kind)",
        "create table ranges_2_0 partition of ranges_2 for values in (0, null)",
        "create table ranges_2_1 partition of ranges_2 default",
        "create table ranges_3 partition of ranges default",
        "insert into ranges select g, g % 3, repeat('r', 400) from generate_series(1, 8000) g order by hashint4(g)",
        "create index on ranges (at)",
        "create table wants (id int primary key, item int, kind int, pad text)",
        "insert into wants select g, (hashint4(g) & 8191) + 1, nullif(g % 4, 3), repeat('w', 100) from generate_series(1, 1500) g",
        "vacuum analyze parts, ranges, wants",
    ],
    plan: "set enable_bitmapscan = off; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off;
        set enable_material = off",
    statements: &[
        ("select w.id, p.pad from wants w join parts p on p.id = w.item order by w.id", true),
        ("select w.id, p.pad from wants w left join parts p on p.id = w.item and p.id > 3000 order by w.id", true),
        ("select w.id, p.pad from wants w join parts p on p.other = w.item order by w.id", true),
        ("select w.id from wants w where exists (select from parts p where p.id = w.item and p.pad > '') order by w.id", true),
        // The scan of one partition decides whether the next is scanned.
        (
            "select w.id from wants w where exists (select from parts p where p.other = w.item and p.pad > '') order by w.id",
            false,
        ),
        ("select w.id, r.pad from wants w join ranges r on r.at = w.item order by w.id", true),
        (
            "select w.id, r.pad from wants w join ranges r on r.at = w.item and r.kind = w.kind order by w.id",
            true,
        ),
        (
            "set enable_memoize = on; select w.id, p.pad from wants w join parts p on p.id = w.kind + 5 order by w.id",
            false,
        ),
        (
            "select w.id, p.pad, r.pad from wants w join parts p on p.id = w.item left join ranges r on r.at = p.id order by w.id",
            true,
        ),
        (
            "declare c scroll cursor for select w.id, p.pad from wants w join parts p on p.id = w.item order by w.id;
             fetch 700 from c; fetch backward 300 from c; fetch all from c; fetch backward all from c",
            true,
        ),
        (
            "select w.id, (select sum(length(p.pad)) from wants v join parts p on p.id = v.item where v.id between w.id and w.id + 300)
             from wants w where w.id % 400 = 7 order by w.id",
            true,
        ),
        ("update wants w set pad = p.pad from parts p where p.id = w.item and w.id < 1200", true),
    ],
};

/// Values in a TOAST table: of one chunk or of many, compressed or not, shared with an older version of their row, or none.
const VALUES: Scans = Scans {
    tables: "docs|reads|pg_toast_[0-9]{5}",
    creation: &[
        "create table docs (id int, grp int, body text, note text, state int) with (fillfactor = 80)",
        "alter table docs alter body set storage external",
        "insert into docs select g, h & 31, case when h & 7 > 0 then repeat(md5(g::text), 50 + (h & 63) * ((h >> 6) & 7 / 7)) end,
             case when h & 3 = 0 then (select string_agg(md5(n::text || g), '') from generate_series(1, 200) n) else 'short' end, 0
         from (select g, hashint4(g) as h from generate_series(1, 2500) g) s order by h",
        "update docs set state = 1 where id % 5 = 0",
        "create index docs_id on docs (id)",
        "create index docs_grp on docs (grp)",
        "update docs set state = 2 where id % 7 = 0",
        "create table reads (id int primary key, doc int)",
        "insert into reads select g, (hashint4(g) & 2047) + 1 from generate_series(1, 900) g",
        "vacuum analyze docs, reads",
        "checkpoint",
    ],
    plan: "set enable_bitmapscan = off; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off;
        set enable_material = off; set enable_memoize = off",
    statements: &[
        ("select sum(length(body)) from docs where grp between 3 and 9", true),
        ("select id, body from docs where grp between 10 and 14", true),
        ("select id, md5(body), md5(note) from docs where grp in (20, 22, 25)", true),
        ("select id, length(body), length(note) from docs where grp < 4 order by grp desc", true),
        ("select r.id, d.body from reads r join docs d on d.id = r.doc order by r.id", true),
        // The chunks of one value.
        ("select r.id, (select length(d.body) from docs d where d.id = r.doc) from reads r where r.id < 300 order by r.id", true),
        ("select id from docs where grp between 5 and 8 and body > '8'", true),
        ("select id, substr(body, 1, 10) from docs where grp between 5 and 6", true),
        ("select body from docs where grp between 15 and 18 order by md5(body)", true),
        (
            "declare c scroll cursor for select id, body from docs where grp > 25 order by grp; fetch 50 from c; fetch backward 20 from c;
             fetch all from c; fetch backward all from c",
            true,
        ),
        ("select id from docs where grp between 10 and 14 and 1 / (length(body) - 1632) > 0", true),
        ("update docs set note = body where grp = 30", true),
        ("delete from docs where body like '%a' and grp between 1 and 5", true),
    ],
};

/// Whether more than a few blocks of TOAST tables were prefetched in the session; whether more than a few in vain.
const VALUES_PREFETCHED: &str =
    "select coalesce(sum(prefetched), 0) > 20, coalesce(sum(wasted), 0) > 60
     from forebay_stat_indexes where indexrelname ~ '^pg_toast'";

pub(crate) fn of_values(case: &Case) -> Result<(), String> {
    let server = VALUES.do_the_same(case)?;
    for (query, prefetched) in [
        ("select sum(length(body)) from docs where grp between 3 and 9", "t|f"),
        ("select sum(length(d.body)) from reads r join docs d on d.id = r.doc", "t|f"),
        ("select sum(length(substr(body, 1, 10))) from docs where grp between 3 and 9", "f|f"),
        ("select sum(length(body)) from docs where grp >= 0 and id % 8 = 3", "t|f"),
        ("select count(body) from docs where grp between 3 and 9 and id > 0", "f|f"),
    ] {
        let mut session = connect(&server, PRELOADED)?;
        must(&mut session, VALUES.plan)?;
        must(&mut session, query)?;
        equal(query, must(&mut session, VALUES_PREFETCHED)?, vec![prefetched.to_owned()])?;
    }
    Ok(())
}

pub(crate) fn of_other_indexes(case: &Case) -> Result<(), String> {
    OTHER_INDEXES.do_the_same(case).map(drop)
}

pub(crate) fn of_partitions(case: &Case) -> Result<(), String> {
    let server = PARTITIONS.do_the_same(case)?;
    let mut session = connect(&server, PRELOADED)?;
    must(&mut session, PARTITIONS.plan)?;
    must(
        &mut session,
        "select count(p.pad) from wants w join parts p on p.id = w.item where w.id <= 250",
    )?;
    // One leaf for each row, not one in each partition.
    let leaves = "select sum(prefetched) > 100, sum(prefetched) <= sum(rows) from forebay_stat_indexes where indexrelname ~ '^parts'";
    equal("partitions that a row needs", must(&mut session, leaves)?, vec!["t|t".to_owned()])
}

/// Some 200 rows a page, nearly in the order of the keys that they are looked up by: looking at each takes longer than the
/// read of their page.
const DENSE: &[&str] = &[
    "create table numbers as select g as id from generate_series(1, 200000) g",
    "create table dense as select id, id as value from numbers order by id + (hashint4(id) & 8191)",
    "create unique index dense_id on dense (id)",
    "vacuum analyze numbers, dense",
];
const DENSE_JOIN: &str = "select count(value) from numbers join dense using (id)";

pub(crate) fn pause_when_dear(case: &Case) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "1MB")?;
    let mut owner = connect(&server, &[])?;
    let quick = server.quick_reads().map_err(text)?;
    for sql in DENSE {
        must(&mut owner, sql)?;
    }
    drop(quick);
    let count = server.hint_count().map_err(text)?;
    let mut all = Vec::new();
    // Other load may make the pause look dear instead.
    for _ in 0..5 {
        let mut session = connect(&server, PRELOADED)?;
        must(
            &mut session,
            "set enable_seqscan = on; set enable_hashjoin = off; set enable_mergejoin = off",
        )?;
        let (hints, reads) = (count.now().map_err(text)?, count.reads().map_err(text)?);
        equal(DENSE_JOIN, must(&mut session, DENSE_JOIN)?, vec!["200000".to_owned()])?;
        let hints = count.now().map_err(text)? - hints;
        all.push((hints, count.reads().map_err(text)? - reads));
        // Without a pause it is 150.
        if (40..120).contains(&hints) {
            return Ok(());
        }
    }
    Err(format!("prefetched and read: {all:?}"))
}

/// The blocks that a scan of all rows reads, in about the order of the index. Look-ahead pauses for a turn of the trial.
const NEARLY_SORTED: &[&str] = &[
    "create table nearly (id int, pad text) with (fillfactor = 50)",
    "alter table nearly alter pad set storage plain",
    "insert into nearly select g, repeat('x', 3500) from generate_series(1, 6000) g order by g + (hashint4(g) & 63)",
    "create index nearly_id on nearly (id)",
    "vacuum analyze nearly",
];

pub(crate) fn try_to_pause_when_dense(case: &Case) -> Result<(), String> {
    // Of 6,000 blocks. Without a pause it is 5,900, with one 5,600.
    let scan = "set enable_seqscan = off; select count(pad) from nearly where id > 0";
    try_to_pause(case, NEARLY_SORTED, scan, 5000..5750)
}

/// Two of five blocks, in their order: half would be too many.
const SPARSE: &[&str] = &[
    "create table nearly_sparse (id int, pad text) with (fillfactor = 50)",
    "alter table nearly_sparse alter pad set storage plain",
    "insert into nearly_sparse select g, repeat('x', 3500) from generate_series(1, 10000) g",
    "create index nearly_sparse_id on nearly_sparse (id) where id % 5 < 2",
    "vacuum analyze nearly_sparse",
];

pub(crate) fn try_to_pause_where_blocks_ascend(case: &Case) -> Result<(), String> {
    // Of 4,000 blocks. Without a pause it is 3,990, with one 3,840.
    let scan = "set enable_seqscan = off; select count(pad) from nearly_sparse where id % 5 < 2 and id > 0";
    try_to_pause(case, SPARSE, scan, 3000..3950)
}

/// While it pauses, some of the blocks that `scan` needs are not prefetched: `expected` are.
fn try_to_pause(
    case: &Case,
    creation: &[&str],
    scan: &str,
    expected: Range<u64>,
) -> Result<(), String> {
    let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "1MB")?;
    let quick = server.quick_reads().map_err(text)?;
    let mut owner = connect(&server, &[])?;
    for sql in creation {
        must(&mut owner, sql)?;
    }
    drop((owner, quick));
    let mut all = Vec::new();
    // Other load may make the pause look dear before it ends.
    for _ in 0..5 {
        let counts @ [_, needed, _] = prefetched_by(&server, scan)?;
        if expected.contains(&needed) {
            return Ok(());
        }
        all.push(counts);
    }
    Err(format!("prefetched, needed of these, and read: {all:?}"))
}

/// Blocks that were prefetched for the session's scans of these tables, without those in gaps.
const HEAP_PREFETCHED: &str = "select coalesce(sum(prefetched), 0) from forebay_stat_indexes
     where indexrelname ~ '^(orders|nearly)'";

/// The blocks that `sql` has prefetched, the part of them that its scans need, and the blocks that it has read.
fn prefetched_by(server: &Server, sql: &str) -> Result<[u64; 3], String> {
    let count = server.hint_count().map_err(text)?;
    let mut session = connect(server, PRELOADED)?;
    must(&mut session, "set enable_seqscan = on")?;
    let (hints, reads) = (count.now().map_err(text)?, count.reads().map_err(text)?);
    must(&mut session, sql)?;
    let hints = count.now().map_err(text)? - hints;
    let reads = count.reads().map_err(text)? - reads;
    let needed = must(&mut session, HEAP_PREFETCHED)?.join("").parse();
    Ok([hints, needed.map_err(|error| format!("{sql}: {error}"))?, reads])
}

/// The scans read two of three blocks. The third is prefetched with them, unless the query may stop early.
pub(crate) fn read_through_gaps(case: &Case) -> Result<(), String> {
    // So slow that look-ahead goes far, however busy the machine is: only blocks of one batch are merged.
    let disk = Disk::Steady(2000);
    let server = serve_on(disk, case, case.extension.as_ref().ok_or("no extension")?, "1MB")?;
    let quick = server.quick_reads().map_err(text)?;
    let mut owner = connect(&server, &[])?;
    for sql in [
        "create index orders_some on orders (id) where id % 3 > 0",
        "create table wanted as select g as id from generate_series(1, 900) g where g % 3 > 0",
        "vacuum analyze orders, wanted",
    ] {
        must(&mut owner, sql)?;
    }
    drop((owner, quick));
    // How many blocks are due at once, and so have gaps between them, depends on the time in a join, and less in a scan.
    for (rows, has_gaps) in [
        ("select pad from orders where id % 3 > 0 and id > 0 order by id", true),
        ("select pad from wanted join orders using (id)", false),
    ] {
        let whole = format!("select count(pad) from ({rows}) as found");
        let some = format!("begin; declare c cursor for {rows}; move 500 in c; commit");
        for (query, stops) in [(&whole, false), (&some, true)] {
            let [hints, needed, reads] = prefetched_by(&server, query)?;
            // At least 500 rows, of a block each.
            if reads < 500
                || !(350..=620).contains(&needed)
                || hints < needed
                || (hints > needed && stops)
                || (hints == needed && has_gaps && !stops)
            {
                return Err(format!(
                    "{query}: {hints} prefetched, {needed} of them needed, {reads} read"
                ));
            }
        }
    }
    Ok(())
}

const ITEMS_PREFETCHED: &str =
    "select coalesce(sum(prefetched), 0) from forebay_stat_indexes where indexrelname = 'items_id'";

/// A scan after many that have read nothing is not timed until it has read.
pub(crate) fn wake(case: &Case) -> Result<(), String> {
    let extension = case.extension.as_ref().ok_or("no extension")?;
    let server = serve_on(Disk::Steady(2000), case, extension, "1MB")?;
    let mut session = connect(&server, PRELOADED)?;
    for sql in [
        "set plan_cache_mode = force_generic_plan",
        "prepare p as select count(note) from items where id < 2000",
        // Plans it, which reads catalogs.
        "execute p",
    ] {
        must(&mut session, sql)?;
    }
    let before: u64 = must(&mut session, ITEMS_PREFETCHED)?.join("").parse().map_err(text)?;
    for _ in 0..40 {
        must(&mut session, "select count(pad) from orders where id between 1 and 2")?;
    }
    must(&mut session, "execute p")?;
    let after: u64 = must(&mut session, ITEMS_PREFETCHED)?.join("").parse().map_err(text)?;
    // Of 400 blocks. Some are still in memory.
    if before < 200 || after - before < 200 {
        return Err(format!("{before} prefetched, and {after} after the second scan"));
    }
    Ok(())
}

/// A block for each row that is read, from memory at first: a plain scan, a join, and a scan of another kind of index.
const CACHED: &[&str] = &[
    "create table cached (id int, at point, pad text) with (fillfactor = 50)",
    "alter table cached alter pad set storage plain",
    "insert into cached select g, point(g, g), repeat('x', 3500) from generate_series(1, 2000) g order by hashint4(g)",
    "create index cached_id on cached (id)",
    "create index cached_at on cached using gist (at)",
    "create table turns as select (hashint4(g) & 1023) + 1 as id from generate_series(1, 12000) g",
    "vacuum analyze cached, turns",
    "set enable_seqscan = on; set enable_hashjoin = off; set enable_mergejoin = off; set enable_bitmapscan = off",
    "set enable_material = off; set enable_memoize = off; set enable_sort = off",
];
const CACHED_SCANS: [&str; 3] = [
    "select c.pad from generate_series(1, 6) g,
        lateral (select pad from cached where id > g order by id offset 0) c",
    "select c.pad from turns t join cached c using (id)",
    "select c.pad from generate_series(1, 6) g,
        lateral (select pad from cached where at <@ box(point(g, g), point(3000, 3000)) offset 0) c",
];

/// While reads do not wait, most rows of a scan are not observed; when they wait, it looks ahead again.
pub(crate) fn rest_while_reads_are_quick(case: &Case) -> Result<(), String> {
    let extension = case.extension.as_ref().ok_or("no extension")?.counted();
    let server = serve_on(Disk::Steady(2000), case, &extension, "1MB")?;
    let quick = server.quick_reads().map_err(text)?;
    let mut session = connect(&server, PRELOADED)?;
    for sql in CACHED {
        must(&mut session, sql)?;
    }
    drop(quick);
    let count = server.hint_count().map_err(text)?;
    for (scan, counted) in CACHED_SCANS.into_iter().zip([true, false, false]) {
        let mut all = Vec::new();
        // Other load may make quick reads look slow, or look-ahead dear.
        let passes = (0..5).try_fold(false, |passes, _| {
            if passes {
                return Ok(true);
            }
            let quick = server.quick_reads().map_err(text)?;
            must(
                &mut session,
                &format!("begin; declare c no scroll cursor for {scan}; move 500 in c"),
            )?;
            let (work, reads) = (count.work().map_err(text)?, count.reads().map_err(text)?);
            must(&mut session, "move 10000 in c")?;
            let work = count.work().map_err(text)? - work;
            let reads = count.reads().map_err(text)? - reads;
            drop(quick);
            let hints = count.now().map_err(text)?;
            must(&mut session, "move 500 in c; commit")?;
            let hints = count.now().map_err(text)? - hints;
            all.push((work, reads, hints));
            // Observing all rows takes 500,000 basic blocks. It is 64,000.
            Ok::<_, String>(reads > 8000 && hints > 200 && (work < 250_000 || !counted))
        })?;
        if !passes {
            return Err(format!("{scan}: work, reads, and hints when reads waited: {all:?}"));
        }
    }
    Ok(())
}

/// All rows are visible, so that an index-only scan reads nothing of the heap but its visibility map, and waits for that.
const VISIBLE: &[&str] = &[
    "create table visible as select g as id from generate_series(1, 200000) g order by hashint4(g)",
    "create index visible_id on visible (id)",
    "vacuum analyze visible",
];
/// Without a condition, for which the planner would read the map first.
const VISIBLE_SCAN: &str = "select count(*) from visible";

/// Counted in basic blocks: a few for each row, as long as no row is looked ahead to.
pub(crate) fn leave_visible_rows(case: &Case) -> Result<(), String> {
    let extension = case.extension.as_ref().ok_or("no extension")?.counted();
    let mut server = serve_with(case, &extension, "1MB")?;
    let mut owner = connect(&server, &[])?;
    let quick = server.quick_reads().map_err(text)?;
    for sql in VISIBLE {
        must(&mut owner, sql)?;
    }
    drop((owner, quick));
    // Its shared buffers are empty then.
    server.stop().map_err(text)?;
    server.start(&[]).map_err(text)?;
    let count = server.hint_count().map_err(text)?;
    let mut session = connect(&server, PRELOADED)?;
    let (work, reads) = (count.work().map_err(text)?, count.reads().map_err(text)?);
    equal(VISIBLE_SCAN, must(&mut session, VISIBLE_SCAN)?, vec!["200000".to_owned()])?;
    let work = count.work().map_err(text)? - work;
    let reads = count.reads().map_err(text)? - reads;
    if reads < 500 || !(200_000..10 * 200_000).contains(&work) {
        return Err(format!("{work} steps for 200,000 rows, {reads} blocks read"));
    }
    Ok(())
}

impl Scans {
    /// Compares all statements; returns the server.
    fn do_the_same(&self, case: &Case) -> Result<Server, String> {
        let server = serve_with(case, case.extension.as_ref().ok_or("no extension")?, "1MB")?;
        let mut owner = connect(&server, &[])?;
        for sql in self.creation {
            must(&mut owner, sql)?;
        }
        let count = server.hint_count().map_err(text)?;
        let run = |statement: &str, settings| {
            let mut session = connect(&server, settings)?;
            must(&mut session, self.plan)?;
            let before = count.now().map_err(text)?;
            must(&mut session, "begin")?;
            let outcome = session.run(statement);
            let hints = count.now().map_err(text)? - before;
            let blocks = format!(
                "select sum(pg_stat_get_xact_blocks_fetched(oid)) from pg_class where relname ~ '^({})'",
                self.tables
            );
            let blocks =
                outcome.error.is_none().then(|| must(&mut session, &blocks)).transpose()?;
            must(&mut session, "rollback")?;
            Ok::<_, String>((outcome, blocks, hints))
        };
        for (statement, looks_ahead) in self.statements {
            let stock = run(statement, &[])?;
            let ours = run(statement, PRELOADED)?;
            ours.0
                .same(&stock.0, true)
                .map_err(|difference| format!("{statement}: {difference}"))?;
            // Writes leave traces, even if they are rolled back.
            if !statement.starts_with("update")
                && !statement.starts_with("delete")
                && !statement.starts_with("insert")
            {
                equal(statement, &ours.1, &stock.1)?;
            }
            // The server looks ahead of bitmap and sequential scans itself.
            if (ours.2 >= stock.2 + 20) != *looks_ahead {
                return Err(format!(
                    "{statement}: {} blocks prefetched, {} without",
                    ours.2, stock.2
                ));
            }
        }
        Ok(server)
    }
}
