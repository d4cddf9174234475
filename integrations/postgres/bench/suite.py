#!/usr/bin/env python3
"""Times a suite of queries on a PostgreSQL cluster with and without forebay, in interleaved rounds.

  suite.py dense --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --load
  suite.py dense --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --readahead 128,8192 --device vda --json dense-15.json

  tpchgen-cli csv -s 2 --output-dir /srv/tpch
  suite.py tpch --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --load --data /srv/tpch
  suite.py tpch --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --queries "Q2$|Q8"

A suite is a directory of suites/: its tables, its indexes, its queries, and the settings of its sessions. The cluster
is one without users, stopped. Each run has a server just started, with forebay in shared_preload_libraries or without;
for a cold run the kernel's page cache is dropped before (root), for --warm the query is run once before it is timed.
--readahead sets the device's readahead to each of these KiB in turn, and restores it at the end.
"""

import argparse
import json
import math
import os
import random
import re
import signal
import statistics
import sys

import queries as bench

SUITES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suites")
SEPARATOR = "the rows of the timed query"
SETTINGS = "shared_buffers=128MB,work_mem=64MB,fsync=off,max_wal_size=8GB"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=sorted(os.listdir(SUITES)))
    parser.add_argument("--cluster", required=True, help="data directory")
    parser.add_argument("--pg-config", default="pg_config")
    parser.add_argument("--library", required=True, action="append", metavar="[NAME=]FILE", help="forebay.so, built for that server; may be given several times, to compare versions")
    parser.add_argument("--load", action="store_true", help="make the tables, in the database postgres, and end")
    parser.add_argument("--data", help="a directory with a file TABLE.csv for each table that is not made by a query")
    parser.add_argument("--queries", default="", help="those whose names match this regular expression (all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--readahead", help="KiB, such as 128,8192; needs --device")
    parser.add_argument("--device", help="the block device of the cluster, such as vda")
    parser.add_argument("--server", default=SETTINGS, help=f"settings of the server ({SETTINGS})")
    parser.add_argument("--json", help="write all figures to this file, after each query")
    args = parser.parse_args()
    if args.readahead and not args.device:
        parser.error("--readahead needs --device")
    if args.readahead and not os.access(setting_of(args), os.W_OK):
        parser.error(f"--readahead: {setting_of(args)} cannot be written: --device is a name in /sys/block, and it takes root")
    if args.data and not os.path.isdir(args.data):
        parser.error(f"--data: {args.data} is not a directory")
    try:
        re.compile(args.queries)
    except re.error as error:
        parser.error(f"--queries: {error}")
    args.mode = "warm" if args.warm else "cold"
    named = [library.rpartition("=") for library in args.library]
    args.libraries = {name or "forebay": os.path.abspath(file) for name, _, file in named}
    if "stock" in args.libraries or len(named) != len(args.libraries):
        parser.error("--library: each needs a name of its own, other than stock")
    for file in args.libraries.values():
        if not os.path.isfile(file):
            parser.error(f"--library: there is no {file}")
    args.library = next(iter(args.libraries.values()))
    return args


def setting_of(args):
    return f"/sys/block/{args.device}/queue/read_ahead_kb"


def path_of(args, name):
    return os.path.join(SUITES, args.suite, name)


def read(args, name):
    with open(path_of(args, name), encoding="utf-8") as file:
        return file.read()


def load(server, args):
    server.start()
    print("tables", file=sys.stderr)
    server.file(path_of(args, "tables.sql"))
    for name in sorted(os.listdir(args.data)) if args.data else []:
        table, extension = os.path.splitext(name)
        if extension == ".csv":
            print(f"loading {table}", file=sys.stderr)
            path = os.path.join(os.path.abspath(args.data), name)
            server.sql([f"\\copy {table} from '{path}' (format csv, header)"])
    print("indexes", file=sys.stderr)
    server.file(path_of(args, "indexes.sql"))
    server.sql(["vacuum analyze"])
    server.sql(["checkpoint"])


def chosen(args):
    """The queries by name."""
    parts = (part.split("\n", 1) for part in read(args, "queries.sql").split("-- query ")[1:])
    return {name: query.strip() for name, query in parts if re.search(args.queries, name)}


def measure(server, args, query, variant):
    statements = [f"set {name} = '{value}'" for name, value in bench.pairs(read(args, "settings").strip()).items()]
    if args.warm:
        statements.append(query)
    else:
        bench.drop_caches()
    server.start(preload=args.libraries.get(variant))
    output = server.sql([*statements, f"select '{SEPARATOR}'", "\\timing on", query, "\\timing off"])
    server.stop()
    times = re.findall(r"Time: ([\d.]+) ms", output)
    rows = output.split(SEPARATOR)[1].split("Time:")[0]
    return float(times[-1]) / 1000, rows


def run(server, args, queries, readahead, results):
    if readahead:
        with open(setting_of(args), "w", encoding="ascii") as file:
            file.write(readahead)
    for name, query in queries.items():
        times = {variant: [] for variant in ("stock", *args.libraries)}
        answers = []
        for round_ in range(args.rounds):
            for variant in random.Random(f"{name} {round_}").sample(sorted(times), len(times)):
                seconds, rows = measure(server, args, query, variant)
                times[variant].append(seconds)
                answers.append(rows)
        if any(rows != answers[0] for rows in answers):
            sys.exit(f"{name}: the rows differ")
        results.append({"query": name, "readahead_kib": readahead, "seconds": times})
        show(results[-1])
        if args.json:
            save(server, args, results)
    for variant in args.libraries:
        ratios = [ratio(result, variant)[0] for result in results if result["readahead_kib"] == readahead]
        print(f"geometric mean, {variant}: {math.exp(statistics.mean(map(math.log, ratios))):.2f}")


def ratio(result, variant):
    """How many times as fast as stock: the median of the rounds, the lowest, the highest."""
    seconds = result["seconds"]
    each = sorted(stock / ours for stock, ours in zip(seconds["stock"], seconds[variant]))
    return statistics.median(each), each[0], each[-1]


def show(result):
    label = result["query"] + (f", readahead {result['readahead_kib']} KiB" if result["readahead_kib"] else "")
    line = f"{label:40} stock {statistics.median(result['seconds']['stock']):7.2f} s"
    for variant, seconds in list(result["seconds"].items())[1:]:
        line += f", {variant} {statistics.median(seconds):7.2f} s"
        line += "   {:.2f} times as fast ({:.2f} to {:.2f})".format(*ratio(result, variant))
    print(line, flush=True)


def save(server, args, results):
    version = server.run(f"{server.bin}/postgres", "--version").strip()
    record = {"arguments": vars(args), "server": version, "kernel": os.uname().release, "results": results}
    with open(args.json, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    args = arguments()
    server = bench.Server(args)
    before = None
    try:
        if args.load:
            load(server, args)
            return
        queries = chosen(args)
        if not queries:
            sys.exit(f"no query's name matches {args.queries}")
        if args.readahead:
            with open(setting_of(args), encoding="ascii") as file:
                before = file.read()
        results = []
        for readahead in (args.readahead or "").split(","):
            run(server, args, queries, readahead, results)
    except KeyboardInterrupt:
        sys.exit("interrupted: the server is stopped, and the readahead as it was")
    finally:
        server.close()
        if before:
            with open(setting_of(args), "w", encoding="ascii") as file:
                file.write(before)


if __name__ == "__main__":
    main()
