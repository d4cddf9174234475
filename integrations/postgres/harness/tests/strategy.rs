//! What readahead strategies advise the kernel, when they take it back, and what the trace shows.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use forebay_postgres_harness::suite::{self, Case, Test, equal, must, text};
use forebay_postgres_harness::{Disk, HintCount, Server, Session};

const TESTS: &[Test] = &[
    ("each_access_is_advised_as_the_strategy_says", each_access_is_advised),
    ("advice_ends_with_the_setting_the_query_or_its_error", advice_ends),
    ("advice_is_what_all_readers_of_a_file_agree_on", readers_agree),
    ("adaptive_tries_the_hint_where_reads_wait", adaptive_tries),
    ("a_subplan_of_each_partition_is_watched_once", a_shared_subplan),
    ("more_files_than_descriptors_are_survived", more_files_than_descriptors),
    ("the_trace_distinguishes_sequential_reads_from_random_ones", the_trace_distinguishes),
    ("the_trace_ends_with_its_setting_its_user_and_discard_all", the_trace_ends),
    ("what_a_user_may_not_select_is_in_no_view", what_a_user_may_not_select),
];

/// An index whose order is not the heap's; the heap is many times as large as shared buffers.
const TABLE: &str = "create table rows (id int, key int, note text);
    insert into rows select g, hashint4(g), repeat('x', 200) from generate_series(1, 40000) g;
    create index rows_key on rows (key)";
const SEQUENTIAL: &str = "select count(note) from rows";
const INDEX: &str = "select count(note) from rows where key > 2000000000";
const BY_INDEX: &str = "set enable_seqscan = off; set enable_bitmapscan = off";
const BY_BITMAP: &str = "set enable_seqscan = off; set enable_indexscan = off";

fn main() -> ExitCode {
    suite::run("strategy", Path::new(env!("CARGO_TARGET_TMPDIR")), TESTS)
}

/// A server, a session of it with the extension, and the advice to the kernel.
struct Bench {
    server: Server,
    session: Session,
    count: HintCount,
}

/// Times that a file was said to be read as any (or advice taken back), at random, sequentially.
type Advice = [u64; 3];

impl Bench {
    fn new(case: &Case) -> Result<Bench, String> {
        let extension = case.extension.as_ref().ok_or("the extension has no Makefile")?;
        let settings = [("shared_buffers", "1MB"), ("session_preload_libraries", "forebay")];
        let server = Server::new(&case.installation, Some(extension), Disk::Slow(60), &settings);
        let server = server.map_err(text)?;
        let count = server.hint_count().map_err(text)?;
        let session = server.connect("postgres", &[]).map_err(text)?;
        let mut bench = Bench { server, session, count };
        bench.must(TABLE)?;
        bench.must("vacuum analyze rows; create extension forebay")?;
        bench.must("set max_parallel_workers_per_gather = 0")?;
        Ok(bench)
    }

    fn must(&mut self, sql: &str) -> Result<Vec<String>, String> {
        must(&mut self.session, sql)
    }

    /// The advice that `sql` gives the kernel.
    fn advice(&mut self, sql: &str) -> Result<Advice, String> {
        let before = self.count.advice().map_err(text)?;
        self.must(sql)?;
        self.since(before)
    }

    fn since(&mut self, before: Advice) -> Result<Advice, String> {
        // An error is sent before the server cleans up after it.
        self.must("select 1")?;
        let after = self.count.advice().map_err(text)?;
        Ok(std::array::from_fn(|at| after[at] - before[at]))
    }
}

fn each_access_is_advised(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    for (strategy, sequential, random) in
        [("os", [0; 3], [0; 3]), ("hint", [1, 0, 1], [2, 2, 0]), ("max", [1, 0, 1], [2, 0, 2])]
    {
        bench.must(&format!("set forebay.readahead_strategy = {strategy}"))?;
        equal(strategy, bench.advice(SEQUENTIAL)?, sequential)?;
        for plan in [BY_INDEX, BY_BITMAP] {
            bench.must(plan)?;
            equal(&format!("{strategy}, {plan}"), bench.advice(INDEX)?, random)?;
            bench.must("reset enable_seqscan; reset enable_bitmapscan; reset enable_indexscan")?;
        }
        equal(strategy, bench.advice("select count(*) from pg_class")?, [0; 3])?;
        let [_, random, sequential] = bench.advice("vacuum rows")?;
        // The heap, its index, its TOAST table and that one's index.
        equal("vacuum", (random, sequential), (0, if strategy == "os" { 0 } else { 4 }))?;
    }
    bench.must("set forebay.enabled = off")?;
    equal("off", bench.advice(SEQUENTIAL)?, [0; 3])
}

fn advice_ends(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("begin; set local forebay.readahead_strategy = hint")?;
    let cursor = "declare c cursor for select * from rows; fetch 1 from c";
    equal("a cursor", bench.advice(cursor)?, [0, 0, 1])?;
    equal("its transaction ends", bench.advice("commit")?, [1, 0, 0])?;
    bench.must("begin; savepoint a; set local forebay.readahead_strategy = max")?;
    bench.must("savepoint b")?;
    bench.must(cursor)?;
    equal("the setting is rolled back", bench.advice("rollback to a")?, [1, 0, 0])?;
    bench.must("commit; set forebay.readahead_strategy = hint")?;

    bench.must("begin")?;
    bench.must(cursor)?;
    equal("set to os", bench.advice("set forebay.readahead_strategy = os")?, [1, 0, 0])?;
    equal("set to hint", bench.advice("set forebay.readahead_strategy = hint")?, [0, 0, 1])?;
    equal("closed", bench.advice("close c; commit")?, [1, 0, 0])?;

    let before = bench.count.advice().map_err(text)?;
    let failed = bench.session.run("select 1 / (id - 20000) from rows");
    equal("an error", failed.code(), Some("22012"))?;
    equal("an error", bench.since(before)?, [1, 0, 1])?;
    let sql = "select count(*) from rows a, rows b where a.note <> b.note";
    let before = bench.count.advice().map_err(text)?;
    let failed = bench.session.run_cancelled(sql, Duration::from_secs(2));
    equal("cancelled", failed.code(), Some("57014"))?;
    let [normal, _, sequential] = bench.since(before)?;
    equal("cancelled", (normal, sequential), (1, 2))?;
    let failed = bench.session.run("begin; vacuum rows");
    equal("no vacuum here", failed.code(), Some("25001"))?;
    bench.must("rollback; begin")?;
    bench.must(cursor)?;
    bench.must("truncate nothing_of_it").unwrap_err();
    bench.must("rollback")?;
    // Caught within a function.
    let caught = "do $$ begin
            begin perform 1 / (id - 20000) from rows; exception when others then null; end;
        end $$";
    let before = bench.count.advice().map_err(text)?;
    bench.session.rows(caught).map_err(text)?;
    equal("an error that is caught", bench.since(before)?, [1, 0, 1])
}

fn readers_agree(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("set forebay.readahead_strategy = hint; begin")?;
    equal("a scan", bench.advice("declare a cursor for select * from rows")?, [0, 0, 1])?;
    bench.must(BY_INDEX)?;
    let other = "declare b cursor for select note from rows where key > 2000000000";
    equal("and an index scan", bench.advice(other)?, [1, 1, 0])?;
    equal("the scan ends", bench.advice("close a")?, [0, 1, 0])?;
    equal("both have ended", bench.advice("close b")?, [2, 0, 0])?;
    // New storage within the transaction, and removed at its end.
    bench.must("truncate rows; insert into rows select g, g, 'y' from generate_series(1, 9) g")?;
    bench.must(SEQUENTIAL)?;
    bench.must("rollback")?;
    equal("as before", bench.must(SEQUENTIAL)?, vec!["40000".to_owned()])?;
    bench.must("begin; declare a cursor for select * from rows; fetch 1 from a; close a")?;
    bench.must("drop table rows; commit")?;
    bench.must("create temp table own as select g from generate_series(1, 9999) g")?;
    equal("a temporary table", bench.advice("select count(g) from own")?, [1, 0, 1])
}

fn adaptive_tries(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must(BY_INDEX)?;
    bench.must("set forebay.readahead_strategy = adaptive; set effective_io_concurrency = 0")?;
    let query = "select count(note) from rows where key > 0";
    let [normal, random, sequential] = bench.advice(query)?;
    if random == 0 || normal < random || sequential != 0 {
        return Err(format!("random {random}, taken back {normal}, sequential {sequential}"));
    }
    Ok(())
}

/// Each partition computes the target list, and has the subplan in it.
fn a_shared_subplan(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("create table parts (id int) partition by range (id)")?;
    bench.must("create table parts0 partition of parts for values from (0) to (20)")?;
    bench.must("create table parts1 partition of parts for values from (20) to (40)")?;
    bench.must("insert into parts select generate_series(0, 39); analyze parts")?;
    bench.must(BY_INDEX)?;
    bench.must("set forebay.readahead_strategy = adaptive")?;
    let query = "select id, array(select note from rows where key = hashint4(parts.id)) \
                 from parts order by id";
    let plan = bench.must(&format!("explain {query}"))?.join("\n");
    equal(&plan, plan.matches("SubPlan").count(), 1)?;
    equal("an append", plan.contains("Append"), true)?;
    equal("rows", bench.must(query)?.len(), 40)?;
    let scans = "select scans from forebay_stat_indexes where indexrelname = 'rows_key'";
    equal("scans", bench.must(scans)?, vec!["40".to_owned()])
}

fn more_files_than_descriptors(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("create table many (id int primary key) partition by range (id)")?;
    for at in 0..150 {
        let (from, to) = (at * 10, at * 10 + 10);
        bench.must(&format!(
            "create table many{at} partition of many for values from ({from}) to ({to})"
        ))?;
    }
    bench.must("insert into many select generate_series(0, 1499)")?;
    bench.server.stop().map_err(text)?;
    let settings = [("max_files_per_process", "64"), ("session_preload_libraries", "forebay")];
    bench.server.start(&settings).map_err(text)?;
    bench.session = bench.server.connect("postgres", &[]).map_err(text)?;
    for strategy in ["hint", "max", "adaptive"] {
        bench.must(&format!("set forebay.readahead_strategy = {strategy}"))?;
        equal(strategy, bench.must("select sum(id) from many")?, vec!["1124250".to_owned()])?;
        bench.must("vacuum many")?;
    }
    Ok(())
}

fn the_trace_distinguishes(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("set synchronize_seqscans = off; set forebay.trace = on")?;
    bench.must(SEQUENTIAL)?;
    let kinds = "select access || kind from forebay_trace('rows') group by 1";
    equal("a sequential scan", bench.must(kinds)?, vec!["sequentialS".to_owned()])?;
    let blocks =
        "select sum(blocks) > 1000 from forebay_trace_summary where relation = 'rows'::regclass";
    equal("its blocks", bench.must(blocks)?, vec!["t".to_owned()])?;
    bench.must("set forebay.trace = off; set forebay.trace = on")?;
    bench.must(BY_INDEX)?;
    bench.must(INDEX)?;
    let random =
        "select random > 100 and sequential < random / 10 and length(trace) = random + sequential
        from forebay_trace_summary where relation = 'rows'::regclass and access = 'index'";
    equal("an index scan", bench.must(random)?, vec!["t".to_owned()])
}

fn the_trace_ends(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("create role ordinary; grant select on rows to ordinary")?;
    // The rows of the trace itself are a read of nothing.
    let is_traced = "select count(*) > 0 from forebay_trace('rows')";
    for (ends, back) in [
        ("set forebay.trace = off", ""),
        ("begin; set local forebay.trace = off; rollback", ""),
        ("reset forebay.trace", ""),
        ("discard all", ""),
        ("set session authorization ordinary", "reset session authorization"),
        ("set role ordinary", "reset role"),
        ("begin; set local role ordinary", "rollback"),
    ] {
        bench.must("set forebay.trace = on")?;
        bench.must(SEQUENTIAL)?;
        equal("before", bench.must(is_traced)?, vec!["t".to_owned()])?;
        bench.must(ends)?;
        equal(ends, bench.must(is_traced)?, vec!["f".to_owned()])?;
        bench.must(back)?;
        equal(back, bench.must(is_traced)?, vec!["f".to_owned()])?;
    }
    // Where it is on by default, nothing is set by this.
    bench.must("alter role postgres set forebay.trace = on")?;
    bench.session = bench.server.connect("postgres", &[]).map_err(text)?;
    bench.must(SEQUENTIAL)?;
    equal("by default", bench.must(is_traced)?, vec!["t".to_owned()])?;
    bench.must("discard all")?;
    equal("discard all", bench.must(is_traced)?, vec!["f".to_owned()])
}

/// Of three tables that a function of their owner reads for a user, one is hers to read, and of one only some rows are.
fn what_a_user_may_not_select(case: &Case) -> Result<(), String> {
    let mut bench = Bench::new(case)?;
    bench.must("create role ordinary; create role statistician in role pg_read_all_stats")?;
    for table in ["hidden", "partial", "open"] {
        bench.must(&format!(
            "create table {table} as select * from rows where id <= 10000; create index {table}_key on {table} (key)"
        ))?;
    }
    bench
        .must("grant select on partial, open to ordinary; vacuum analyze hidden, partial, open")?;
    bench.must("alter table partial enable row level security")?;
    let scans = |of: &str| {
        let scan =
            |table| format!("select count({of}) into n from {table} where key > 1800000000; ");
        ["hidden", "partial", "open"].map(scan).concat()
    };
    // The heap is read, and only the index.
    let define = format!(
        "create function of_owner() returns void language plpgsql security definer
            set enable_seqscan = off set enable_bitmapscan = off
            as $$ declare n int; begin {} {} end $$",
        scans("note"),
        scans("key"),
    );
    bench.session.rows(&define).map_err(text)?;
    let views = [
        "select distinct relation::regclass::text from forebay_trace() order by 1",
        "select distinct relation::text from forebay_trace_summary order by 1",
        "select distinct indexrelname::text from forebay_stat_indexes where indexrelname <> 'rows_key' order by 1",
        "select distinct indexrelid::regclass::text from forebay_stat_indexes()
            where indexrelid is distinct from 'rows_key'::regclass order by 1",
    ];
    let all = ["hidden", "hidden_key", "open", "open_key", "partial", "partial_key"];
    let indexes = ["hidden_key", "open_key", "partial_key"];
    let lines = "set client_min_messages = debug1";
    bench.must("set forebay.trace = on")?;
    for (role, traced, counted) in [
        ("ordinary", &["open", "open_key"][..], &["open_key"][..]),
        ("statistician", &[], &indexes),
        ("postgres", &all, &indexes),
    ] {
        bench.must(&format!("set role {role}; {lines}"))?;
        let outcome = bench.session.run("select of_owner()");
        equal(role, outcome.code(), None)?;
        bench.must("reset client_min_messages")?;
        let sent = indexes.map(|index| outcome.notices.iter().any(|line| line.contains(index)));
        let may = all.map(|it| traced.contains(&it));
        equal("debug lines", sent, [may[1], may[3], may[5]])?;
        for (view, expected) in views.iter().zip([traced, traced, counted, counted]) {
            equal(
                &format!("{role}: {view}"),
                bench.must(view)?,
                expected.iter().map(ToString::to_string).collect(),
            )?;
        }
    }
    Ok(())
}
