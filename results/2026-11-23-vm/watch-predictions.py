#!/usr/bin/env python3
"""What `forebay watch --predict` says, and what is measured then.

    watch-predictions.py FOREBAY DIRECTORY PROFILE            makes an emulated disk, a filesystem, files, a server, a database
    watch-predictions.py FOREBAY DIRECTORY CASE...            measures these cases; results.json grows
    watch-predictions.py FOREBAY DIRECTORY clean

Root; some 2 GB of memory. Environment: PGBIN, FOREBAY_PG (forebay.so), FOREBAY_SQLITE (libforebay_sqlite.so).
The disk is `forebay emulate PROFILE`, with a loop device on it and ext4 on that.

Each case: the program is recorded in one state, a prediction for the other state is made from that record, and then both states
are measured under `forebay watch`, in turn, ROUNDS times. Two figures are compared, each by itself: what reads of the case's files
waited, as the watch has it, and how long the work took, as the program has it (its loop of reads, its query). The time predicted
for that is what it took when it was recorded, and so much more or less as the prediction says of the recorded part. Which way of the
prediction stands for which state is in way_of(), and was settled before anything was measured.
"""
import json, os, random, re, signal, statistics, subprocess, sys, time

FOREBAY, HERE, CASES = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
DISK, MOUNT, SELF = f"{HERE}/disk", f"{HERE}/mount", os.path.abspath(__file__)
PGBIN = os.environ.get("PGBIN", "/usr/lib/postgresql/15/bin")
# One whose sqlite3 loads extensions.
PYTHON = os.environ.get("PYTHON", "/usr/bin/python3")
ROUNDS = int(os.environ.get("ROUNDS", "3"))


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout.strip()


def loop():
    return run("losetup", "-j", f"{DISK}/disk").split(":")[0]


def readahead(kib):
    with open(f"/sys/block/{loop()[5:]}/queue/read_ahead_kb", "w") as file:
        file.write(str(kib))


def drop(*paths):
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def timing(how):
    with open(f"{DISK}/.forebay/control", "w") as file:
        file.write(f"timing {how}\n")


def prepare(profile):
    os.makedirs(MOUNT, exist_ok=True)
    os.makedirs(DISK, exist_ok=True)
    os.chmod(HERE, 0o755)
    subprocess.Popen([FOREBAY, "emulate", profile, DISK, "--size", "4GiB", "--memory", "3GiB", "--outlive-parent"],
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while not os.path.exists(f"{DISK}/.forebay/control"):
        time.sleep(0.1)
    with open(f"{HERE}/profile", "w") as file:
        file.write(profile)
    timing("off")
    device = run("losetup", "--find", "--show", "--direct-io=on", f"{DISK}/disk")
    # Without a journal nothing is written but by the cases.
    run("mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", device)
    run("mount", "-o", "noatime", device, MOUNT)
    with open(f"{MOUNT}/file", "wb") as file:
        for _ in range(256):
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
    data = f"{MOUNT}/pg"
    os.mkdir(data, 0o700)
    run("cp", os.environ["FOREBAY_PG"], f"{MOUNT}/forebay.so")
    run("chown", "-R", "postgres", data)
    server("initdb", "-D", data, "-A", "trust", "--no-sync")
    with open(f"{data}/postgresql.conf", "a") as file:
        # So few buffers that nothing of a scan is left in them.
        file.write(f"listen_addresses=''\nunix_socket_directories='{data}'\nshared_buffers=1MB\njit=off\nautovacuum=off\n"
                   "max_parallel_workers_per_gather=0\nmaintenance_work_mem=256MB\nmax_wal_size=4GB\nfsync=off\n")
    start()
    sql("create table t as select i as id, 'x' || repeat('y', 400) as pad, (random() * 1e9)::int as k"
        " from generate_series(1, 600000) i")
    sql("create index by_k on t (k)")
    sql("vacuum analyze t")
    sql("checkpoint")
    run("sync")
    timing("on")


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
    """What the cases of readahead sizes read, in a process of its own. Prints how long that took, in seconds."""
    file = os.open(f"{MOUNT}/file", os.O_RDONLY)
    blocks, numbers = os.fstat(file).st_size // 8192, random.Random(5)
    def read(block):
        os.pread(file, 8192, block * 8192)
        sum(range(600))
    begun = time.monotonic()
    if kind == "sequence":
        for block in range(3_000):
            read(block)
    elif kind == "bursts":
        for _ in range(150):
            at = numbers.randrange(blocks - 64)
            for block in range(at, at + 24):
                read(block)
    else:  # two sequences, and something anywhere
        for step in range(1_500):
            read(step)
            read(blocks // 2 + step)
            if step % 4 == 0:
                read(numbers.randrange(blocks))
    print(time.monotonic() - begun)


def lookups(extension):
    import sqlite3
    path, uri = f"file:{MOUNT}/data.db?mode=ro", ""
    if extension == "on":
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(os.environ["FOREBAY_SQLITE"])
        uri = "&vfs=forebay"
    db = sqlite3.connect(path + uri, uri=True)
    begun = time.monotonic()
    db.execute("select sum(length(pad)) from rows where number between ? and ?", (1 << 38, (1 << 38) + (1 << 33))).fetchone()
    print(time.monotonic() - begun)


RANGE = "select sum(length(pad)) from t where k between 1000000 and 3500000"
QUERIES = {
    "index": ("set enable_bitmapscan=off", "set enable_seqscan=off", RANGE),
    "bitmap": ("set enable_indexscan=off", "set enable_seqscan=off", RANGE),
}


def watched(state, *words):
    """Runs the program of `state` under the watch. Returns what reads of its files waited, and how long it took, in seconds."""
    kind, name, value = state
    out = f"{HERE}/watched.json"
    if kind == "postgres":
        with open(f"{MOUNT}/pg/postmaster.pid") as file:
            pid = file.readline().strip()
        drop(*(f"{MOUNT}/pg/{path}" for path in sql("select pg_relation_filepath(oid) from pg_class where relname in ('t', 'by_k')").split()))
        watch = subprocess.Popen([FOREBAY, "watch", "--pid", pid, "--json", out, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        # The extension prefetches where the server may; without it the server is to prefetch nothing by itself.
        load = [f"load '{MOUNT}/forebay.so'"] if value == "on" else ["set effective_io_concurrency = 0"]
        told = sql("\\timing on", *load, *QUERIES[name])
        took = float(re.findall(r"Time: ([\d.]+) ms", told)[-1]) / 1e3
        watch.send_signal(signal.SIGINT)
        watch.wait()
        wanted = lambda path: "/pg/base/" in path
    else:
        if kind == "readahead":
            readahead(value)
            inner = ["reads", name]
        else:
            inner = ["lookups", value]
        drop(f"{MOUNT}/file", f"{MOUNT}/data.db")
        told = run(FOREBAY, "watch", "--json", out, *words, "--", PYTHON, SELF, FOREBAY, HERE, *inner)
        took = float(re.search(r"(?m)^\d+\.\d+(e-\d+)?$", told)[0])
        wanted = lambda path: path in (f"{MOUNT}/file", f"{MOUNT}/data.db")
    with open(out) as file:
        files = json.load(file)["files"]
    files = [file for file in files if file["path"] and wanted(file["path"])]
    assert files, f"{state}: the program has read nothing"
    return sum(file["wait_seconds"] for file in files), took


def way_of(one, other):
    if other[0] == "readahead":
        return f"kernel readahead: {other[2]}.0 KiB" if 0 < other[2] < 1024 else f"kernel readahead: {other[2] // 1024 or 0}" + (".0 MiB" if other[2] else "")
    if other[2] == "off":
        return "without the program's advice"
    # The extension takes all rows of these scans; the VFS reads ahead of what may stop at any row.
    return "look-ahead: if all were known" if other[0] == "postgres" else "look-ahead: all known, may stop"


def case(name, one, other):
    record, out = f"{HERE}/{name}.watch", f"{HERE}/predicted.json"
    readahead(128)
    wait, took = watched(one, "--record", record)
    words = ["--readahead", f"{other[2]}KiB" if other[2] else "0"] if other[0] == "readahead" else []
    run(FOREBAY, "watch", "--replay", record, "--predict", "--rounds", str(ROUNDS), "--predict-seconds", "120", "--json", out, *words)
    with open(out) as file:
        prediction = json.load(file)["prediction"]
    way = next(it for it in prediction["ways"] if it["way"] == way_of(one, other))
    before, after = [], []
    for _ in range(ROUNDS):
        before.append(watched(one))
        after.append(watched(other))
    recorded_part = prediction["until_seconds"] - prediction["from_seconds"]
    with open(f"{HERE}/profile") as file:
        result = {"profile": file.read(), "case": name, "recorded": one, "predicted_for": other, "way": way["way"], "verdict": way["verdict"]}
    for at, figure, then, predicted in [
        (0, "wait", prediction["recorded_wait_seconds"], way["wait_seconds"]),
        (1, "run", took, took + way["seconds"] - recorded_part),
    ]:
        rounds = {"before_seconds": [it[at] for it in before], "after_seconds": [it[at] for it in after]}
        measured = statistics.median(rounds["after_seconds"])
        result[figure] = {"recorded_seconds": then, "predicted_seconds": predicted, "measured_seconds": measured,
                          "error": predicted / measured - 1, **rounds}
        print(f"{name}: {figure}: recorded {then:.3f} s (again {statistics.median(rounds['before_seconds']):.3f} s); predicted "
              f"{predicted:.3f} s, measured {measured:.3f} s: {100 * result[figure]['error']:+.0f} %", flush=True)
    result["prediction"] = prediction
    all_results = []
    if os.path.exists(f"{HERE}/results.json"):
        with open(f"{HERE}/results.json") as file:
            all_results = [it for it in json.load(file) if (it["case"], it["profile"]) != (name, result["profile"])]
    with open(f"{HERE}/results.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(it) for it in all_results + [result]) + "\n]\n")


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

if CASES == ["clean"]:
    stop()
    run("umount", MOUNT)
    run("losetup", "-d", loop())
    run("umount", DISK)
elif CASES[0] == "reads":
    reads(CASES[1])
elif CASES[0] == "lookups":
    lookups(CASES[1])
elif CASES[0] in ALL:
    for name in CASES:
        case(name, *ALL[name])
else:
    prepare(CASES[0])
