#!/usr/bin/env python3
"""What `forebay watch` costs: processor time of its own process while fio reads random 4 KiB pages at a given rate.

usage: watch-cost.py FOREBAY DIRECTORY direct|buffered RATE ROUNDS     (root; fio; 13 GiB in DIRECTORY, on tmpfs or a disk)

Prints a line of JSON for each round: reads a second by fio, percent of one processor
over ten seconds in the middle of the run, microseconds a read, the requests that the watch counted for each, and its
remarks, such as lost events.
"""
import json, os, subprocess, sys, time

forebay, directory, way = sys.argv[1:4]
rate, rounds = int(sys.argv[4]), int(sys.argv[5])
# Larger than what is read in a round, so that buffered reads mostly miss the page cache.
JOBS, WINDOW_S, SIZE = 8, 10, "12G"
image = os.path.join(directory, "watch-cost.image")
point = os.path.join(directory, "watch-cost.mount")


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


with open(image, "wb") as file:
    file.truncate(13 << 30)
device = run("losetup", "--find", "--show", image)
os.makedirs(point, exist_ok=True)
try:
    run("mkfs.ext4", "-q", device)
    run("mount", "-o", "noatime", device, point)
    fio = ["fio", "--name=r", f"--filename={point}/file", f"--size={SIZE}", "--bs=4k", "--thread",
           "--output-format=json", "--ioengine=psync"]
    subprocess.run(fio + ["--rw=write", "--bs=1M", "--direct=1"], check=True, capture_output=True)
    for _ in range(rounds):
        out = os.path.join(directory, "watch-cost.json")
        words = [forebay, "watch", "--json", out, "--"] + fio + [
            "--rw=randread", f"--direct={int(way == 'direct')}", f"--numjobs={JOBS}", "--time_based",
            f"--runtime={WINDOW_S + 6}", "--group_reporting", f"--rate_iops={rate // JOBS}", f"--output={out}.fio"]
        watch = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(4)
        begun, before = time.monotonic(), seconds(watch.pid)
        time.sleep(WINDOW_S)
        share = (seconds(watch.pid) - before) / (time.monotonic() - begun)
        watch.wait()
        seen = json.load(open(out))
        [disk] = [it for it in seen["devices"] if it["name"] == os.path.basename(device)]
        done = json.load(open(out + ".fio"))["jobs"][0]["read"]
        reads = done["iops"]
        print(json.dumps({"way": way, "reads_per_s": round(reads), "percent_of_one_processor": round(100 * share, 2),
                          "us_per_read": round(1e6 * share / reads, 3),
                          "requests_per_read": round(disk["read"]["count"] / done["total_ios"], 3),
                          "remarks": seen["remarks"]}), flush=True)
finally:
    subprocess.run(["umount", point])
    subprocess.run(["losetup", "-d", device])
    os.remove(image)
