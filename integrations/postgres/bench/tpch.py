#!/usr/bin/env python3
"""Times the 22 queries of TPC-H on a PostgreSQL cluster with and without forebay, in interleaved rounds.

  tpchgen-cli csv -s 2 --output-dir /srv/tpch
  tpch.py --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --load /srv/tpch
  tpch.py --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --readahead 128,8192 --device vda --json tpch-15.json

The cluster is one without users, stopped. Each cold run has a server just started, and the kernel's page cache dropped
(root). For --warm each query is run once before it is timed. --readahead sets the device's readahead to each of these
KiB in turn, and restores it at the end.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import sys

import queries as one

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tpch")
TABLES = ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"]
SETTINGS = "shared_buffers=128MB,work_mem=64MB,max_parallel_workers_per_gather=0,random_page_cost=1.1,fsync=off,max_wal_size=8GB"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True, help="data directory")
    parser.add_argument("--pg-config", default="pg_config")
    parser.add_argument("--library", required=True, type=os.path.abspath, help="forebay.so, built for that server")
    parser.add_argument("--load", help="a directory with the tables as CSV files, to load into the database postgres")
    parser.add_argument("--queries", default="1-22", help="such as 2,5-9 (all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--readahead", help="KiB, such as 128,8192; needs --device")
    parser.add_argument("--device", help="the block device of the cluster, such as vda")
    parser.add_argument("--server", default=SETTINGS, help=f"settings of the server ({SETTINGS})")
    parser.add_argument("--json", help="write all figures to this file, after each query")
    args = parser.parse_args()
    if args.readahead and not args.device:
        parser.error("--readahead needs --device")
    args.mode = "warm" if args.warm else "cold"
    return args


def read(name):
    with open(os.path.join(FILES, name), encoding="utf-8") as file:
        return file.read()


def load(server, directory):
    server.start()
    server.sql([read("tables.sql")])
    for table in TABLES:
        print(f"loading {table}", file=sys.stderr)
        path = os.path.join(os.path.abspath(directory), f"{table}.csv")
        server.sql([f"\\copy {table} from '{path}' (format csv, header)"])
    print("indexing", file=sys.stderr)
    server.sql([read("indexes.sql")])
    server.sql(["vacuum analyze"])
    server.sql(["checkpoint"])


def numbers(text):
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def measure(server, args, query, variant):
    statements = [] if variant == "stock" else [f"load '{args.library}'"]
    if args.warm:
        statements.append(query)
    else:
        one.drop_caches()
        server.start()
    output = server.sql([*statements, "select 1", "\\timing on", query, "\\timing off"])
    if not args.warm:
        server.stop()
    times = re.findall(r"Time: ([\d.]+) ms", output)
    rows = output.split("Time:")[0].splitlines()
    return float(times[-1]) / 1000, rows[rows.index("1") + 1 :] if not args.warm else None


def run(server, args, queries, readahead, results):
    if readahead:
        with open(f"/sys/block/{args.device}/queue/read_ahead_kb", "w", encoding="ascii") as file:
            file.write(readahead)
    if args.warm:
        server.start()
    for number in numbers(args.queries):
        times = {"stock": [], "forebay": []}
        answers = []
        for round_ in range(args.rounds):
            for variant in random.Random(round_ * 100 + number).sample(sorted(times), 2):
                seconds, rows = measure(server, args, queries[number], variant)
                times[variant].append(seconds)
                answers.append(rows)
        if any(rows != answers[0] for rows in answers):
            sys.exit(f"Q{number}: the rows differ")
        results.append({"query": number, "readahead_kib": readahead, "seconds": times})
        show(results[-1])
        if args.json:
            save(server, args, results)
    if args.warm:
        server.stop()
    ratios = [ratio(one_) for one_ in results if one_["readahead_kib"] == readahead]
    print(f"geometric mean: {math.exp(statistics.mean(math.log(it[0]) for it in ratios)):.2f}")


def ratio(result):
    each = sorted(stock / ours for stock, ours in zip(result["seconds"]["stock"], result["seconds"]["forebay"]))
    return statistics.median(each), each[0], each[-1]


def show(result):
    stock, ours = (statistics.median(result["seconds"][variant]) for variant in ("stock", "forebay"))
    label = f"Q{result['query']}" + (f", readahead {result['readahead_kib']} KiB" if result["readahead_kib"] else "")
    print(f"{label:28} {stock:8.2f} s {ours:8.2f} s" + "   {:.2f} times as fast ({:.2f} to {:.2f})".format(*ratio(result)), flush=True)


def save(server, args, results):
    version = server.run(f"{server.bin}/postgres", "--version").strip()
    record = {"arguments": vars(args), "server": version, "kernel": os.uname().release, "results": results}
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)


def main():
    args = arguments()
    server = one.Server(args)
    setting = f"/sys/block/{args.device}/queue/read_ahead_kb"
    before = None
    try:
        if args.load:
            load(server, args.load)
            return
        queries = {int(part.split("\n", 1)[0]): part.split("\n", 1)[1].strip() for part in read("queries.sql").split("-- Q")[1:]}
        if args.readahead:
            with open(setting, encoding="ascii") as file:
                before = file.read()
        results = []
        for readahead in (args.readahead or "").split(","):
            run(server, args, queries, readahead, results)
    except KeyboardInterrupt:
        sys.exit("interrupted: the server is stopped, and the readahead as it was")
    finally:
        server.close()
        if before:
            with open(setting, "w", encoding="ascii") as file:
                file.write(before)


if __name__ == "__main__":
    main()
