#!/usr/bin/env python3
"""Whether what `forebay advise postgres` proposes is the best there is: servers, disks and workloads, case by case.

  cases.py --forebay target/release/forebay --json cases.jsonl --servers /usr/lib/postgresql/15/bin --disks nvme,7200rpm --most 1
  cases.py --json cases.jsonl --table

A case is one server, one disk and one workload. It makes a cluster on the emulated disk (root; `real`: in the directory --mount itself, which
must be empty), takes the advice, and then runs the workload with each setting of a grid: every value of each setting below with
every other, rounds of all of them in shuffled order, each run on a range chosen by chance, with the table's pages taken from the page cache.
Then what is advised, the defaults and the three best are compared in separate rounds, so that the best is not one by chance; in each with the
one that is the best by the other rounds.
Each case is a line of the file, and is not made again: what is interrupted loses the current case.

Workloads: `bitmap` counts the rows of a range of keys that lie anywhere, by the plan that the server chooses; `sequential` counts all rows by reading them (count(*) would read the index alone); `mixed` is
the first while others change 50 rows a second, each in a transaction that is synced. Where a server and a disk have had their advice for `bitmap`, it
serves `sequential` too.
"""

import argparse
import itertools
import json
import math
import os
import random
import re
import statistics
import subprocess
import time
from types import SimpleNamespace

import advised

GRID = {
    "effective_io_concurrency": ["1", "4", "16", "64", "256", "1000"],
    "random_page_cost": ["1.1", "4"],
    "io_combine_limit": ["4", "16", "32"],
}
WORKLOADS = ["bitmap", "sequential", "mixed"]
# What such a disk does a second when its credits are spent; and after so many seconds of load a few are left, which last for some ten seconds.
BURST = {"cloud-burst": 300}
BURST_SECONDS = 1990
FINALISTS = 3
ADVICE = ["advice_seconds", "proved", "verdicts", "remarks", "rated_per_s"]
# Rounds of the finalists: the lowest of a few noisy medians is fast by chance, so that a disk whose runs are short gets many.
FINAL_ROUNDS = 5, 40
FINAL_SECONDS = 90


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forebay", help="the program")
    parser.add_argument("--json", required=True, help="a line for each case")
    parser.add_argument("--servers", default="/usr/lib/postgresql/15/bin", help="directories of servers' programs, between commas")
    parser.add_argument("--disks", default="nvme,7200rpm,raid10-12,sata-ssd,cloud-burst", help="see forebay emulate --list, or real")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--mount", help="an empty directory")
    parser.add_argument("--rows", type=int, default=600_000, help="of about 260 bytes")
    parser.add_argument("--seconds", type=float, default=90, help="for the search of each case, when at least two rounds are made")
    parser.add_argument("--most", type=int, default=1000, help="cases that are made by this call")
    parser.add_argument("--table", action="store_true", help="show what there is, and end")
    args = parser.parse_args()
    if not args.table and not (args.forebay and args.mount):
        parser.error("to make cases takes --forebay and --mount")
    return args


class Case(advised.Server):
    """A cluster for one case."""

    def __init__(self, args, programs, disk, workload):
        self.workload, self.writer = workload, None
        made = SimpleNamespace(forebay=args.forebay, pg_config=f"{programs}/pg_config", profile=disk, mount=args.mount, rows=args.rows, rounds=3)
        self.bursts = disk in BURST
        super().__init__(made, programs)

    def prepare(self):
        self.make(fsync=self.workload == "mixed")
        if self.bursts:
            self.control(f"load {BURST_SECONDS} 8192")
        files = self.sql("select pg_relation_filepath('t') union all select pg_relation_filepath('t_k')").split()
        self.files = [f"{self.data}/{file}" for file in files]
        self.settings = [name for name in GRID if self.sql(f"select 1 from pg_settings where name = '{name}'").strip()]
        self.default = tuple(self.sql(f"select setting from pg_settings where name = '{name}'").strip() for name in self.settings)
        if self.workload == "mixed":
            script = f"{self.sockets}/write.sql"
            with open(script, "w", encoding="ascii") as file:
                file.write(f"\\set at random(1, {self.args.rows})\nupdate t set x = reverse(x) where k = hashint4(:at);\n")
            command = [f"{self.bin}/pgbench", "-n", "-h", self.sockets, "-U", "postgres", "-f", script, "-R", "50", "-T", "3600", "postgres"]
            self.writer = subprocess.Popen(command, user=self.owner.pw_uid, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def forget(self):
        """Takes what the queries read out of the page cache."""
        for path in self.files:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def spend(self):
        """Uses up what a burst volume has earned since the last run: reads one at a time, until they wait as at its sustained rate."""
        slow = 0
        with open(self.files[0], "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            blocks = os.fstat(file.fileno()).st_size // 8192
            for block in random.sample(range(blocks), blocks):
                began = time.monotonic()
                os.pread(file.fileno(), 8192, block * 8192)
                slow = slow + 1 if time.monotonic() - began > 0.5 / BURST[self.args.profile] else 0
                if slow == 5:
                    break
        self.forget()

    def once(self, values, share):
        """Seconds of one run."""
        self.forget()
        if self.bursts:
            self.spend()
        assignments = [f"set {name} = {value}" for name, value in zip(self.settings, values)]
        query = "select count(ctid) from t" if self.workload == "sequential" else self.range(share)
        plan = self.sql("select relname from pg_class where relname = 't'", *assignments, f"explain (analyze, timing off) {query}")
        if self.writer and self.writer.poll() is not None:
            raise SystemExit(f"pgbench, which had to write at the same time, ended with {self.writer.returncode}")
        return float(re.search(r"Execution Time: ([\d.]+)", plan)[1]) / 1e3

    def share(self):
        """The share of the rows whose reading takes half a second with the defaults, 2 % at most."""
        share = 0.0005
        while share < 0.02 and self.once(self.default, share) < 0.5:
            share *= 2
        return min(share, 0.02)

    def rounds(self, settings, share, seconds, least, most):
        times, began = {values: [] for values in settings}, time.monotonic()
        for at in range(most):
            if at >= least and (time.monotonic() - began) * (at + 1) / at > seconds:
                break
            for values in random.sample(settings, len(settings)):
                times[values].append(self.once(values, share))
        return times

    def close(self):
        if self.writer:
            self.writer.terminate()
            self.writer.wait()
        super().close()


def taken(case):
    """What is kept of the advice for the server as it is now."""
    advice, took = case.advice("--yes", *(["--sustained", "20s"] if case.bursts else []))
    return {
        "advice_seconds": took,
        "proved": {it["setting"]: it["advised"] for it in advice["proposals"] if it["proved"]},
        "verdicts": advice["verdicts"],
        "remarks": advice["remarks"],
        "rated_per_s": advice["disks"][0]["device"]["random_read_saturated"]["per_s"] if advice["disks"] else None,
    }


def middling(times, but=None):
    """The settings with the best median. It beats what is as good by chance, so for the comparison in a round the other rounds decide which it is."""
    return min(times, key=lambda values: statistics.median(time for at, time in enumerate(times[values]) if at != but))


def named(settings, values):
    return dict(zip(settings, values))


def made(args, programs, disk, workload, advice):
    """The case, with `advice` if there is any already."""
    began = time.monotonic()
    case = Case(args, programs, disk, workload)  # If it fails, it has closed itself.
    try:
        case.prepare()
        advice = advice or taken(case)
        chosen = tuple(advice["proved"].get(name, was) for name, was in zip(case.settings, case.default))
        grid = set(itertools.product(*(GRID[name] for name in case.settings))) | {case.default, chosen}
        share = case.share()
        searched = case.rounds(sorted(grid), share, args.seconds, 2, 5)
        middle = {values: statistics.median(times) for values, times in searched.items()}
        best = sorted(middle, key=middle.get)[:FINALISTS]
        final = case.rounds(sorted({*best, chosen, case.default}), share, FINAL_SECONDS, *FINAL_ROUNDS)
        winner = middling(final)

        def ratio(other):
            """How fast what is advised is, of the setting that `other` gives for a round: the median of the rounds, with its interval by their
            order (95 of 100; of few rounds the lowest and the highest)."""
            of = sorted(final[other(at)][at] / mine for at, mine in enumerate(final[chosen]))
            outside = max(0, int(len(of) / 2 - 0.98 * math.sqrt(len(of))))
            return [statistics.median(of), of[outside], of[-1 - outside]]

        return {
            "server": case.sql("show server_version").split()[0],
            "disk": disk,
            "workload": workload,
            "share": share,
            **advice,
            "advised": named(case.settings, chosen),
            "default": named(case.settings, case.default),
            "best": named(case.settings, winner),
            "of_best": ratio(lambda at: middling(final, but=at)),
            "of_default": ratio(lambda at: case.default),
            "search": [{"settings": named(case.settings, values), "seconds": times} for values, times in searched.items()],
            "final": [{"settings": named(case.settings, values), "seconds": times} for values, times in final.items()],
            "seconds": time.monotonic() - began,
        }
    finally:
        case.close()


def table(lines):
    print("| server | disk | workload | advised | best | of the best | of the defaults |")
    print("|---|---|---|---|---|---|---|")
    for it in lines:
        def settings(which):
            changed = [f"{name} {value}" for name, value in it[which].items() if value != it["default"][name]]
            return ", ".join(changed) or "the defaults"

        def shown(ratio):
            return f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"

        print(f"| {it['server']} | {it['disk']} | {it['workload']} | {settings('advised')} | {settings('best')} | {shown(it['of_best'])} | {shown(it['of_default'])} |")
    reached = sum(it["of_best"][0] >= 0.95 for it in lines)
    worse = [it for it in lines if it["of_default"][2] < 0.98]
    print(f"\n{reached} of {len(lines)} cases reach 0.95 of the best found; {len(worse)} are surely more than 2 % slower than the defaults")
    for it in lines:
        if it["disk"] in BURST:
            rated = it["rated_per_s"]
            off = "not seen" if rated is None else f"{rated:.0f} requests/s, {math.fabs(rated / BURST[it['disk']] - 1):.0%} off"
            print(f"{it['server']} {it['disk']} {it['workload']}: the sustained rate of {BURST[it['disk']]}/s is rated {off}")


def main():
    args = arguments()
    lines = []
    if os.path.exists(args.json):
        with open(args.json, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    if args.table:
        return table(lines)
    there = {(it["programs"], it["disk"], it["workload"]) for it in lines}
    wanted = itertools.product(args.servers.split(","), args.disks.split(","), args.workloads.split(","))
    missing = [case for case in wanted if case not in there]
    for programs, disk, workload in missing[: args.most]:
        print(f"{programs} {disk} {workload}", flush=True)
        same = [it for it in lines if (it["programs"], it["disk"], it["workload"], workload) == (programs, disk, "bitmap", "sequential")]
        advice = {name: same[0].get(name) for name in ADVICE} if same else None
        line = {"programs": programs, **made(args, programs, disk, workload, advice)}
        with open(args.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        lines.append(line)
        table([line])
    return None


if __name__ == "__main__":
    main()
