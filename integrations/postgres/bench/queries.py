#!/usr/bin/env python3
"""Times one query or command on a PostgreSQL cluster with and without forebay, in interleaved rounds.

Each variant is NAME or NAME:setting=value,... ; one whose name begins with "off" does not load the library. The
first one is what the others are compared with, round by round.

  cold   each run has a server just started, and the kernel's page cache dropped (root)
  cache  shared_buffers is small, the data is in the page cache
  warm   the data is in shared_buffers

  queries.py --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --mode cold --rounds 5 \\
      --query "select count(abalance) from pgbench_accounts where hashint4(aid) between 0 and 12000000" \\
      --set enable_bitmapscan=off,enable_seqscan=off off on on64:forebay.distance_max=64

  queries.py --cluster /srv/pg15 --library $PWD/build/15.*/forebay.so --rounds 7 --server shared_buffers=32MB \\
      --command "copy t from '/srv/rows.{run}'" off on

A command is rolled back. {run} in it is the number of the run, from 0 on, as rows that were rolled back stay in the indexes.

The cluster is one without users, stopped; it is started with settings on the command line and stopped again.
"""

import argparse
import itertools
import json
import os
import pwd
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile


RUNS = itertools.count()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True, help="data directory")
    parser.add_argument("--pg-config", default="pg_config")
    parser.add_argument("--library", required=True, type=os.path.abspath, help="forebay.so, built for that server")
    parser.add_argument("--mode", choices=["cold", "cache", "warm"], default="cold")
    parser.add_argument("--rounds", type=int, default=5)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--query", help="timed by EXPLAIN (ANALYZE)")
    what.add_argument("--command", help="timed by psql")
    parser.add_argument("--set", default="", help="settings of all variants, a=b,c=d")
    parser.add_argument("--server", default="", help="settings of the server, a=b,c=d")
    parser.add_argument("--warm-up", default="", help="a query that is run first in every session")
    parser.add_argument("--device", help="count the requests of this block device, such as vda")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--plan", action="store_true", help="print each variant's plan once")
    parser.add_argument("variants", nargs="+")
    return parser.parse_args()


def pairs(text):
    """a=b,c=d as a dictionary; a comma in a value is not provided for."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


class Server:
    """The cluster, run as the owner of its directory."""

    def __init__(self, args):
        try:
            asked = subprocess.run([args.pg_config, "--bindir"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"--pg-config: {error}")
        self.bin = asked.stdout.strip()
        self.data = os.path.abspath(args.cluster)
        for path in (os.path.join(self.data, "PG_VERSION"), args.library):
            if not os.path.exists(path):
                sys.exit(f"{path} is not there: --cluster is a data directory, --library the forebay.so built for it")
        self.owner = pwd.getpwuid(os.stat(self.data).st_uid)
        self.sockets = tempfile.mkdtemp(prefix="fb-")
        os.chown(self.sockets, self.owner.pw_uid, self.owner.pw_gid)
        settings = {"listen_addresses": "", "port": "5432", "unix_socket_directories": self.sockets}
        settings |= {"max_parallel_workers_per_gather": "0", "jit": "off"} | pairs(args.server)
        self.options = " ".join(f"-c {key}={value or chr(39) * 2}" for key, value in settings.items())
        self.running = False

    def run(self, *command, text=None):
        def become_owner():
            if os.getuid() == 0:
                os.setgid(self.owner.pw_gid)
                os.setuid(self.owner.pw_uid)

        done = subprocess.run(command, input=text, capture_output=True, text=True, preexec_fn=become_owner, cwd="/")
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, preload=None):
        log = os.path.join(self.sockets, "log")
        options = self.options + (f" -c shared_preload_libraries={preload}" if preload else "")
        self.run(f"{self.bin}/pg_ctl", "-D", self.data, "-l", log, "-o", options, "-w", "start")
        self.running = True

    def close(self):
        self.stop()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def stop(self):
        if self.running:
            self.running = False
            self.run(f"{self.bin}/pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")

    def psql(self, *arguments, text=None):
        command = [f"{self.bin}/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.sockets]
        return self.run(*command, "-U", self.owner.pw_name, *arguments, "postgres", text=text)

    def sql(self, statements):
        return self.psql(*(part for statement in statements for part in ("-c", statement)))

    def file(self, path):
        """Executes a file, which the owner of the cluster need not be able to read."""
        with open(path, encoding="utf-8") as file:
            return self.psql("-f", "-", text=file.read())


def drop_caches():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
    except OSError as error:
        sys.exit(f"the page cache cannot be dropped, which --mode cold needs root for: {error}")


def device_reads(device):
    """Read requests and bytes that a block device has executed so far."""
    with open(f"/sys/block/{device}/stat", encoding="ascii") as file:
        fields = file.read().split()
    return int(fields[0]), int(fields[2]) * 512


def measure(server, args, variant):
    """Milliseconds of one run, and what the device read meanwhile."""
    name, _, own = variant.partition(":")
    statements = [] if name.startswith("off") else [f"load '{args.library}'"]
    statements += [f"set {key} = '{value}'" for key, value in (pairs(args.set) | pairs(own)).items()]
    if args.warm_up:
        statements.append(args.warm_up)
    before = None
    if args.mode == "cold":
        drop_caches()
        server.start()
    if args.device:
        # The session's own start reads catalogs: the difference of variants is what counts.
        before = device_reads(args.device)
    if args.command:
        command = args.command.replace("{run}", str(next(RUNS)))
        # The first command of a session reads catalogs.
        plan = server.sql([*statements, "select 1", "begin", "\\timing on", command, "\\timing off", "rollback"])
        figures = {"ms": float(re.search(r"Time: ([\d.]+) ms", plan)[1])}
    else:
        plan = server.sql([*statements, f"explain (analyze, buffers, timing off, summary on) {args.query}"])
        figures = {"ms": float(re.search(r"Execution Time: ([\d.]+)", plan)[1])}
    if before:
        after = device_reads(args.device)
        figures |= {"requests": after[0] - before[0], "mib": (after[1] - before[1]) / 2**20}
    if args.mode == "cold":
        server.stop()
    return figures, plan


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    args = arguments()
    server = Server(args)
    figures = {variant: [] for variant in args.variants}
    plans = {}
    try:
        if args.mode != "cold":
            server.start()
            for _ in range(2):
                measure(server, args, args.variants[0])
        for number in range(args.rounds):
            for variant in random.Random(number).sample(args.variants, len(args.variants)):
                one, plans[variant] = measure(server, args, variant)
                figures[variant].append(one)
                print(f"round {number + 1} of {args.rounds}: {variant} {one['ms']:.0f} ms", file=sys.stderr)
    except KeyboardInterrupt:
        sys.exit("interrupted: the server is stopped, and no figures are printed")
    finally:
        server.close()
    base = args.variants[0]
    for variant, runs in figures.items():
        if args.plan:
            print(plans[variant])
        ratios = sorted(other["ms"] / own["ms"] for other, own in zip(figures[base], runs))
        line = f"{variant:32} {statistics.median(run['ms'] for run in runs):10.1f} ms"
        line += f"   {statistics.median(ratios):6.3f} times as fast ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        if args.device:
            line += f"   {statistics.median(run['requests'] for run in runs):.0f} requests"
            line += f", {statistics.median(run['mib'] for run in runs):.1f} MiB"
        print(line)
    if args.json:
        record = {"arguments": vars(args), "server": server.run(f"{server.bin}/postgres", "--version").strip()}
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(record | {"kernel": os.uname().release, "figures": figures}, file, indent=1)


if __name__ == "__main__":
    main()
