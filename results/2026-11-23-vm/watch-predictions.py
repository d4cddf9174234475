#!/usr/bin/env python3
"""What `forebay watch --predict` says, and what is measured then.

    watch-predictions.py FOREBAY DIRECTORY prepare            makes a filesystem on a loop device, files, a server, a database
    watch-predictions.py FOREBAY DIRECTORY CASE...            measures these cases; results.json grows
    watch-predictions.py FOREBAY DIRECTORY clean

Root; DIRECTORY has room for 4 GB. Environment: PGBIN, FOREBAY_PG (forebay.so), FOREBAY_SQLITE (libforebay_sqlite.so).
Each case: the program is recorded in one state, a prediction is made from that record for the other state, and then both
states are measured by `forebay watch --json`, in turn, ROUNDS times: the time that reads of the case's files waited.
"""
import json, os, random, signal, statistics, subprocess, sys, time

FOREBAY, HERE, CASES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
MOUNT, IMAGE, SELF = f"{HERE}/mount", f"{HERE}/image", os.path.abspath(__file__)
PGBIN = os.environ.get("PGBIN", "/usr/lib/postgresql/15/bin")
# One whose sqlite3 loads extensions.
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
KIB = 1024


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout.strip()


def loop():
    return run("losetup", "-j", IMAGE).split(":")[0]


def readahead(kib):
    with open(f"/sys/block/{loop()[5:]}/queue/read_ahead_kb", "w") as file:
        file.write(str(kib))


def drop(*paths):
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def prepare():
    os.makedirs(MOUNT, exist_ok=True)
    with open(IMAGE, "wb") as file:
        file.truncate(4 << 30)
    device = run("losetup", "--find", "--show", "--direct-io=on", IMAGE)
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
    run("mount", "-o", "noatime", device, MOUNT)
    with open(f"{MOUNT}/file", "wb") as file:
        for _ in range(512):
            file.write(os.urandom(1 << 20))
    import sqlite3
    numbers = random.Random(7)
    db = sqlite3.connect(f"{MOUNT}/data.db")
    db.execute("create table rows (id integer primary key, number int, pad text)")
    db.executemany("insert into rows (number, pad) values (?, ?)",
                   ((numbers.randrange(1 << 40), "x" * 800) for _ in range(250_000)))
    db.execute("create index by_number on rows (number)")
    db.commit()
    db.close()
    if "FOREBAY_PG" in os.environ:
        data = f"{MOUNT}/pg"
        os.mkdir(data, 0o700)
        os.chmod(HERE, 0o755)
        run("cp", os.environ["FOREBAY_PG"], f"{MOUNT}/forebay.so")
        run("chown", "-R", "postgres", data)
        server("initdb", "-D", data, "-A", "trust", "--no-sync")
        with open(f"{data}/postgresql.conf", "a") as file:
            file.write(f"listen_addresses=''\nunix_socket_directories='{data}'\nshared_buffers=32MB\njit=off\nautovacuum=off\n"
                       "max_parallel_workers_per_gather=0\nmaintenance_work_mem=256MB\nmax_wal_size=4GB\nfsync=off\n")
        start()
        sql("create table t as select i as id, 'x' || repeat('y', 400) as pad, (random() * 1e9)::int as k"
            " from generate_series(1, 600000) i")
        sql("create index by_k on t (k)")
        sql("vacuum analyze t")
        sql("checkpoint")
        stop()
    run("sync")


def server(program, *words):
    return run("runuser", "-u", "postgres", "--", f"{PGBIN}/{program}", *words, cwd="/")


def start():
    server("pg_ctl", "-D", f"{MOUNT}/pg", "-w", "-l", f"{MOUNT}/pg/log", "start")


def stop():
    server("pg_ctl", "-D", f"{MOUNT}/pg", "-w", "-m", "fast", "stop")


def sql(*statements):
    words = [word for one in statements for word in ("-c", one)]
    return run("runuser", "-u", "postgres", "--", f"{PGBIN}/psql", "-h", f"{MOUNT}/pg", "-qAtX", "-d", "postgres", *words, cwd="/")


def reads(kind):
    """What the cases of readahead sizes read, in a process of its own."""
    file = os.open(f"{MOUNT}/file", os.O_RDONLY)
    blocks, numbers = os.fstat(file).st_size // 8192, random.Random(5)
    def read(block):
        os.pread(file, 8192, block * 8192)
        sum(range(600))
    if kind == "sequence":
        for block in range(24_000):
            read(block)
    elif kind == "bursts":
        for _ in range(500):
            at = numbers.randrange(blocks - 64)
            for block in range(at, at + 24):
                read(block)
    else:  # two sequences, and something anywhere
        for step in range(5_000):
            read(step)
            read(blocks // 2 + step)
            if step % 4 == 0:
                read(numbers.randrange(blocks))


def lookups(extension):
    import sqlite3
    path, uri = f"file:{MOUNT}/data.db?mode=ro", ""
    if extension == "on":
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(os.environ["FOREBAY_SQLITE"])
        uri = "&vfs=forebay"
    db = sqlite3.connect(path + uri, uri=True)
    print(db.execute("select sum(length(pad)) from rows where number between ? and ?", (1 << 38, (1 << 38) + (1 << 34))).fetchone())


QUERIES = {
    "index": ("set enable_bitmapscan=off", "set enable_seqscan=off", "select sum(length(pad)) from t where k between 1000000 and 7000000"),
    "bitmap": ("set effective_io_concurrency=0", "set enable_indexscan=off", "set enable_seqscan=off",
               "select sum(length(pad)) from t where k between 1000000 and 7000000"),
}


def watched(state, *words):
    """Runs the program of `state` under the watch. Returns what reads of its files waited, in seconds."""
    kind, name, value = state
    out = f"{HERE}/watched.json"
    if kind == "postgres":
        start()
        with open(f"{MOUNT}/pg/postmaster.pid") as file:
            pid = file.readline().strip()
        drop(*(f"{MOUNT}/pg/{path}" for path in sql("select pg_relation_filepath(oid) from pg_class where relname in ('t', 'by_k')").split()))
        watch = subprocess.Popen([FOREBAY, "watch", "--pid", pid, "--json", out, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        load = [f"load '{MOUNT}/forebay.so'"] if value == "on" else []
        sql(*load, *QUERIES[name])
        watch.send_signal(signal.SIGINT)
        watch.wait()
        stop()
        wanted = lambda path: "/pg/base/" in path
    else:
        if kind == "readahead":
            readahead(value)
            words, inner = [*words], ["reads", name]
        else:
            inner = ["lookups", value]
        drop(f"{MOUNT}/file", f"{MOUNT}/data.db")
        run(FOREBAY, "watch", "--json", out, *words, "--", PYTHON, SELF, FOREBAY, HERE, *inner)
        wanted = lambda path: path in (f"{MOUNT}/file", f"{MOUNT}/data.db")
    with open(out) as file:
        files = json.load(file)["files"]
    files = [file for file in files if file["path"] and wanted(file["path"])]
    assert files, f"{state}: the program has read nothing"
    return sum(file["wait_seconds"] for file in files)


def way_of(one, other):
    if other[0] == "readahead":
        return f"kernel readahead: {other[2]}.0 KiB" if 0 < other[2] < 1024 else f"kernel readahead: {other[2] // 1024 or 0}" + (".0 MiB" if other[2] else "")
    if other[2] == "off":
        return "without the program's advice"
    return "look-ahead: what could be known" if other[0] == "postgres" else "look-ahead: if all were known"


def case(name, one, other):
    record, out = f"{HERE}/{name}.watch", f"{HERE}/predicted.json"
    watched(one, "--record", record)
    words = ["--readahead", f"{other[2]}KiB" if other[2] else "0"] if other[0] == "readahead" else []
    run(FOREBAY, "watch", "--replay", record, "--predict", "--rounds", str(ROUNDS), "--predict-seconds", "400", "--json", out, *words)
    with open(out) as file:
        prediction = json.load(file)["prediction"]
    way = next(it for it in prediction["ways"] if it["way"] == way_of(one, other))
    before, after = [], []
    for _ in range(ROUNDS):
        before.append(watched(one))
        after.append(watched(other))
    measured = statistics.median(after)
    result = {
        "case": name, "recorded": one, "predicted_for": other, "way": way["way"], "verdict": way["verdict"],
        "recorded_seconds": prediction["recorded_wait_seconds"], "replayed_seconds": prediction["replayed_wait_seconds"],
        "predicted_seconds": way["wait_seconds"], "ratio": way["ratio"], "measured_seconds": measured,
        "error": way["wait_seconds"] / measured - 1 if measured else None, "before_seconds": before, "after_seconds": after, "remarks": prediction["remarks"],
        "ways": prediction["ways"],
    }
    print(f"{name}: recorded {result['recorded_seconds']:.3f} s (again {statistics.median(before):.3f} s, replayed "
          f"{result['replayed_seconds']:.3f} s); predicted {result['predicted_seconds']:.3f} s, measured {measured:.3f} s: "
          f"{100 * (result['error'] or 0):+.0f} % {way['verdict']}", flush=True)
    all_results = []
    if os.path.exists(f"{HERE}/results.json"):
        with open(f"{HERE}/results.json") as file:
            all_results = [it for it in json.load(file) if it["case"] != name]
    with open(f"{HERE}/results.json", "w") as file:
        json.dump(all_results + [result], file, indent=1)


def readaheads(pattern, kib):
    return ("readahead", pattern, 128), ("readahead", pattern, kib)


ALL = {
    "sequence-0": readaheads("sequence", 0),
    "sequence-1024": readaheads("sequence", 1024),
    "bursts-16": readaheads("bursts", 16),
    "bursts-512": readaheads("bursts", 512),
    "mixed-32": readaheads("mixed", 32),
    "postgres-index-on": (("postgres", "index", "off"), ("postgres", "index", "on")),
    "postgres-index-off": (("postgres", "index", "on"), ("postgres", "index", "off")),
    "postgres-bitmap-on": (("postgres", "bitmap", "off"), ("postgres", "bitmap", "on")),
    "sqlite-on": (("sqlite", "", "off"), ("sqlite", "", "on")),
    "sqlite-off": (("sqlite", "", "on"), ("sqlite", "", "off")),
}

if CASES == ["prepare"]:
    prepare()
elif CASES == ["clean"]:
    run("umount", MOUNT)
    run("losetup", "-d", loop())
    os.remove(IMAGE)
elif CASES[0] == "reads":
    reads(CASES[1])
elif CASES[0] == "lookups":
    lookups(CASES[1])
else:
    for name in CASES:
        case(name, *ALL[name])
