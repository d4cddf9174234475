#!/usr/bin/env python3
"""What `forebay advise postgres` says of a server on an emulated disk, compared with an exhaustive search on that server.

  advised.py --forebay target/release/forebay --profile 7200rpm --mount /mnt/x --json 7200rpm.json

A cluster is made on the disk (root; the disk's time stands still meanwhile), the advice is taken, and then each value is
tried without it, the caches dropped before each run: effective_io_concurrency by a bitmap scan, and random_page_cost by index scans
and sequential scans of growing shares of the table, until they cross. Everything is removed afterwards.
"""

import argparse
import json
import math
import os
import pwd
import random
import re
import statistics
import subprocess
import tempfile
import time

VALUES = [0, 1, 4, 16, 64, 256, 1000]
FACTORS = [0.5, 0.7, 1.0, 1.4, 2.0]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", required=True, help="the program")
    parser.add_argument("--pg-config", default="pg_config")
    parser.add_argument("--profile", required=True, help="see forebay emulate --list")
    parser.add_argument("--mount", required=True, help="an empty directory")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of about 260 bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write all figures to this file")
    return parser.parse_args()


class Server:
    """A cluster on an emulated disk."""

    def __init__(self, args, programs):
        self.args, self.mount, self.bin = args, os.path.abspath(args.mount), programs
        self.owner = pwd.getpwnam("postgres")
        self.sockets = tempfile.mkdtemp(prefix="fb-")
        os.chown(self.sockets, self.owner.pw_uid, self.owner.pw_gid)
        self.disk, self.place = None, None
        try:
            if args.profile != "real":
                self.emulate(args)
        except BaseException:
            self.close()
            raise

    def emulate(self, args):
        command = [args.forebay, "emulate", args.profile, self.mount, "--size", "8GiB", "--memory", "4GiB"]
        self.disk = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(f"{self.mount}/.forebay/control"):
            if self.disk.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ends with {self.disk.returncode}")
            time.sleep(0.1)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, user=self.owner.pw_uid, group=self.owner.pw_gid, cwd="/")
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def control(self, what):
        with open(f"{self.mount}/.forebay/control", "w", encoding="ascii") as control:
            control.write(f"{what}\n")

    def timing(self, how):
        if self.disk:
            self.control(f"timing {how}")

    def make(self, fsync=False):
        self.timing("off")
        place = f"{self.mount}/place"
        try:
            os.mkdir(place)
        except OSError as error:
            raise SystemExit(f"--mount: {error}") from None
        self.place = place
        data = f"{place}/data"
        os.mkdir(data)
        os.chown(data, self.owner.pw_uid, self.owner.pw_gid)
        os.chmod(data, 0o700)
        self.run(f"{self.bin}/initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={self.sockets} -c shared_buffers=16MB -c fsync={'on' if fsync else 'off'}"
        options += " -c max_wal_size=4GB -c autovacuum=off -c jit=off -c max_parallel_workers_per_gather=0"
        self.run(f"{self.bin}/pg_ctl", "-D", data, "-l", f"{self.sockets}/log", "-o", options, "-w", "start")
        self.data = data
        self.sql(
            f"create table t as select g id, hashint4(g) k, repeat('x', 220) x from generate_series(1, {self.args.rows}) g",
            "create index t_k on t (k)",
            "vacuum analyze t",
            "checkpoint",
        )
        self.keys = [int(line) for line in self.sql("select k from t order by k").split()]
        os.sync()
        self.timing("on")

    def sql(self, *statements):
        command = [f"{self.bin}/psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.sockets, "-U", "postgres", "postgres"]
        for statement in statements:
            command += ["-c", statement]
        return self.run(*command)

    def range(self, share):
        start = random.random() * (1 - share)
        low, high = (self.keys[int(at * (len(self.keys) - 1))] for at in (start, start + share))
        return f"select count(ctid) from t where k >= {low} and k < {high}"

    def seconds(self, share, **settings):
        """One run from cold caches; buffers of 16 MiB hold little of the table."""
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")
        assignments = [f"set {name} = {value}" for name, value in settings.items()]
        # The session's start and the catalogs come before it.
        warm = "select relname from pg_class where relname = 't'"
        plan = self.sql(*assignments, warm, f"explain (analyze, timing off) {self.range(share)}")
        return float(re.search(r"Execution Time: ([\d.]+)", plan)[1]) / 1e3

    def advice(self, *more):
        path = f"{self.sockets}/advice.json"
        began = time.monotonic()
        command = [self.args.forebay, "advise", "postgres", "--dsn", f"host={self.sockets} user=postgres dbname=postgres"]
        done = subprocess.run([*command, "--drop-caches", "--rounds", str(self.args.rounds), "--json", path, *more], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        print(done.stdout, flush=True)
        with open(path, encoding="utf-8") as file:
            return json.load(file), time.monotonic() - began

    def close(self):
        if self.place:
            data = f"{self.place}/data"
            subprocess.run([f"{self.bin}/pg_ctl", "-D", data, "-m", "immediate", "stop"], user=self.owner.pw_uid, check=False, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self.disk:
            self.disk.send_signal(2)
            self.disk.wait()
        elif self.place:
            subprocess.run(["rm", "-rf", self.place], check=False)
        subprocess.run(["rm", "-rf", self.sockets], check=False)


def crossing(server, share, rounds):
    """The share at which the scans take as long as each other, between those of a grid around `share`."""
    only = {"index": {"enable_seqscan": "off"}, "sequential": {"enable_indexscan": "off"}}
    found = []
    for factor in FACTORS:
        at = min(share * factor, 0.95)
        times = {name: [] for name in only}
        for _ in range(rounds):
            for name in random.sample(list(only), 2):
                times[name].append(server.seconds(at, enable_bitmapscan="off", **only[name]))
        found.append({"share": at, **times})
    logs = [(math.log(it["share"]), math.log(statistics.median(it["index"]) / statistics.median(it["sequential"]))) for it in found]
    for (x0, y0), (x1, y1) in zip(logs, logs[1:]):
        if y0 < 0 <= y1:
            return math.exp(x0 + (x1 - x0) * -y0 / (y1 - y0)), found
    return None, found


def concurrency(server, values, rounds):
    """Seconds of a bitmap scan of 1 % with each value."""
    times = {value: [] for value in values}
    for _ in range(rounds):
        for value in random.sample(values, len(values)):
            bitmap = {"enable_seqscan": "off", "enable_indexscan": "off"}
            times[value].append(server.seconds(0.01, effective_io_concurrency=value, **bitmap))
    return times


def main():
    args = arguments()
    asked = subprocess.run([args.pg_config, "--bindir"], capture_output=True, text=True, check=True)
    server = Server(args, asked.stdout.strip())
    try:
        server.make()
        advice, took = server.advice()
        settings = {it["setting"]: it["advised"] for it in advice["proposals"]}
        report = {"arguments": vars(args), "server": server.sql("select version()").strip(), "advice_seconds": took, "proposals": settings}
        default = int(server.sql("show effective_io_concurrency"))
        chosen = int(settings.get("effective_io_concurrency", default))
        times = concurrency(server, sorted({*VALUES, default, chosen}), args.rounds)
        middle = {value: statistics.median(all_of) for value, all_of in times.items()}
        best = min(middle, key=middle.get)
        print(f"{args.profile}: effective_io_concurrency {chosen}: {middle[best] / middle[chosen]:.2f} of the best ({best}), "
              f"{middle[default] / middle[chosen]:.2f} times as fast as the default")
        report["effective_io_concurrency"] = {"chosen": chosen, "best": best, "default": default, "seconds": times}
        for it in advice["crossings"]:
            real, found = crossing(server, it["share"], args.rounds)
            report["crossing"] = {"advised": it, "real_share": real, "runs": found}
            said = "outside of the grid" if real is None else f"{real * 100:.3f} %: with the advice the planner is at {it['advised_share'] / real:.2f} of it, by default at {it['planned_share'] / real:.2f}"
            print(f"{args.profile}: random_page_cost {it['advised']} crosses at {it['advised_share'] * 100:.3f} %; really {said}")
        if args.json:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
    finally:
        server.close()


if __name__ == "__main__":
    main()
