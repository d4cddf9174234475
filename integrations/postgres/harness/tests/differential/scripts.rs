//! Scripts: what clients do with queries, from a seed.
//!
//! A script leaves no transaction open; what it does to settings, cursors and temporary tables `discard all`, which
//! the runner sends after each, undoes. It runs alone in its database, so what it commits is the same on both sides.

use fastrand::Rng;

use crate::grammar::{Grammar, Query};

/// How a step is executed, and what of its outcome has to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Everything.
    Exact,
    /// Everything but the order of its rows.
    AnyOrder,
    /// By a portal from which so many rows are fetched at a time; everything.
    Portal(i32),
    /// Its SQLSTATE: it shows figures that may differ.
    Code,
    /// It is cut after so many milliseconds, by a timeout or by a cancel request: either side may be at any row.
    Timeout(u64),
    Cancel(u64),
}

impl How {
    /// Whether the step is cut on purpose.
    pub(crate) fn cuts(self) -> bool {
        matches!(self, How::Cancel(_) | How::Timeout(_))
    }
}

/// One statement.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) sql: String,
    pub(crate) how: How,
}

/// What runs on both sides.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) kind: &'static str,
    pub(crate) steps: Vec<Step>,
    /// What EXPLAIN is to show where it fails.
    pub(crate) query: String,
}

/// Settings that lead to one kind of plan. The first ones are more frequent.
const PLANS: [(&str, &[&str]); 11] = [
    ("as it comes", &[]),
    ("as it comes", &[]),
    ("index scans", &["enable_seqscan = off", "enable_bitmapscan = off"]),
    (
        "nested loops",
        &[
            "enable_hashjoin = off",
            "enable_mergejoin = off",
            "enable_seqscan = off",
            "enable_bitmapscan = off",
            "enable_material = off",
        ],
    ),
    ("nested loops", &["enable_hashjoin = off", "enable_mergejoin = off", "enable_memoize = off"]),
    (
        "nested loops without sort",
        &[
            "enable_hashjoin = off",
            "enable_mergejoin = off",
            "enable_sort = off",
            "enable_memoize = off",
        ],
    ),
    (
        "merge joins",
        &[
            "enable_hashjoin = off",
            "enable_nestloop = off",
            "enable_seqscan = off",
            "enable_bitmapscan = off",
        ],
    ),
    (
        "hash joins",
        &["enable_mergejoin = off", "enable_nestloop = off", "enable_indexonlyscan = off"],
    ),
    ("bitmaps", &["enable_seqscan = off", "enable_indexscan = off", "enable_indexonlyscan = off"]),
    (
        "lossy bitmaps",
        &[
            "enable_seqscan = off",
            "enable_indexscan = off",
            "enable_indexonlyscan = off",
            "work_mem = '64kB'",
        ],
    ),
    (
        "heap by index",
        &["enable_seqscan = off", "enable_indexonlyscan = off", "enable_bitmapscan = off"],
    ),
];

/// What else belongs to PLANS: workers wherever one can be used.
const PARALLEL: [&str; 6] = [
    "parallel_setup_cost = 0",
    "parallel_tuple_cost = 0",
    "min_parallel_table_scan_size = 0",
    "min_parallel_index_scan_size = 0",
    "max_parallel_workers_per_gather = 3",
    "work_mem = '256kB'",
];

/// Where scripts come from.
pub(crate) struct Scripts {
    grammar: Grammar,
    major: u32,
}

impl Scripts {
    pub(crate) fn new(seed: u64, major: u32, collations: Vec<String>) -> Scripts {
        let grammar = Grammar { rng: Rng::with_seed(seed), exact: true, collations };
        Scripts { grammar, major }
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.grammar.rng
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.grammar.chance(percent)
    }

    /// The next script for two equal databases without other users.
    pub(crate) fn next(&mut self) -> Script {
        self.grammar.exact = true;
        let kind = self.rng().u8(..22);
        if kind < 9 {
            return self.plain(15);
        }
        let (kind, body): (_, fn(&mut Scripts, &mut Script)) = match kind {
            9..=11 => ("cursor", Scripts::cursor),
            12 | 13 => ("cursor over changes", Scripts::changing_cursor),
            14 => ("cursor over other statements' locks and definitions", Scripts::definitions),
            15 => ("two cursors", Scripts::two_cursors),
            16 => ("prepared", Scripts::prepared),
            17 => ("procedure", Scripts::procedure),
            18 => ("changes", Scripts::changes),
            19 => ("row locks", Scripts::locks),
            20 => ("temporary table", Scripts::temporary),
            _ => ("portal", Scripts::portal),
        };
        let mut script = Script { kind, steps: Vec::new(), query: String::new() };
        self.plan(&mut script);
        body(self, &mut script);
        script
    }

    /// A script that only reads, for a database in which others write: rows have no order of their own.
    pub(crate) fn reader(&mut self) -> Script {
        self.grammar.exact = false;
        self.plain(30)
    }

    /// A query that is cut, for such a database.
    pub(crate) fn cut(&mut self) -> Script {
        self.grammar.exact = false;
        let query =
            format!("select count(*) from ({}) q, generate_series(1, 30)", self.grammar.join());
        let mut script = Script { kind: "cut", steps: Vec::new(), query: query.clone() };
        self.plan(&mut script);
        let after = self.rng().u64(1..12);
        let how = if self.rng().bool() { How::Timeout(after) } else { How::Cancel(after) };
        script.steps.push(Step { sql: query, how });
        script
    }

    fn plan(&mut self, script: &mut Script) {
        let index = self.rng().usize(..PLANS.len());
        for setting in PLANS[index].1 {
            exact(script, format!("set {setting}"));
        }
        exact(script, "select setseed(0.25)");
        let concurrency = self.rng().usize(..4);
        exact(script, format!("set effective_io_concurrency = {}", [0, 1, 16, 200][concurrency]));
        if self.chance(15) {
            exact(script, "set cursor_tuple_fraction = 1");
        }
    }

    /// One query, with parallel workers in some of a hundred.
    fn plain(&mut self, parallel: u8) -> Script {
        let mut script = Script { kind: "query", steps: Vec::new(), query: String::new() };
        self.plan(&mut script);
        if self.chance(parallel) {
            script.kind = "parallel query";
            self.grammar.exact = false;
            for setting in PARALLEL {
                exact(&mut script, format!("set {setting}"));
            }
            if self.chance(30) {
                let name =
                    if self.major < 16 { "force_parallel_mode" } else { "debug_parallel_query" };
                exact(&mut script, format!("set {name} = on"));
            }
        }
        let Query { sql, exact: in_order } = self.grammar.query();
        script.query.clone_from(&sql);
        if self.chance(8) {
            let options =
                if self.rng().bool() { "analyze, timing off" } else { "analyze, buffers, verbose" };
            push(&mut script, format!("explain ({options}) {sql}"), How::Code);
        }
        push(&mut script, sql, if in_order { How::Exact } else { How::AnyOrder });
        script
    }

    /// A query for a cursor: one whose rows have an order.
    fn ordered(&mut self) -> String {
        match self.rng().u8(..3) {
            0 => self.grammar.single(),
            1 => self.grammar.join(),
            _ => self.grammar.query().sql,
        }
    }

    fn begin(&mut self, script: &mut Script) {
        let level = ["", "", " isolation level repeatable read", " isolation level serializable"];
        let index = self.rng().usize(..level.len());
        exact(script, format!("begin{}", level[index]));
    }

    fn end(&mut self, script: &mut Script) {
        let end = if self.chance(70) { "rollback" } else { "commit" };
        exact(script, end);
    }

    fn fetch(&mut self, name: &str, backward: bool) -> String {
        let verb = if self.chance(80) { "fetch" } else { "move" };
        let count = self.rng().u8(1..60);
        let at = self.rng().i16(-40..80);
        let direction = match self.rng().u8(..if backward { 12 } else { 4 }) {
            0 => "next".to_owned(),
            1..=3 => format!("forward {count}"),
            4 | 5 => format!("backward {count}"),
            6 => "prior".to_owned(),
            7 => format!("absolute {at}"),
            8 => format!("relative {at}"),
            9 => "first".to_owned(),
            10 => "last".to_owned(),
            _ => "backward all".to_owned(),
        };
        format!("{verb} {direction} from {name}")
    }

    /// Declares `name`, and says whether it goes backward.
    fn declare(&mut self, script: &mut Script, name: &str) -> bool {
        let query = self.ordered();
        let scroll = self.chance(75);
        let hold = if self.chance(15) { " with hold" } else { "" };
        let scrolling = if scroll { "scroll" } else { "no scroll" };
        exact(script, format!("declare {name} {scrolling} cursor{hold} for {query}"));
        script.query = query;
        scroll
    }

    fn cursor(&mut self, script: &mut Script) {
        self.begin(script);
        let scroll = self.declare(script, "c");
        for _ in 0..self.rng().u8(2..12) {
            let fetch = self.fetch("c", scroll);
            exact(script, fetch);
        }
        if self.chance(50) {
            exact(script, "close c");
        }
        exact(script, if self.chance(50) { "commit" } else { "rollback" });
        // Held, it goes on.
        exact(script, "fetch 5 from c");
    }

    /// A statement that changes some rows of `table`, and leaves them recognisable.
    fn change(&mut self, table: &str) -> String {
        let low = self.rng().u16(..8000);
        let high = low + self.rng().u16(1..200);
        match (table, self.rng().u8(..7)) {
            (_, 0) => format!("delete from {table} where id between {low} and {high}"),
            ("item", 1 | 2) => {
                format!("update item set a = a + 1, b = 3 where id between {low} and {high}")
            }
            ("item", 3) => format!("update item set note = 'z' where a = {}", low % 400),
            ("item", _) => format!(
                "insert into item select 20000 + g, g % 400, g % 60, 'new' || g, g, null, null, '' from generate_series({low}, {high}) g on conflict do nothing"
            ),
            ("child", 1 | 2) => {
                format!("update child set k = k + 1 where item between {low} and {high}")
            }
            ("child", 3) => format!(
                "update child c set v = v + i.a from item i where i.id = c.item and i.a = {}",
                low % 400
            ),
            ("child", _) => format!(
                "insert into child select 30000 + g, g, g % 1000, 1, null, '' from generate_series({low}, {high}) g on conflict do nothing"
            ),
            ("part", 1 | 2) => {
                format!("update part set k = (k + 350) % 1000 where id between {low} and {high}")
            }
            ("part", _) => {
                format!("update part set v = 0 where k between {0} and {0} + 10", low % 1000)
            }
            (_, _) => format!("update {table} set a = a + 1 where id > {}", low % 400),
        }
    }

    /// A simple cursor: rows change under it, by it, and back.
    fn changing_cursor(&mut self, script: &mut Script) {
        let (table, query) = self.grammar.simple();
        self.begin(script);
        if self.chance(30) {
            let change = self.change(table);
            exact(script, change);
        }
        let locking = self.chance(50);
        let (scrolling, lock) = if locking { ("", " for update") } else { ("scroll ", "") };
        exact(script, format!("declare c {scrolling}cursor for {query}{lock}"));
        script.query = format!("{query}{lock}");
        let mut open = 0;
        for _ in 0..self.rng().u8(4..14) {
            let sql = match self.rng().u8(..10) {
                0..=3 => self.fetch("c", !locking),
                4 => self.change(table),
                5 => format!("update {table} set id = id where current of c"),
                6 => format!("delete from {table} where current of c"),
                7 => {
                    open += 1;
                    "savepoint s".to_owned()
                }
                8 if open > 0 => "rollback to s".to_owned(),
                9 if open > 0 => {
                    open -= 1;
                    "release s".to_owned()
                }
                _ => "fetch 7 from c".to_owned(),
            };
            exact(script, sql);
        }
        self.end(script);
    }

    /// A cursor is open while its tables' definitions change, or are asked to.
    fn definitions(&mut self, script: &mut Script) {
        let (table, query) = self.grammar.simple();
        let simple = self.chance(50);
        let query = if simple { query } else { self.ordered() };
        // Committed: the next scripts plan with it, in both databases alike.
        let concurrent = match self.rng().u8(..8) {
            0 => "create index if not exists extra_a on item (a, id)",
            1 => "drop index if exists extra_a",
            2 => "create index if not exists extra_k on child (k, item)",
            3 => "drop index if exists extra_k",
            4 => "reindex index item_a_b",
            5 => "vacuum (analyze) child",
            6 => "vacuum item",
            _ => "analyze",
        };
        exact(script, concurrent);
        self.begin(script);
        exact(script, format!("declare c cursor for {query}"));
        script.query = query;
        exact(script, "fetch 9 from c");
        for _ in 0..self.rng().u8(1..4) {
            exact(script, "savepoint s");
            let sql = match self.rng().u8(..14) {
                0 => format!("truncate {table}"),
                1 => format!("drop table {table} cascade"),
                2 => format!("alter table {table} add column extra int default 1"),
                3 => "drop index item_a_b".to_owned(),
                4 => "drop index child_item".to_owned(),
                5 => format!("create index on {table} (id)"),
                6 => "reindex table item".to_owned(),
                // These are let through, and every session's cache of the relation is built again.
                7 => format!("grant select on {table} to public"),
                8 => "alter index item_a_b set (fillfactor = 80)".to_owned(),
                9 => "alter index child_item set (fillfactor = 80)".to_owned(),
                10 => format!("analyze {table}"),
                11 => "comment on index item_a_b is 'x'".to_owned(),
                12 => format!("cluster {table} using {table}_pkey"),
                _ => format!("alter table {table} alter column id set statistics 50"),
            };
            exact(script, sql);
            exact(script, if self.chance(40) { "fetch 9 from c" } else { "select 1" });
            exact(script, "rollback to s");
            exact(script, "fetch 9 from c");
        }
        exact(script, "fetch all from c");
        exact(script, "rollback");
    }

    /// Two at a time, on the same tables perhaps, and one of them ends with its savepoint.
    fn two_cursors(&mut self, script: &mut Script) {
        self.begin(script);
        let first = self.declare(script, "c");
        exact(script, "savepoint s");
        let second = self.declare(script, "d");
        for _ in 0..self.rng().u8(3..10) {
            let sql =
                if self.rng().bool() { self.fetch("c", first) } else { self.fetch("d", second) };
            exact(script, sql);
        }
        let between = match self.rng().u8(..4) {
            0 => "rollback to s",
            1 => "close c",
            2 => "select 1 / 0",
            _ => "release s",
        };
        exact(script, between);
        if between == "select 1 / 0" {
            exact(script, "rollback to s");
        }
        exact(script, "fetch 20 from c");
        exact(script, "fetch 20 from d");
        self.end(script);
    }

    fn prepared(&mut self, script: &mut Script) {
        let mode = if self.chance(70) { "force_generic_plan" } else { "auto" };
        exact(script, format!("set plan_cache_mode = {mode}"));
        let direction = if self.rng().bool() { "desc" } else { "asc" };
        let (types, query) = match self.rng().u8(..5) {
            0 => ("int, int", format!("select id, a, b from item where a between $1 and $1 + $2 % 3 order by a {direction}, b limit 50")),
            1 => ("int, int", "select i.id, c.id, c.k from item i join child c on c.item = i.id where i.a = $1 and c.k > $2".to_owned()),
            2 => ("int, int", "select id, k from child where item = any (array[$1, $2, $1 + 5, $2 * 3]) order by item, k".to_owned()),
            3 => ("int, int", format!("select id, k, v from part where k between $1 and $1 + $2 % 20 order by k {direction}, id")),
            _ => ("int, int", "select i.c, t.name from item i left join tag t on t.a = i.a where i.id between $1 * 10 and $1 * 10 + $2 % 50".to_owned()),
        };
        exact(script, format!("prepare q ({types}) as {query}"));
        script.query = query.replace("$1", "7").replace("$2", "9");
        for _ in 0..self.rng().u8(2..9) {
            let (one, two) = (self.rng().u16(..400), self.rng().u16(..400));
            exact(script, format!("execute q ({one}, {two})"));
            if self.chance(12) {
                let concurrent = [
                    "create index extra_two on item (a, b)",
                    "drop index if exists extra_two",
                    "analyze item",
                ];
                let index = self.rng().usize(..concurrent.len());
                exact(script, concurrent[index]);
            }
        }
        exact(script, "drop index if exists extra_two");
    }

    fn procedure(&mut self, script: &mut Script) {
        let (a, steps) = (self.rng().u16(..400), self.rng().u8(1..40));
        let outer = self.grammar.simple().1;
        let sql = match self.rng().u8(..6) {
            0 => format!(
                "do $$ declare r record; s record; n int := 0; begin for r in {outer} loop n := n + 1; exit when n > {steps}; \
                 for s in select k from child where item = r.id order by k desc limit 3 loop raise notice '% %', r.id, s.k; \
                 end loop; end loop; end $$"
            ),
            1 => format!(
                "do $$ declare r record; n int := 0; begin for r in {outer} loop begin n := n + boom(r.id); exception when others then \
                 n := n - 1; end; end loop; raise notice '%', n; end $$"
            ),
            2 => format!("select * from walked({a}, {steps})"),
            3 => format!("select * from walked({a}, {steps}), walked({a} + 1, 5)"),
            4 => format!(
                "do $$ declare r record; begin for r in select i.id, c.id as child from item i join child c on c.item = i.id where i.a = {a} \
                 loop update child set k = k + 1 where id = r.child; if r.id % 5 = 0 then raise notice '%', changed(r.id); end if; \
                 end loop; end $$"
            ),
            _ => format!(
                "select id, found(id), (select count(*) from walked(a, 3)) from item where a = {a} limit {steps}"
            ),
        };
        self.begin(script);
        exact(script, sql);
        exact(
            script,
            format!(
                "select id, k, v from child where item in (select id from item where a = {a}) order by 1"
            ),
        );
        self.end(script);
    }

    fn changes(&mut self, script: &mut Script) {
        let low = self.rng().u16(..8000);
        let a = low % 400;
        self.begin(script);
        for _ in 0..self.rng().u8(1..4) {
            let sql = match self.rng().u8(..12) {
                0 => format!(
                    "with d as (delete from child where item between {low} and {low} + 20 returning *) select d.id, i.a from d left join item i on i.id = d.item"
                ),
                1 => format!(
                    "with u as (update item set b = 1 where a = {a} returning id) select c.id, c.k from u join child c on c.item = u.id"
                ),
                2 => format!(
                    "update child c set k = i.a from item i where i.id = c.item and i.a between {a} and {a} + 2 returning c.id, c.k, i.id"
                ),
                3 => format!(
                    "delete from item i using tag t where t.a = i.a and t.id = {} returning i.id",
                    low % 600
                ),
                4 => format!(
                    "insert into tag select id, a, c from item where id between {0} and {0} + 30 on conflict (id) do update set a = excluded.a returning *",
                    low % 590
                ),
                5 if self.major >= 15 => format!(
                    "merge into tag t using (select * from item where a = {a}) i on t.id = i.id when matched then update set a = i.a when not matched then insert values (i.id, i.a, 'm')"
                ),
                6 => format!("select changed(id), id from item where a = {a}"),
                7 => format!(
                    "update part p set v = p.v + 1 from child c where c.item = p.item and c.k = {} returning p.id, c.id",
                    low % 1000
                ),
                _ => {
                    let table =
                        self.grammar.one(&["item", "child", "part", "tag", "memo"]).to_owned();
                    self.change(&table)
                }
            };
            exact(script, sql);
            if self.chance(20) {
                exact(script, "savepoint s");
                let table = self.grammar.one(&["item", "child"]).to_owned();
                let change = self.change(&table);
                exact(script, change);
                let check = self.grammar.join();
                exact(script, check);
                exact(script, "rollback to s");
            }
            let check = self.grammar.join();
            script.query.clone_from(&check);
            exact(script, check);
        }
        self.end(script);
    }

    fn locks(&mut self, script: &mut Script) {
        let a = self.rng().u16(..400);
        let strength =
            self.grammar.one(&["update", "share", "no key update", "key share"]).to_owned();
        let wait = self.grammar.one(&["", " skip locked", " nowait"]).to_owned();
        let limit = self.rng().u8(1..30);
        let query = match self.rng().u8(..4) {
            0 => format!(
                "select id, b from item where a between {a} and {a} + 3 order by a, b desc limit {limit} for {strength}{wait}"
            ),
            1 => format!(
                "select i.id, c.id from item i join child c on c.item = i.id where i.a = {a} limit {limit} for {strength} of c{wait}"
            ),
            2 => format!(
                "select i.id, c.id from (select * from item where a = {a} for {strength}) i join child c on c.item = i.id limit {limit}"
            ),
            _ => format!("select id from child where k = {a} for {strength}{wait}"),
        };
        self.begin(script);
        exact(script, query.clone());
        // Which rows are locked, no more and no less, shows in how they look to this very transaction.
        exact(
            script,
            "select count(*) filter (where xmax::text = pg_current_xact_id_if_assigned()::xid::text), count(*) from item",
        );
        exact(
            script,
            "select count(*) filter (where xmax::text = pg_current_xact_id_if_assigned()::xid::text), count(*) from child",
        );
        script.query = query;
        self.end(script);
    }

    fn temporary(&mut self, script: &mut Script) {
        let (_, query) = self.grammar.simple();
        self.begin(script);
        let end = self.grammar.one(&["", " on commit drop", " on commit delete rows"]).to_owned();
        exact(
            script,
            format!(
                "create temp table mine{end} as select row_number() over () n, q.id from ({query}) q"
            ),
        );
        exact(script, "create index on mine (id)");
        if self.chance(50) {
            exact(script, "analyze mine");
        }
        let join = "select m.n, c.id, c.k from mine m join child c on c.item = m.id";
        exact(script, join);
        exact(
            script,
            "declare c scroll cursor for select m.id, i.a from item i join mine m on m.id = i.id",
        );
        exact(script, "fetch 6 from c");
        exact(script, "insert into mine select n + 100000, id + 1 from mine");
        exact(script, "fetch 6 from c");
        exact(script, "fetch backward 9 from c");
        exact(
            script,
            "select count(*), sum(m.id), sum(c.k) from mine m left join child c on c.item = m.id",
        );
        script.query = join.to_owned();
        self.end(script);
        exact(script, "select count(*) from mine");
    }

    /// A client that fetches some rows at a time, as drivers do.
    fn portal(&mut self, script: &mut Script) {
        let query = self.ordered();
        let step = self.rng().i32(1..40);
        push(script, format!("select q::text from ({query}) q"), How::Portal(step));
        script.query = query;
    }
}

fn exact(script: &mut Script, sql: impl Into<String>) {
    push(script, sql, How::Exact);
}

fn push(script: &mut Script, sql: impl Into<String>, how: How) {
    script.steps.push(Step { sql: sql.into(), how });
}
