# Two databases, one through each VFS, get the same statements; what they answer and hold is compared.
#
# argv[3]: page size; argv[4]: statements for each journal mode and kind of auto-vacuum.
import ctypes, ctypes.util, hashlib, itertools, random

load()
base, size, statements = path, int(sys.argv[3]), int(sys.argv[4])
library = ctypes.CDLL(ctypes.util.find_library('sqlite3') or 'libsqlite3.so.0')
RESERVE_BYTES = 38
# A connection of CPython's begins with its two own words, then SQLite's handle.
handle = lambda db: ctypes.c_void_p.from_address(id(db) + 2 * ctypes.sizeof(ctypes.c_void_p))
few = 'with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)'
asked = 0


def kinds_of(chance, mode):
    number = lambda: chance.randrange(3000)
    count = lambda: chance.choice([1, 1, 20, 200])
    text = lambda: ('text %d ' % number() * chance.choice([1, 1, 5, 20, min(size, 4096) // 20]))
    # Some lie in several overflow pages, and of some only the end does.
    blob = lambda: chance.randbytes(int(size * chance.choice([.1, .3, .9, 1.1, 3.3])))
    # From many pages to a few, whatever their size.
    long = lambda: chance.randbytes(chance.randrange(5 << 10, 200 << 10))
    kinds = [
        lambda: (few + 'insert or replace into t select abs(i * ? + ?) % 3000, ?, ? from n', [chance.choice([1, 2, 5]), number(), number() // 3, long()]),
        lambda: ('insert or replace into w values (?, ?, ?)', ['long', number(), long()]),
        lambda: ("select a, length(b || '') from t where k between ? and ? + 300 order by k", [number() // 3] * 2),
        lambda: ("select count(*), sum(length(b || '')), max(substr(b, -9)) from t where a % ? = 0", [chance.choice([1, 2, 9])]),
        lambda: ('select max(substr(b, ?, 50)) from t', [number() * 3]),
        lambda: ("select sum(length(t.b || '')), count(*) from j join t on t.a = j.t_a where j.a > ?", [number()]),
        lambda: (few + 'insert or replace into t select abs(i * ? + ?) % 3000, i * ? % 1000, ? from n',
            [count(), 2 * number() + 1, number(), number(), text()]),
        lambda: (few + 'insert or replace into t select abs(i * ? + ?) % 3000, null, ? from n', [chance.choice([1, 2, 5]), number(), number(), blob()]),
        lambda: (few + 'insert or replace into w select ? || (i % 50), i * ?, ? from n', [count(), text()[:size // 3], number(), text()]),
        lambda: ('insert or replace into w values (?, ?, ?)', ['long', number(), blob()]),
        lambda: (few + 'insert into j(t_a, x) select i * ? % 3000, ? from n', [count(), number(), text()[:30]]),
        lambda: ('delete from t where k between ? and ? + 20', [number() // 3] * 2),
        lambda: ('delete from w where q % 100 = ?', [number() % 100]),
        lambda: ('update t set k = k + 1, b = ? where a between ? and ? + 30', [text(), *[number()] * 2]),
        lambda: ('update w set r = r || ? where p > ? and q % 10 = 1', [text()[:50], text()[:6]]),
        lambda: ('select * from t where k between ? and ? + 300 order by k', [number() // 3] * 2),
        lambda: ('select a, length(b) from t where k > ? order by k desc limit ?', [number() // 3, count()]),
        lambda: ('select count(*), sum(length(b)), max(k) from t', []),
        lambda: ('select sum(length(t.b)), count(*) from j join t on t.a = j.t_a where j.a > ?', [number()]),
        lambda: ('select count(*), max(w.r) from j join t on t.a = j.t_a join w on w.q = t.k where j.a % 50 = ?', [number() % 50]),
        lambda: ('select p, r from w where p > ? limit 30', [text()[:8]]),
        lambda: ('select * from w order by p, q', []),
        lambda: ('select * from t order by a desc limit ?', [count()]),
        lambda: ('blob', number()),
        lambda: (chance.choice(['begin', 'commit', 'commit', 'begin immediate', 'savepoint s', 'release s', 'analyze']), []),
        lambda: (chance.choice(['create index if not exists extra on t(length(b), k)', 'drop index if exists extra', 'drop table if exists c',
            'create table if not exists c as select k, b from t where a < 100']), []),
        lambda: (chance.choice(['vacuum', 'pragma incremental_vacuum(5)', 'pragma incremental_vacuum', 'pragma integrity_check', 'reindex',
            'pragma wal_checkpoint(truncate)', 'delete from j', 'pragma shrink_memory', 'pragma freelist_count', 'pragma page_count']), []),
    ]
    if mode != 'off':  # which cannot roll back
        kinds.append(lambda: (chance.choice(['rollback', 'rollback to s']), []))
    return kinds


def answer(db, sql, values):
    try:
        if sql != 'blob':
            return db.execute(sql, values).fetchall()
        row = db.execute('select a from t where a > ? and length(b) > 9 and typeof(b) = \'blob\' order by a', [values]).fetchone()
        if row is None or not hasattr(db, 'blobopen'):
            return row
        with db.blobopen('t', 'b', row[0]) as blob:
            blob.seek(len(blob) // 2)
            blob.write(b'here')
            blob.seek(0)
            return blob.read()
    except sqlite3.Error as error:
        return str(error)


def content(db):
    return hashlib.sha256('\n'.join(db.iterdump()).encode()).hexdigest()


for mode, (vacuum, vacuuming) in itertools.product(['delete', 'truncate', 'persist', 'memory', 'wal', 'off'], enumerate(['none', 'full', 'incremental'])):
    chance = random.Random(f'{size} {mode} {vacuum} {sys.argv[5]}')
    path = f'{base}.{size}.{mode}.{vacuuming}'
    reserved = chance.choice([0, 0, 8, 32])
    encoding = chance.choice(['UTF-8', 'UTF-8', 'UTF-16le', 'UTF-16be'])
    ours, stock = connect(), sqlite3.connect(path + '.stock', isolation_level=None)
    both = [ours, stock]
    kinds = kinds_of(chance, mode)
    for db in both:
        bytes_reserved = ctypes.c_int(reserved)
        assert library.sqlite3_file_control(handle(db), b'main', RESERVE_BYTES, ctypes.byref(bytes_reserved)) == 0
        for setting in f'encoding="{encoding}"', f'page_size={size}', f'auto_vacuum={vacuuming}', 'cache_size=10', 'synchronous=off':
            db.execute('pragma ' + setting)
        assert db.execute(f'pragma journal_mode={mode}').fetchone() == (mode,)
        db.execute('create table t(a integer primary key, k, b)')
        db.execute('create index by_k on t(k, a % 7)')
        db.execute('create table w(p text, q, r, primary key (p desc, q)) without rowid')
        db.execute('create table j(a integer primary key, t_a, x)')
        db.execute(few + f"insert into t select i * 7, i * 7919 % 1009, printf('%.*c', {size // 20}, 'x') from n", [400])
        db.execute(few + 'insert into j(t_a, x) select i * 104729 % 3000, i from n', [400])
    # Each b-tree of a big database is small; what waits is the file, which slow_reads.c sees to.
    for _ in range(statements):
        sql, values = chance.choice(kinds)()
        answers = [answer(db, sql, values) for db in both]
        assert answers[0] == answers[1], (path, sql, values, [str(it)[:200] for it in answers])
    for db in both:
        if db.in_transaction: db.execute('commit')
    asked += int(dict(pair.split('=') for pair in ours.execute('pragma forebay_stats').fetchone()[0].split())['asked'])
    assert ours.execute('pragma page_size').fetchone() == (size,) and ours.execute('pragma auto_vacuum').fetchone() == (vacuum,)
    assert all(db.execute('pragma integrity_check').fetchall() == [('ok',)] for db in both), path
    expected = content(stock)
    assert content(ours) == expected, path
    ours.close()
    assert open(path, 'rb').read(21)[20] == reserved, path
    reopened = sqlite3.connect(path)
    assert reopened.execute('pragma integrity_check').fetchall() == [('ok',)] and content(reopened) == expected, path
    for db in reopened, stock:
        db.close()
    for file in path, path + '.stock':
        os.remove(file)
print(asked)
