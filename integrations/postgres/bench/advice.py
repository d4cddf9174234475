#!/usr/bin/env python3
"""What advice does to reads of 8 KiB on this kernel and device, without a database: each row reads blocks of one file that
is not in the page cache at first, and says what a block took and how many blocks were read for each one requested.

The findings of the thread "Optimize kernel readahead using buffer access strategy", asked again."""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import tempfile
import time

BLOCK = 8192


class File:
    def __init__(self, path, blocks):
        self.path, self.blocks = path, blocks
        with open(path, "wb") as out:
            for _ in range(blocks // 128):
                out.write(os.urandom(128 * BLOCK))
            os.fsync(out.fileno())
        self.fd = os.open(path, os.O_RDONLY)

    def evict(self):
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        # A descriptor of its own: readahead's state is the descriptor's.
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDONLY)

    def resident(self):
        said = subprocess.run(["fincore", "-bn", "-o", "RES", self.path], capture_output=True, text=True, check=True)
        return int(said.stdout) // BLOCK

    def advise(self, advice, block=0, blocks=0):
        os.posix_fadvise(self.fd, block * BLOCK, blocks * BLOCK, advice)

    def read(self, block):
        os.pread(self.fd, BLOCK, block * BLOCK)


def sequential(file, advice):
    file.advise(advice)
    for block in range(2000):
        file.read(block)
    return 2000


def advised_too_late(file):
    for block in range(4):
        file.read(block)
    file.advise(os.POSIX_FADV_RANDOM)
    for block in range(4, 2000):
        file.read(block)
    return 2000


def with_hints(file, ahead):
    for block in range(2000):
        file.advise(os.POSIX_FADV_WILLNEED, block + ahead, 1)
        file.read(block)
    return 2000


def scattered(file, advice, cached):
    """Random blocks, of a file of which some stretches are in the page cache already."""
    choice = random.Random(7)
    if cached:
        for start in range(0, file.blocks, 128):
            file.advise(os.POSIX_FADV_WILLNEED, start, 64)
        time.sleep(0.3)
    file.advise(advice)
    before = file.resident()
    began = time.monotonic()
    for _ in range(1000):
        file.read(choice.randrange(file.blocks))
    return (time.monotonic() - began) / 1000, (file.resident() - before) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=".", help="where the file is to lie, on the device in question")
    parser.add_argument("--blocks", type=int, default=65536, help="of 8 KiB, of the file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", help="JSON file to write")
    args = parser.parse_args()
    normal, at_random, in_order = os.POSIX_FADV_NORMAL, os.POSIX_FADV_RANDOM, os.POSIX_FADV_SEQUENTIAL
    rows = {
        "sequential, NORMAL": lambda file: sequential(file, normal),
        "sequential, RANDOM": lambda file: sequential(file, at_random),
        "sequential, SEQUENTIAL": lambda file: sequential(file, in_order),
        "sequential, RANDOM after 4 blocks": advised_too_late,
        "sequential, WILLNEED 1 block ahead": lambda file: with_hints(file, 1),
        "sequential, WILLNEED 4 blocks ahead": lambda file: with_hints(file, 4),
        "sequential, WILLNEED 16 blocks ahead": lambda file: with_hints(file, 16),
        "sequential, WILLNEED 64 blocks ahead": lambda file: with_hints(file, 64),
        "scattered, NORMAL": lambda file: scattered(file, normal, False),
        "scattered, RANDOM": lambda file: scattered(file, at_random, False),
        "scattered, half in the page cache, NORMAL": lambda file: scattered(file, normal, True),
        "scattered, half in the page cache, RANDOM": lambda file: scattered(file, at_random, True),
        "scattered, half in the page cache, SEQUENTIAL": lambda file: scattered(file, in_order, True),
    }
    found = {name: [] for name in rows}
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        file = File(str(pathlib.Path(directory) / "blocks"), args.blocks)
        for _ in range(args.rounds):
            for name, row in rows.items():
                file.evict()
                began = time.monotonic()
                result = row(file)
                if not isinstance(result, tuple):
                    result = (time.monotonic() - began) / result, file.resident() / result
                found[name].append(result)
    report = []
    for name, results in found.items():
        each = {
            "reads": name,
            "us_per_block": round(statistics.median(took for took, _ in results) * 1e6, 1),
            "blocks_in_per_block": round(statistics.median(blocks for _, blocks in results), 2),
        }
        report.append(each)
        print(f"{name:48} {each['us_per_block']:8} us {each['blocks_in_per_block']:8} blocks in for each")
    if args.output:
        whole = {"kernel": platform.release(), "rounds": args.rounds, "rows": report}
        pathlib.Path(args.output).write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
