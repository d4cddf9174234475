#!/usr/bin/env python3
"""Times queries on an SQLite database with and without forebay, in interleaved rounds, each run in a separate process.

  queries.py --library target/release/libforebay_sqlite.so --database /srv/bench.db --make 2000000
  queries.py --library ... --database /srv/bench.db --mode cold --rounds 5 stock forebay forebay:distance_max=64

--make writes a database of so many rows of about 800 bytes first: table `t` (id, k, payload) with an index on k, which is
random; `j`, whose 40,000 rows lead to rows of `t`; `f`, a tenth of the rows, written in random order; and `v`, the same rows
in order; `m` and `w` (without rowids), 200,000 rows each in file order; `c`, 40,000 rows that lead to rows of `m`, which lead to
rows of `t`, to rows of `w`, and by `k` to rows of `t` through its index; `o`, 2,000 rows of 5 to 200 KiB with an index on a
random column, and `p`, the same written in random order, half deleted and written again. Each variant is `stock`, or `forebay` with URI arguments; the first one is what the others are compared with.

  cold   the file is dropped from the page cache before each run (--drop-caches: all files are, which takes root)
  warm   the file is in the page cache, and SQLite's own cache is empty at first
  own    everything is in SQLite's own cache: the query is run once before it is timed

--query mix is a mix of inserts, look-ups, scans, joins, updates and deletes on a separate database, 100 MB that every run
rewrites next to the other one, and finds in memory.
"""

import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time

QUERIES = {
    "index": "select count(*), sum(length(payload)) from t where k between 0 and 20000000",
    "index-desc": "select sum(length(payload)) from (select payload from t where k between 0 and 20000000 order by k desc)",
    "join": "select sum(length(payload)) from j cross join t on t.id = j.t_id",
    "join-three": "select sum(length(m.payload)), sum(length(t.payload)) from c cross join m on m.id = c.m_id cross join t on t.id = m.t_id",
    "join-index": "select sum(length(t.payload)) from c cross join t on t.k = c.k",
    "join-without-rowid": "select sum(length(w.payload)) from c cross join w on w.k = c.w_k",
    "overflow": "select sum(length(payload || '')) from o where k between 0 and 150000000",
    "overflow-fragmented": "select sum(length(payload || '')) from p where k between 0 and 150000000",
    "overflow-scan": "select sum(length(payload || '')) from p",
    "scan": "select sum(length(payload)) from v",
    "fragmented": "select sum(length(payload)) from f",
    "covering": "select count(k) from t where k between 0 and 500000000",
    "limit": "select length(payload) from t where k > 5000000 limit 10",
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libforebay_sqlite.so")
    parser.add_argument("--database", required=True)
    parser.add_argument("--make", type=int, metavar="ROWS", help="write the database first")
    parser.add_argument("--make-chain", type=int, metavar="ROWS", help="add the tables of the longer joins to one of so many rows")
    parser.add_argument("--make-long", action="store_true", help="add the tables of long rows to one made before they were")
    parser.add_argument("--mode", choices=["cold", "warm", "own"], default="cold")
    parser.add_argument("--drop-caches", action="store_true", help="drop all of the page cache, as root")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1, help="run the query so many times in a run, warm or own")
    parser.add_argument("--query", default="index", help="SQL, mix, or one of " + ", ".join(QUERIES))
    parser.add_argument("--pragma", action="append", default=[], metavar="NAME=VALUE", help="set in each run, before the query")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("variants", nargs="*", default=["stock", "forebay"])
    args = parser.parse_args()
    for path in [args.library] + ([] if args.make else [args.database]):
        if not os.path.exists(path):
            parser.error(f"{path} is not there: build the library, and make a database with --make 2000000")
    return args


def make(path, rows):
    """Rows come in the order of their ids, so the index leads to all places of the table."""
    chance = random.Random(14)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma journal_mode=off")
    db.execute("pragma synchronous=off")
    db.execute("create table t(id integer primary key, k integer, payload blob)")
    db.execute("begin")
    db.executemany(
        "insert into t(k, payload) values (?, ?)",
        ((chance.randrange(10**9), chance.randbytes(780)) for _ in range(rows)),
    )
    db.execute("commit")
    db.execute("create index t_k on t(k)")
    db.execute("create table j(id integer primary key, n integer, t_id integer)")
    db.execute("begin")
    links = ((chance.randrange(100), chance.randrange(rows) + 1) for _ in range(40000))
    db.executemany("insert into j(n, t_id) values (?, ?)", links)
    db.execute("commit")
    db.execute("create table f(id integer primary key, payload blob)")
    ids = chance.sample(range(rows), rows // 10)
    for some in ids, chance.sample(ids, len(ids) // 2):
        db.execute("begin")
        db.executemany("delete from f where id = ?", ([row] for row in some))
        db.executemany("insert into f values (?, ?)", ((row, chance.randbytes(780)) for row in some))
        db.execute("commit")
    db.execute("create table v(id integer primary key, payload blob)")
    db.execute("insert into v select * from f order by id")
    db.close()
    make_chain(path, rows)
    make_long(path)


def make_chain(path, rows):
    """The tables of the longer joins."""
    chance = random.Random(15)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma synchronous=off")
    some = rows // 10
    db.execute("create table m(id integer primary key, payload blob, t_id integer)")
    db.execute("create table w(k integer primary key, payload blob) without rowid")
    db.execute("create table c(id integer primary key, m_id integer, w_k integer, k integer)")
    db.execute("begin")
    middle = ((chance.randbytes(780), chance.randrange(rows) + 1) for _ in range(some))
    db.executemany("insert into m(payload, t_id) values (?, ?)", middle)
    db.executemany("insert into w values (?, ?)", ((row * 3, chance.randbytes(780)) for row in range(some)))
    links = ((chance.randrange(some) + 1, 3 * chance.randrange(some), chance.randrange(rows) + 1) for _ in range(some // 5))
    db.executemany("insert into c(m_id, w_k, k) select ?, ?, k from t where id = ?", links)
    db.execute("commit")
    db.close()


def make_long(path, rows=2000):
    """Rows that go on in overflow pages, which follow each other in the file, and such as do not."""
    chance = random.Random(16)
    row = lambda id: (id, chance.randrange(10**9), chance.randbytes(chance.randrange(5 << 10, 200 << 10)))
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("pragma synchronous=off")
    for table, ids in ("o", range(rows)), ("p", chance.sample(range(rows), rows)):
        db.execute(f"create table {table}(id integer primary key, k integer, payload blob)")
        db.execute("begin")
        db.executemany(f"insert into {table} values (?, ?, ?)", map(row, ids))
        db.execute("commit")
    for some in chance.sample(range(rows), rows // 2), chance.sample(range(rows), rows // 2):
        db.execute("begin")
        db.executemany("delete from p where id = ?", ([id] for id in some))
        db.executemany("insert into p values (?, ?, ?)", map(row, some))
        db.execute("commit")
    for table in "op":
        db.execute(f"create index {table}_k on {table}(k)")
    db.close()


def empty_cache(path, everything):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if everything:
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("3")


def fill_cache(path):
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


def mix(db, chance):
    """In the manner of SQLite's speedtest1: what a program does all day. Returns what the queries answered, in sum."""
    rows = 100_000
    total = 0
    db.execute("create table a(id integer primary key, k integer, text text)")
    db.execute("create table b(id integer primary key, a_id integer, n integer)")
    db.execute("create table w(k integer primary key, text text) without rowid")
    word = lambda: "text %d " % chance.randrange(10**6)
    for _ in range(10):
        db.execute("begin")
        db.executemany("insert into a(k, text) values (?, ?)", ((chance.randrange(10**9), word() * 30) for _ in range(rows // 10)))
        db.execute("commit")
    db.execute("create index a_k on a(k)")
    db.execute("begin")
    db.executemany("insert into b(a_id, n) values (?, ?)", ((chance.randrange(rows) + 1, row % 100) for row in range(rows // 2)))
    db.executemany("insert into w values (?, ?)", ((chance.randrange(10**9), word() * 9) for _ in range(rows // 4)))
    db.execute("commit")
    db.execute("create index b_n on b(n)")
    for _ in range(3):
        for _ in range(rows // 5):
            total += len(db.execute("select text from a where id = ?", [chance.randrange(rows)]).fetchall())
        for _ in range(rows // 100):
            low = chance.randrange(10**9)
            total += db.execute("select count(*), sum(length(text)) from a where k between ? and ?", [low, low + 10**6]).fetchone()[0]
        total += db.execute("select count(*) from a where text like '%99%'").fetchone()[0]
        total += db.execute("select count(*), sum(length(a.text)) from b cross join a on a.id = b.a_id").fetchone()[1]
        total += db.execute("select sum(length(a.text)) from b cross join a on a.id = b.a_id where b.n < 10").fetchone()[0]
        total += len(db.execute("select k % 100, count(*), max(text) from w group by 1 order by 2").fetchall())
        for _ in range(10):
            db.execute("begin")
            db.executemany("update a set k = k + 1, text = ? where id = ?", ([word() * 30, chance.randrange(rows)] for _ in range(300)))
            db.executemany("delete from b where id = ?", ([chance.randrange(rows // 2)] for _ in range(300)))
            db.executemany("insert or replace into w values (?, ?)", ([chance.randrange(10**9), word() * 9] for _ in range(300)))
            db.execute("commit")
    return total


def one_run(library, path, variant, sql, own, repeat, pragmas):
    """What the child does: prints seconds, bytes read from the device, the answer, and forebay's counts."""
    name, _, extra = variant.partition(":")
    if name == "stock":
        db = sqlite3.connect(path, isolation_level=None)
    else:
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.execute("select load_extension(?)", [library])
        db = sqlite3.connect(f"file:{path}?vfs=forebay&{extra.replace(',', '&')}", uri=True, isolation_level=None)
    for pragma in pragmas:
        db.execute("pragma " + pragma)
    if own:
        db.execute("pragma cache_size=-4000000")
        if sql != "mix":
            db.execute(sql).fetchall()
    begin = time.perf_counter()
    for _ in range(repeat):
        rows = [mix(db, random.Random(16))] if sql == "mix" else db.execute(sql).fetchall()
    seconds = time.perf_counter() - begin
    stats = db.execute("pragma forebay_stats").fetchone()
    with open("/proc/self/io") as io:
        read = int(dict(line.split(": ") for line in io.read().splitlines())["read_bytes"])
    print(json.dumps({"seconds": seconds, "read_mb": read / 1e6, "answer": rows[:1], "stats": stats}))


def main():
    if sys.argv[1:2] == ["--one-run"]:
        library, path, variant, sql, own, repeat, *pragmas = sys.argv[2:]
        one_run(library, path, variant, sql, own == "own", int(repeat), pragmas)
        return
    args = arguments()
    sql = QUERIES.get(args.query, args.query)
    if args.make:
        make(args.database, args.make)
    if args.make_chain:
        make_chain(args.database, args.make_chain)
    if args.make_long:
        make_long(args.database)
    runs = {variant: [] for variant in args.variants}
    for _ in range(args.rounds):
        for variant in args.variants:
            path = args.database
            if sql == "mix":
                path += ".mix"
                if os.path.exists(path):
                    os.remove(path)
            elif args.mode == "cold":
                empty_cache(args.database, args.drop_caches)
            else:
                fill_cache(args.database)
            command = [sys.executable, __file__, "--one-run", os.path.abspath(args.library), path]
            command += [variant, sql, args.mode, str(args.repeat), *args.pragma]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            runs[variant].append(json.loads(out))
    if sql == "mix" and args.rounds:
        os.remove(path)
    answers = {json.dumps(run["answer"]) for all_runs in runs.values() for run in all_runs}
    if not args.rounds:
        return
    first = runs[args.variants[0]]
    for variant, these in runs.items():
        ratios = [one["seconds"] / two["seconds"] for one, two in zip(first, these)]
        print(
            f"{variant:30} median {statistics.median(run['seconds'] for run in these):8.4f} s,"
            f" {statistics.geometric_mean(ratios):6.3f} times as fast"
            f" ({min(ratios):.3f} to {max(ratios):.3f}), read {statistics.median(run['read_mb'] for run in these):.1f} MB"
            f"  {(these[-1]['stats'] or [''])[0]}"
        )
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"query": sql, "mode": args.mode, "runs": runs}, file, indent=1)
    if len(answers) != 1:
        sys.exit("the answers differ: " + " ".join(sorted(answers)))


if __name__ == "__main__":
    main()
