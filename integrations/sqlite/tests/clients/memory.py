# A cold query in processes that may have so many more bytes and no more, without the VFS and with it.
#
# Prints how many looked ahead, and how many of those were refused memory.
import resource

query = 'select sum(length(b)) from t where k between 0 and 700'
if os.fork() == 0:  # what this frees, the processes below could use
    stock = sqlite3.connect(path, isolation_level=None)
    stock.execute('create table t(a integer primary key, k, b)')
    stock.execute('begin')
    stock.executemany('insert into t(k, b) values (?, zeroblob(3000))', [[i * 7919 % 1009] for i in range(1000)])
    stock.execute('create index by_k on t(k)')
    stock.execute('commit')
    os._exit(0)
assert os.wait()[1] == 0
load()
expected = sqlite3.connect(path).execute(query).fetchone()


def size():
    return int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()


def fill():
    'Takes what the allocator has free, but for small pieces, which Python needs itself.'
    global kept_memory
    kept_memory, piece = [], 1 << 20
    while piece >= 2048:
        try: kept_memory.append(bytearray(piece))
        except MemoryError: piece //= 2


def process(arguments, room):
    'How one ends: answers, or is refused memory by SQLite; and how many pages it prefetched.'
    read, write = os.pipe()
    if os.fork() == 0:
        db = sqlite3.connect(f'file:{path}?{arguments}', uri=True, isolation_level=None)
        db.execute('pragma cache_size=20')
        db.execute(query).fetchone()  # SQLite has its memory
        cold(path)
        now = size()
        resource.setrlimit(resource.RLIMIT_AS, (now, resource.RLIM_INFINITY))
        fill()
        resource.setrlimit(resource.RLIMIT_AS, (now + room, resource.RLIM_INFINITY))
        try:
            db.execute('pragma forebay_readahead=full')
            result = db.execute(query).fetchone()
        except MemoryError:
            result = 'refused'
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        stats = db.execute('pragma forebay_stats').fetchall()
        os.write(write, repr((result, stats)).encode())
        os._exit(0)
    status = os.wait()[1]
    os.close(write)
    said = os.read(read, 1000)
    os.close(read)
    assert status == 0 and said, (arguments, room, status)
    result, stats = eval(said)
    assert result in (expected, 'refused'), (arguments, room, result)
    return stats[0][0].split() if stats else []


def asked(said):
    return int(dict(pair.split('=') for pair in said)['asked'])


rooms = [page * 4096 for page in range(0, 120, 8)]
for room in rooms:
    assert process('', room) == []
enough = asked(process('vfs=forebay&readahead=off', 1 << 28))
all_asked = [asked(process('vfs=forebay&readahead=off', room)) for room in rooms]
print(enough, sum(asked < enough / 2 for asked in all_asked))
