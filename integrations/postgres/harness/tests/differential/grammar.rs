//! Queries over the tables of world.sql, from a seed.
//!
//! A query is `exact` where its rows have to come in the same order: without parallel workers and concurrent
//! writers, one plan gives one order. Where that is not so, no query takes part of an unordered set.

use fastrand::Rng;

/// What a column holds, and so what is compared with it.
#[derive(Clone, Copy)]
enum Kind {
    /// From 0, or 1, to this.
    Int(i32),
    Text,
    Money,
    Date,
}
use Kind::{Date, Int, Money, Text};

struct Table {
    name: &'static str,
    columns: &'static [(&'static str, Kind)],
}

const TABLES: [Table; 5] = [
    Table {
        name: "item",
        columns: &[
            ("id", Int(16000)),
            ("a", Int(400)),
            ("b", Int(60)),
            ("c", Text),
            ("d", Money),
            ("e", Date),
        ],
    },
    Table {
        name: "child",
        columns: &[
            ("id", Int(26000)),
            ("item", Int(16500)),
            ("k", Int(1000)),
            ("v", Money),
            ("t", Date),
        ],
    },
    Table { name: "tag", columns: &[("id", Int(600)), ("a", Int(400)), ("name", Text)] },
    Table {
        name: "part",
        columns: &[("id", Int(9000)), ("k", Int(1000)), ("item", Int(16500)), ("v", Money)],
    },
    Table { name: "memo", columns: &[("id", Int(3000)), ("a", Int(400)), ("c", Text)] },
];
const ITEM: usize = 0;
const CHILD: usize = 1;
const TAG: usize = 2;
const PART: usize = 3;
const MEMO: usize = 4;

/// What may be joined with what: table, column, table, column.
const EDGES: [(usize, &str, usize, &str); 10] = [
    (ITEM, "id", CHILD, "item"),
    (ITEM, "id", CHILD, "item"),
    (ITEM, "id", PART, "item"),
    (ITEM, "a", TAG, "a"),
    (CHILD, "k", TAG, "id"),
    (CHILD, "item", PART, "item"),
    (CHILD, "k", PART, "k"),
    (MEMO, "a", TAG, "a"),
    (MEMO, "id", PART, "id"),
    (ITEM, "b", TAG, "id"),
];

/// A query.
#[derive(Clone)]
pub(crate) struct Query {
    pub(crate) sql: String,
    /// Its rows have one order.
    pub(crate) exact: bool,
}

/// Where queries come from.
pub(crate) struct Grammar {
    pub(crate) rng: Rng,
    /// Rows come in one order where nothing else is said.
    pub(crate) exact: bool,
    /// Collations to sort by, besides the database's.
    pub(crate) collations: Vec<String>,
}

impl Grammar {
    pub(crate) fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.usize(..of.len())]
    }

    /// A query of any shape.
    pub(crate) fn query(&mut self) -> Query {
        let sql = match self.rng.u8(..18) {
            0..=2 => self.single(),
            3..=6 => self.join(),
            7 | 8 => self.exists(),
            9 | 10 => self.lateral(),
            11 => self.correlated(),
            12 => self.grouped(),
            13..=15 => self.functions(),
            16 => self.with(),
            _ => self.other_indexes(),
        };
        Query { sql, exact: self.exact }
    }

    /// A query of one table that is neither sorted nor grouped: a cursor on it can be updated through.
    pub(crate) fn simple(&mut self) -> (&'static str, String) {
        let (table, condition) = self.start();
        let name = TABLES[table].name;
        (name, format!("select r0.* from {name} r0 where {condition}"))
    }

    /// A table, and a condition on it as `r0` that some hundred rows meet.
    fn start(&mut self) -> (usize, String) {
        let table = [ITEM, ITEM, CHILD, CHILD, PART, TAG, MEMO][self.rng.usize(..7)];
        let condition = match table {
            TAG | MEMO => self.condition("r0", table),
            _ => self.selective("r0", table),
        };
        (table, condition)
    }

    fn value(&mut self, kind: Kind) -> String {
        match kind {
            Int(max) => self.rng.i32(0..=max).to_string(),
            Text => {
                let words = [
                    "apple", "Apple", "äpfel", "banana", "Émile", "emile", "Zoo", "zoo", "tag",
                    "memo", "",
                ];
                let word = self.one(&words);
                let digits = self.rng.u8(..40).to_string();
                format!("'{word}{}'", if self.rng.bool() { &digits } else { "" })
            }
            Money => format!("{}.{:02}", self.rng.u8(..100), self.rng.u8(..100)),
            Date => format!("date '2020-01-01' + {}", self.rng.u16(..700)),
        }
    }

    fn array(&mut self, kind: Kind) -> String {
        let count = self.rng.usize(1..30);
        let mut values: Vec<String> = (0..count).map(|_| self.value(kind)).collect();
        if self.chance(10) {
            values.push("null".to_owned());
        }
        format!("array[{}]", values.join(", "))
    }

    /// A condition of any selectivity on `alias`, a `table`.
    fn condition(&mut self, alias: &str, table: usize) -> String {
        let columns = TABLES[table].columns;
        let (name, kind) = columns[self.rng.usize(..columns.len())];
        let (one, two) = (self.value(kind), self.value(kind));
        let column = format!("{alias}.{name}");
        match self.rng.u8(..12) {
            // It fails on some rows, which are reached or not.
            0 if self.exact && matches!(kind, Int(_)) && self.chance(30) => {
                format!("100 / ({column} - {one}) < 90")
            }
            0 | 1 => format!("{column} = {one}"),
            2 => format!("{column} < {one}"),
            3 => format!("{column} >= {one}"),
            4 => format!("{column} between least({one}, {two}) and greatest({one}, {two})"),
            5 => format!("{column} = any ({})", self.array(kind)),
            6 => format!("{column} is null"),
            7 => format!("{column} is not null"),
            8 => format!("{column} is distinct from {one}"),
            9 => format!("({column}, {alias}.id) > ({one}, {})", self.rng.u16(..20000)),
            10 => format!("({column} = {one} or {column} = {two})"),
            _ => format!("{column} <> {one}"),
        }
    }

    /// A condition that few rows of `alias` meet, most often by an index.
    fn selective(&mut self, alias: &str, table: usize) -> String {
        let small = self.rng.u16(1..300);
        let at = self.rng.u16(..);
        match (table, self.rng.u8(..8)) {
            (_, 0) => format!("{alias}.id between {at} % 9000 and {at} % 9000 + {small}"),
            (_, 1) => format!("{alias}.id = any ({})", self.array(Int(9000))),
            (ITEM, 2) => format!("{alias}.a = {}", at % 400),
            (ITEM, 3) => format!("{alias}.a = {} and {alias}.b is null", at % 400),
            (ITEM, 4) => {
                let (a, b) = (at % 400, at % 60);
                format!("{alias}.a in ({a}, {a} + 3, {a} + 1) and {alias}.b > {b}")
            }
            (ITEM, 5) => format!("lower({alias}.c) = {}", self.value(Text)),
            (ITEM, 6) => format!("{alias}.a % 17 = {} and {alias}.id < {}", at % 17, at % 4000),
            (ITEM, _) => format!("({alias}.a, {alias}.b) >= (397, {})", at % 60),
            (CHILD, 2 | 3) => format!("{alias}.k = {}", at % 1000),
            (CHILD, 4) => {
                let k = at % 1000;
                format!("{alias}.k between {k} and {k} + 5 and {alias}.v < {}", self.value(Money))
            }
            (CHILD, 5) => format!("{alias}.item = any ({})", self.array(Int(16500))),
            (CHILD, 6) => format!("{alias}.item is null and {alias}.k < 300"),
            (CHILD, _) => format!("{alias}.item between {at} % 16000 and {at} % 16000 + {small}"),
            (PART, 2..=4) => format!("{alias}.k between {0} and {0} + 12", at % 1000),
            (PART, _) => format!("{alias}.item < {}", small * 2),
            (_, _) => format!("{alias}.a between {0} and {0} + 20", at % 400),
        }
    }

    fn columns(&mut self, aliases: &[(String, usize)], count: usize) -> Vec<String> {
        let mut columns = Vec::new();
        for _ in 0..count {
            let (alias, table) = aliases[self.rng.usize(..aliases.len())].clone();
            let of = TABLES[table].columns;
            columns.push(format!("{alias}.{}", of[self.rng.usize(..of.len())].0));
        }
        columns
    }

    /// `order by` and `limit` for a query that gives `columns`; where order is not exact, a limit needs all of them.
    fn tail(&mut self, columns: &[String], limit: u8) -> String {
        let limited = self.chance(limit);
        let mut tail = String::new();
        let keys: Vec<String> = if limited && !self.exact {
            (1..=columns.len()).map(|it| it.to_string()).collect()
        } else if self.chance(50) {
            let count = self.rng.usize(1..=columns.len().min(3));
            let key = |it: &String| {
                let collated = it.ends_with(".c") && !self.collations.is_empty() && self.rng.bool();
                let collation = self.collations.first().filter(|_| collated);
                let collation =
                    collation.map(|it| format!(" collate \"{it}\"")).unwrap_or_default();
                let directions = ["", " desc", " desc nulls last", " nulls first"];
                format!("{it}{collation}{}", directions[self.rng.usize(..4)])
            };
            columns[..count].iter().map(key).collect()
        } else {
            Vec::new()
        };
        if !keys.is_empty() {
            tail = format!(" order by {}", keys.join(", "));
        }
        if limited {
            let limits = [0, 1, 3, 10, 40, 200];
            tail += &format!(" limit {}", limits[self.rng.usize(..limits.len())]);
            if self.chance(30) {
                tail += &format!(" offset {}", self.rng.u8(..60));
            }
        }
        tail
    }

    /// One table by one of its indexes, often without need of the heap.
    pub(crate) fn single(&mut self) -> String {
        let (table, mut condition) = self.start();
        let columns = match (table, self.rng.u8(..3)) {
            (ITEM, 0) => ["r0.b", "r0.a", "r0.d"].map(str::to_owned).to_vec(),
            (CHILD, 0) => ["r0.item", "r0.k", "r0.v"].map(str::to_owned).to_vec(),
            _ => self.columns(&[("r0".to_owned(), table)], 3),
        };
        if self.chance(40) {
            condition = self.condition("r0", table);
            if self.chance(50) {
                condition += &format!(" and {}", self.condition("r0", table));
            }
        }
        let tail = self.tail(&columns, 60);
        format!(
            "select {} from {} r0 where {condition}{tail}",
            columns.join(", "),
            TABLES[table].name
        )
    }

    /// Two to four tables.
    pub(crate) fn join(&mut self) -> String {
        let (first, condition) = self.start();
        let mut aliases = vec![("r0".to_owned(), first)];
        let mut from = format!("{} r0", TABLES[first].name);
        let mut conditions = vec![condition];
        let count = self.rng.usize(1..4);
        for _ in 0..count {
            let (alias, table, on) = self.edge(&aliases);
            let kind = match self.rng.u8(..8) {
                0 | 1 => "left join",
                2 => "full join",
                _ => "join",
            };
            let more = if kind != "full join" && self.chance(30) {
                format!(" and {}", self.condition(&alias, table))
            } else {
                String::new()
            };
            from += &format!(" {kind} {} {alias} on {on}{more}", TABLES[table].name);
            if kind == "join" && self.chance(20) {
                conditions.push(self.condition(&alias, table));
            }
            aliases.push((alias, table));
        }
        let width = self.rng.usize(2..6);
        let columns = self.columns(&aliases, width);
        let listed = columns.join(", ");
        let conditions = conditions.join(" and ");
        if count > 1 && self.chance(30) {
            return format!(
                "select count(*), sum(hashtext(row({listed})::text)::bigint) from {from} where {conditions}"
            );
        }
        let tail = self.tail(&columns, if count > 1 { 100 } else { 50 });
        format!("select {listed} from {from} where {conditions}{tail}")
    }

    /// A further alias, and what joins it with one of `aliases`.
    fn edge(&mut self, aliases: &[(String, usize)]) -> (String, usize, String) {
        let alias = format!("r{}", aliases.len());
        loop {
            let (left, one, right, other) = EDGES[self.rng.usize(..EDGES.len())];
            let (left, one, right, other) =
                if self.rng.bool() { (left, one, right, other) } else { (right, other, left, one) };
            let (from, table) = aliases[self.rng.usize(..aliases.len())].clone();
            if table == left {
                return (alias.clone(), right, format!("{from}.{one} = {alias}.{other}"));
            }
        }
    }

    /// Semi- and anti-joins.
    fn exists(&mut self) -> String {
        let (first, condition) = self.start();
        let aliases = [("r0".to_owned(), first)];
        let (alias, table, on) = self.edge(&aliases);
        let inner = self.condition(&alias, table);
        let columns = self.columns(&aliases, 3);
        let name = TABLES[table].name;
        let test = match self.rng.u8(..4) {
            0 | 1 => format!("exists (select 1 from {name} {alias} where {on} and {inner})"),
            2 => format!("not exists (select from {name} {alias} where {on} and {inner})"),
            _ => format!("r0.id in (select {alias}.id from {name} {alias} where {inner})"),
        };
        let tail = self.tail(&columns, 40);
        format!(
            "select {} from {} r0 where {condition} and {test}{tail}",
            columns.join(", "),
            TABLES[first].name
        )
    }

    fn lateral(&mut self) -> String {
        let (first, condition) = self.start();
        let aliases = [("r0".to_owned(), first)];
        let (alias, table, on) = self.edge(&aliases);
        let mut columns = self.columns(&aliases, 2);
        columns.push("l.id".to_owned());
        let second = TABLES[table].columns[1].0;
        columns.push(format!("l.{second}"));
        let (kind, end) =
            if self.rng.bool() { ("cross join", "") } else { ("left join", " on true") };
        let direction = self.one(&["", " desc"]);
        let limit = self.rng.u8(1..6);
        let tail = self.tail(&columns, 60);
        format!(
            "select {} from {} r0 {kind} lateral (select {alias}.id, {alias}.{second} from {} {alias} where {on} \
             order by {alias}.{second}{direction}, {alias}.id limit {limit}) l{end} where {condition}{tail}",
            columns.join(", "),
            TABLES[first].name,
            TABLES[table].name
        )
    }

    fn correlated(&mut self) -> String {
        let (first, condition) = self.start();
        let aliases = [("r0".to_owned(), first)];
        let (alias, table, on) = self.edge(&aliases);
        let name = TABLES[table].name;
        let mut columns = self.columns(&aliases, 2);
        columns.push(match self.rng.u8(..3) {
            0 => format!("(select count(*) from {name} {alias} where {on})"),
            1 => format!("(select max({alias}.id) from {name} {alias} where {on})"),
            _ => format!("array(select {alias}.id from {name} {alias} where {on} order by 1)"),
        });
        let listed = columns.join(", ");
        columns.truncate(2);
        let more = match self.rng.u8(..3) {
            0 => format!(" and r0.id > (select min({alias}.id) from {name} {alias} where {on})"),
            _ => String::new(),
        };
        let limit = if self.exact { 50 } else { 0 };
        let tail = self.tail(&columns, limit);
        format!("select {listed} from {} r0 where {condition}{more}{tail}", TABLES[first].name)
    }

    fn grouped(&mut self) -> String {
        let (a, item, child) =
            (self.rng.u16(..400), self.condition("i", ITEM), self.condition("c", CHILD));
        let direction = self.one(&["", " desc"]);
        match self.rng.u8(..7) {
            0 => format!(
                "select a, count(*), sum(d), min(c) from item i where {item} group by a order by a{direction}"
            ),
            1 => format!(
                "select distinct on (a, b) a, b, id from item i where {item} order by a{direction}, b, id"
            ),
            2 => format!(
                "select c.k, count(distinct i.a) from child c join item i on i.id = c.item where {child} group by c.k order by 1"
            ),
            3 => format!(
                "select id, rank() over (partition by a order by b, id) from item i where a between {a} and {a} + 6 order by 1, 2"
            ),
            4 => format!(
                "select id from item i where {item} intersect select item from child c where {child} order by 1"
            ),
            5 => {
                format!("select min(id), max(id), min(d), max(d), max(b) from item i where {item}")
            }
            _ => format!(
                "select a from item i where {item} union select k from child c where {child} order by 1{direction} limit 50"
            ),
        }
    }

    /// Functions that can be counted, that fail on some rows, that run queries.
    fn functions(&mut self) -> String {
        let a = self.rng.u16(..400);
        let limit = self.rng.u8(1..40);
        if !self.exact {
            return format!("select id, found(id) from item where a = {a} order by id");
        }
        match self.rng.u8(..15) {
            // What the inner scan is begun with, or the outer rows are chosen by, fails on some outer rows.
            11 => format!(
                "select i.id, c.id from item i join child c on c.item = 90000 / (i.b - 7) where i.a between {a} and {a} + 9 limit {limit}"
            ),
            12 => format!(
                "select i.id, c.id from item i join child c on c.item = boom(i.id) where i.a between {a} and {a} + 9 limit {limit}"
            ),
            13 => format!(
                "select i.id, c.id, p.id from item i join child c on c.item = i.id left join part p on p.item = c.item and p.v > 100 / (c.k - 700) \
                 where i.a between {a} and {a} + 9 and 100 / (i.b - 7) <> 3 limit {limit}"
            ),
            14 => format!(
                "select exists (select from item i join child c on c.item = i.id where i.a between {a} and {a} + 9 and 100 / (i.b - {limit}) <> 3), {limit}"
            ),
            0 => format!(
                "select boom(i.id), c.id from item i join child c on c.item = i.id where i.a between {a} and {a} + 2 limit {limit}"
            ),
            1 => format!(
                "select i.id, c.k from item i join child c on c.item = i.id where i.a = {a} and boom(i.id) > 0 limit {limit}"
            ),
            2 => format!(
                "select i.id, c.k from item i join child c on c.item = i.id and boom(c.id) > 0 where i.a = {a} limit {limit}"
            ),
            3 => format!(
                "select i.id, 1 / (i.b - 7) from item i join child c on c.item = i.id where i.a between {a} and {a} + 9 limit {limit}"
            ),
            4 => format!(
                "select called(i.id), i.id, c.id from item i join child c on c.item = i.id where i.a = {a} limit {limit}"
            ),
            5 => format!(
                "select i.id, c.id from (select * from item where a = {a} and called(id) > 0 offset 0) i join child c on c.item = i.id limit {limit}"
            ),
            6 => format!(
                "select i.id, c.id from item i join child c on c.item = i.id where i.a = {a} and announce(i.id) and announce(c.id) limit {limit}"
            ),
            7 => format!("select found(id), id from item where a = {a} limit {limit}"),
            8 => format!("select * from walked({a}, {limit})"),
            9 => format!(
                "select id, b, random() < 0.5 from item where a between {a} and {a} + 3 and random() < 0.3 limit {limit}"
            ),
            _ => format!(
                "select i.id, w.n from item i, walked(i.a, 4) w where i.id between {a} and {a} + 20 limit {limit}"
            ),
        }
    }

    fn with(&mut self) -> String {
        let start = self.rng.u16(..2000);
        let (_, query) = self.simple();
        match self.rng.u8(..3) {
            0 => format!(
                "with recursive r (n, depth) as (select {start}, 0 union select l.target, r.depth + 1 from r \
                 join link l on l.source = r.n where r.depth < 5) select n, min(depth) from r group by n order by 1"
            ),
            1 => format!(
                "with q as materialized ({query}) select count(*), min(q.id), max(c.id) from q left join child c on c.item = q.id"
            ),
            _ => format!(
                "with q as ({query}) select q.id, x.id from q join item x on x.id = q.id order by 1, 2"
            ),
        }
    }

    fn other_indexes(&mut self) -> String {
        let (x, y) = (self.rng.u16(..1000), self.rng.u16(..1000));
        let limit = self.rng.u8(1..50);
        match self.rng.u8(..5) {
            0 if self.exact => {
                format!("select id, p from item order by p <-> point({x}, {y}), id limit {limit}")
            }
            0 | 1 => format!(
                "select id, a from item where p <@ box(point({x}, {y}), point({x} + 60, {y} + 60)) order by id"
            ),
            2 => format!(
                "select id, e from item where e between date '2020-03-01' + {limit} and date '2020-03-04' + {limit} order by e, id"
            ),
            3 => format!(
                "select id from item where a = {} or b = {} or c = {} order by id",
                x % 400,
                y % 60,
                self.value(Text)
            ),
            _ => format!(
                "select one.id, two.id from item one join item two on one.a = two.a and one.b = two.b where one.a between {0} and {0} + 9 order by 1, 2",
                x % 400
            ),
        }
    }
}
