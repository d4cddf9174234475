#!/usr/bin/env python3
"""Many sessions that read rows anywhere, on a server with little memory and a slow disk, with and without forebay.

The cluster has the table `upd` of tables.sql, and is not running; run as root, with version 1 of control groups. A variant is `off`, or the value of
forebay.server_distance_max:

    sessions.py --cluster DIR --library forebay.so --pg-config pg_config 0 1024 off
"""
import argparse, os, pathlib, re, shutil, statistics, subprocess, sys, tempfile

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--cluster", required=True)
arguments.add_argument("--library", required=True, type=os.path.abspath)
arguments.add_argument("--pg-config", required=True)
arguments.add_argument("--sessions", type=int, default=100)
arguments.add_argument("--rows", type=int, default=100, help="rows that a query reads, about")
arguments.add_argument("--memory", type=int, default=1024, help="MiB for the server; shared_buffers is a quarter")
arguments.add_argument("--reads", type=int, default=2000, help="reads a second, at most")
arguments.add_argument("--seconds", type=int, default=25)
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("variants", nargs="+")
given = arguments.parse_args()
if os.geteuid() != 0:
    arguments.error("it must run as root, to limit memory and reads")
if not os.path.isfile(f"{given.cluster}/PG_VERSION"):
    arguments.error(f"--cluster {given.cluster} is not a database cluster")
if not os.path.isfile(given.library):
    arguments.error(f"--library {given.library} does not exist; build it with make")
if shutil.which(given.pg_config) is None:
    arguments.error(f"--pg-config {given.pg_config} does not exist")
if not all(os.path.isdir(f"/sys/fs/cgroup/{name}") for name in ("memory", "blkio")):
    arguments.error("/sys/fs/cgroup has no version 1 of memory and blkio")

programs = pathlib.Path(subprocess.check_output([given.pg_config, "--bindir"], text=True).strip())
as_postgres = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
memory, disk = (pathlib.Path(f"/sys/fs/cgroup/{name}/forebay-sessions") for name in ("memory", "blkio"))
for group in (memory, disk):
    group.mkdir(exist_ok=True)
(memory / "memory.limit_in_bytes").write_text(str(given.memory << 20))
# The file system's device; of a partition, the whole one.
device = os.stat(given.cluster).st_dev
device = f"{os.major(device)}:{os.minor(device)}"
# The keys of 6 million rows are spread evenly over 2^32 prefixes.
step = given.rows * 2**32 // 6_000_000
key = "(lpad(to_hex({}::bigint), 8, '0') || '-0000-0000-0000-000000000000')::uuid"
query = f"""\\set a random(0, 4280000000)
select max(length(pad)) from upd where key >= {key.format(":a")} and key < {key.format(f":a + {step}")};
"""


def bytes_read():
    lines = (disk / "blkio.throttle.io_service_bytes").read_text().splitlines()
    return sum(int(line.split()[2]) for line in lines if line.startswith(f"{device} Read"))


def enter_groups():
    for group in (memory, disk):
        (group / "cgroup.procs").write_text(str(os.getpid()))


def run(variant, directory):
    """Queries that were finished, and bytes read for each."""
    options = f"-p 5990 -c fsync=off -c shared_buffers={given.memory // 4}MB -c max_connections={given.sessions + 10} -c huge_pages=off " \
        f"-c autovacuum=off -c unix_socket_directories={directory} -c listen_addresses="
    if variant != "off":
        options += f" -c shared_preload_libraries={given.library.removesuffix('.so')} -c forebay.server_distance_max={variant}"
    (disk / "blkio.throttle.read_iops_device").write_text(f"{device} {given.reads}")
    subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True, check=True)
    control = as_postgres + [programs / "pg_ctl", "-D", given.cluster, "-w", "-l", f"{directory}/log"]
    subprocess.run(control + ["-o", options, "start"], check=True, stdout=subprocess.DEVNULL, preexec_fn=enter_groups)
    try:
        before = bytes_read()
        settings = "-c enable_seqscan=off -c enable_bitmapscan=off -c max_parallel_workers_per_gather=0"
        command = [programs / "pgbench", "-h", directory, "-p", "5990", "-U", "postgres", "-n", "-c", str(given.sessions), "-j", "2",
                   "-T", str(given.seconds), "-f", f"{directory}/query.sql", "postgres"]
        said = subprocess.run(command, env=dict(os.environ, PGOPTIONS=settings), check=True, capture_output=True, text=True).stdout
        count = int(re.search(r"actually processed: (\d+)", said)[1])
        return count, (bytes_read() - before) / count
    finally:
        subprocess.run(control + ["-m", "fast", "stop"], check=True, stdout=subprocess.DEVNULL)
        (disk / "blkio.throttle.read_iops_device").write_text(f"{device} 0")


def measure():
    results = {variant: [] for variant in given.variants}
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        pathlib.Path(directory, "query.sql").write_text(query)
        for number in range(given.rounds):
            for variant in given.variants if number % 2 == 0 else reversed(given.variants):
                results[variant].append(run(variant, directory))
                count, size = results[variant][-1]
                print(f"round {number + 1} of {given.rounds}: {variant}: {count} queries, {size / 1024:.0f} KiB for each", flush=True)
    for variant, rounds in results.items():
        counts, sizes = zip(*rounds)
        print(f"{variant}: {statistics.median(counts)} queries, {statistics.median(sizes) / 1024:.0f} KiB for each")


try:
    measure()
except KeyboardInterrupt:
    sys.exit("interrupted; the server is stopped")
except subprocess.CalledProcessError as error:
    sys.exit(f"{error}: {error.stderr or 'see the message above'}")
finally:
    for group in (memory, disk):
        group.rmdir()
