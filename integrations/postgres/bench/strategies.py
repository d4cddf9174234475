#!/usr/bin/env python3
"""Readahead strategies of the extension compared with stock PostgreSQL: the experiments of the thread "Optimize kernel
readahead using buffer access strategy", on a prepared cluster.

Scans are single queries, each with the page cache dropped and shared buffers too small to matter. pgbench and the mix in
the manner of TPC-C run for some seconds each, in a memory cgroup if the data is not to fit. The variants take turns, in
another order every round; what counts is the median. Results are added to those in the output file, so that rounds can
be run a few at a time.

The cluster: pgbench's tables (scale 200 for the published figures), with
    create index acc_hash on pgbench_accounts (hashint4(aid));
and for the mix a database `tpcc`, made with --load-tpcc. It is started and stopped by this program. Root is needed: for
the page cache, the device's readahead and the cgroup."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ["os", "hint", "max", "adaptive"]
HASH = "where hashint4(aid) between 0 and {}"
PLAN = {
    "sequential": "enable_indexscan=off enable_bitmapscan=off enable_indexonlyscan=off",
    "index": "enable_seqscan=off enable_bitmapscan=off",
    "bitmap": "enable_seqscan=off enable_indexscan=off",
}
# Name: kind of plan, query. Index scans do not look ahead where a strategy is measured alone.
SCANS = {
    "seqscan": ("sequential", "select count(abalance) from pgbench_accounts where aid <= 8000000"),
    "index-random": ("index", "select count(abalance) from pgbench_accounts " + HASH.format(2400000)),
    "index-clustered": ("index", "select count(abalance) from pgbench_accounts where aid between 1000000 and 4000000"),
    "index-only": ("index", "select count(aid) from pgbench_accounts where aid between 4000000 and 16000000"),
    "bitmap": ("bitmap", "select count(abalance) from pgbench_accounts " + HASH.format(12000000)),
    "vacuum": (None, "vacuum (disable_page_skipping, index_cleanup off, truncate off) pgbench_accounts"),
    "analyze": (None, "analyze pgbench_accounts"),
}
TPCC = {"new_order": 45, "payment": 43, "order_status": 4, "delivery": 4, "stock_level": 4}


class Server:
    """A cluster, started for the time of a `with`."""

    def __init__(self, args):
        self.args = args

    def run(self, *command, env="", check=True):
        line = f"cd {shlex.quote(str(HERE / 'tpcc'))}; {env} " + " ".join(shlex.quote(str(part)) for part in command)
        done = subprocess.run(["su", self.args.user, "-s", "/bin/bash", "-c", line], capture_output=True, text=True)
        if check and done.returncode != 0:
            sys.exit(f"{line}\n{done.stdout}{done.stderr}")
        return done.stdout

    def tool(self, name, *rest, database="postgres", env=""):
        connect = ["-h", self.args.socket, "-p", self.args.port]
        return self.run(f"{self.args.bin}/{name}", *connect, *rest, database, env=env)

    def ctl(self, *rest):
        inside = " ".join(str(group / "cgroup.procs") for group in self.args.groups) or "/dev/null"
        options = f"-c shared_buffers={self.args.shared_buffers}MB -c max_parallel_workers_per_gather=0 -c autovacuum=off"
        options += "".join(f" -c {one}" for one in self.args.set)
        log = f"{self.args.data}.strategies.log"
        # The shell that starts the server is in the cgroup, and the server with it.
        command = [f"{self.args.bin}/pg_ctl", "-D", self.args.data, "-l", log, "-w", "-o", options, *rest]
        shell = f"echo $$ | tee {inside} > /dev/null; exec su {self.args.user} -s /bin/bash -c {shlex.quote(shlex.join(command))}"
        subprocess.run(["/bin/sh", "-c", shell], check=True, stdout=subprocess.DEVNULL)

    def __enter__(self):
        self.ctl("start")
        return self

    def __exit__(self, *_):
        self.ctl("stop", "-m", "fast")


def settings(variant, args, alone=False, plan=None):
    """PGOPTIONS of a variant: stock, a strategy, or `ahead-` and a strategy, which has look-ahead too."""
    values = [f"{one}" for one in (plan or "").split()]
    if variant != "stock":
        strategy = variant.removeprefix("ahead-")
        values += [f"session_preload_libraries={args.library}", f"forebay.readahead_strategy={strategy}"]
    # Stock index scans know nothing of this setting; ours do not look ahead at 0.
    if alone and not variant.startswith("ahead-"):
        values.append("effective_io_concurrency=0")
    return "PGOPTIONS=" + shlex.quote(" ".join(f"-c {one}" for one in values))


def drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def scan(server, name, variant):
    plan, query = SCANS[name]
    drop_caches()
    env = settings(variant, server.args, plan == "index", PLAN.get(plan))
    said = server.tool("psql", "-X", "-q", "-At", "-c", "select 1", "-c", r"\timing on", "-c", query, env=env)
    return float(re.search(r"Time: ([\d.]+) ms", said).group(1))


def pgbench(server, workload, variant):
    args = server.args
    rest = ["-n", "-c", args.clients, "-j", 2, "-T", args.seconds]
    if workload == "tpcc":
        rest += ["-D", f"warehouses={args.warehouses}"]
        rest += [part for name, weight in TPCC.items() for part in ("-f", f"{name}.sql@{weight}")]
        said = server.tool("pgbench", *rest, database="tpcc", env=settings(variant, args))
    else:
        said = server.tool("pgbench", "-S", *rest, env=settings(variant, args, True))
    return float(re.search(r"tps = ([\d.]+) \(without", said).group(1))


def limit(args, memory=None, disk=None):
    """Limits the server's cgroups, of either version: megabytes of memory; reads and megabytes of them a second."""
    device = pathlib.Path(f"/sys/block/{args.device}/dev").read_text().strip() if disk else None
    for group in args.groups:
        group.mkdir(exist_ok=True)
        values = {}
        if memory:
            values |= {"memory.limit_in_bytes": memory << 20, "memory.max": memory << 20}
        if disk:
            iops, megabytes = disk
            values |= {"blkio.throttle.read_iops_device": f"{device} {iops}",
                       "blkio.throttle.read_bps_device": f"{device} {megabytes << 20}",
                       "io.max": f"{device} riops={iops} rbps={megabytes << 20}"}
        for name, value in values.items():
            if (group / name).exists():
                (group / name).write_text(str(value))


@contextlib.contextmanager
def machine(args):
    """The cgroups and the device's readahead, until the end."""
    queue = pathlib.Path(f"/sys/block/{args.device}/queue/read_ahead_kb") if args.device else None
    before = queue.read_text() if queue else None
    if args.memory:
        # What is in the page cache already belongs to no variant, and would cost nothing.
        drop_caches()
        limit(args, memory=args.memory)
    if queue and args.read_ahead_kb:
        queue.write_text(str(args.read_ahead_kb))
    try:
        yield queue.read_text().strip() if queue else None
    finally:
        if queue:
            queue.write_text(before)
        for group in args.groups:
            with contextlib.suppress(OSError):
                group.rmdir()


def measure(server, workload, variant):
    return (scan if workload in SCANS else pgbench)(server, workload, variant)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"of: {' '.join(SCANS)} select-only tpcc")
    parser.add_argument("--bin", required=True, help="directory of pg_ctl, psql and pgbench")
    parser.add_argument("--data", required=True, help="data directory of the cluster, stopped")
    parser.add_argument("--socket", required=True, help="its socket directory")
    parser.add_argument("--port", required=True)
    parser.add_argument("--user", default="postgres", help="its owner, and its superuser")
    parser.add_argument("--library", help="absolute path of forebay.so")
    parser.add_argument("--output", help="JSON file that results are added to")
    parser.add_argument("--label", default="", help="what is different about this run, such as `over memory`")
    parser.add_argument("--variants", default="stock," + ",".join(STRATEGIES), help="stock, a strategy, or ahead-STRATEGY")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=15, help="of a run of pgbench")
    parser.add_argument("--warm-up", type=int, default=0, help="seconds before the first of them, as stock")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--shared-buffers", type=int, default=32, help="MB")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--memory", type=int, help="MB, of the cgroup that the server runs in")
    parser.add_argument("--disk", help="IOPS,MB: reads and megabytes of them a second that the server's cgroup may have")
    parser.add_argument("--device", help="block device of the cluster, such as vda")
    parser.add_argument("--read-ahead-kb", type=int, help="readahead of the device, meanwhile")
    parser.add_argument("--warehouses", type=int, default=10)
    parser.add_argument("--load-tpcc", action="store_true", help="make the database of the mix, and do nothing else")
    args = parser.parse_args()
    args.groups = []
    if args.load_tpcc:
        args.shared_buffers = 512
        with Server(args) as server:
            server.tool("psql", "-X", "-q", "-c", "drop database if exists tpcc", "-c", "create database tpcc")
            server.tool("psql", "-X", "-q", "-v", f"warehouses={args.warehouses}", "-f", "schema.sql", database="tpcc")
            server.tool("psql", "-X", "-q", "-c", "vacuum freeze analyze", "-c", "checkpoint", database="tpcc")
        return
    root = pathlib.Path("/sys/fs/cgroup")
    version1 = [root / name for name in ("memory", "blkio") if (root / name).is_dir()]
    args.groups = [at / "forebay-bench" for at in version1 or [root]] if args.memory or args.disk else []
    # Whatever ends this, the server is stopped, and the machine as it was.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    variants = args.variants.split(",")
    found = []
    with machine(args) as read_ahead_kb, Server(args) as server:
        version = server.tool("psql", "-X", "-At", "-c", "show server_version").split()[0]
        if args.warm_up:
            # Random look-ups alone would take long to bring in what fits.
            server.tool("psql", "-X", "-q", "-c", "select count(*), count(abalance) from pgbench_accounts")
            seconds, args.seconds = args.seconds, args.warm_up
            measure(server, args.workloads[0], "stock")
            args.seconds = seconds
        if args.disk:
            limit(args, disk=[int(part) for part in args.disk.split(",")])
        began = int(time.time())
        for turn in range(args.rounds):
            for workload in args.workloads:
                first = (turn + began) % len(variants)
                for variant in variants[first:] + variants[:first]:
                    value = measure(server, workload, variant)
                    found.append((workload, variant, value))
                    print(f"{version} {args.label} {workload} {variant}: {value:.1f}", flush=True)
    key = {"version": version, "label": args.label, "read_ahead_kb": read_ahead_kb, "memory_mb": args.memory, "disk": args.disk, "set": args.set}
    report(args, key, found)


def report(args, key, found):
    """Adds what was found to the output file, and prints medians: milliseconds of a scan, transactions a second else."""
    path = pathlib.Path(args.output) if args.output else None
    whole = json.loads(path.read_text()) if path and path.exists() else {"kernel": platform.release(), "results": []}
    for workload, variant, value in found:
        this = {**key, "workload": workload, "unit": "ms" if workload in SCANS else "tps", "variant": variant}
        row = next((row for row in whole["results"] if this.items() <= row.items()), None)
        if row is None:
            row = {**this, "values": []}
            whole["results"].append(row)
        row["values"].append(round(value, 1))
        row["median"] = statistics.median(row["values"])
    if path:
        rows = ",\n".join("  " + json.dumps(row) for row in whole.pop("results"))
        path.write_text(json.dumps(whole)[:-1] + ', "results": [\n' + rows + "\n]}\n")


if __name__ == "__main__":
    main()
