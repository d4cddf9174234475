# Four processes write and read one database, two of them through the VFS; one after another is killed in the middle.
#
# argv[3]: journal mode; argv[4]: how many are killed. Prints how many of them
# were in a transaction, and how many pages were prefetched by those that ended well.
import random, signal, subprocess, time

WRITER = '''
import os, random, sqlite3, sys, time
library, path, uri, who = sys.argv[1:5]
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(library)
db = sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None)
db.execute('pragma cache_size=6')
db.execute('pragma wal_autocheckpoint=20')
log = os.open(f'{path}.{who}', os.O_WRONLY | os.O_APPEND | os.O_CREAT)
number = db.execute('select max(number) from t where who = ?', [who]).fetchone()[0] or 0
while not os.path.exists(path + '.end'):
    number += 1
    db.execute('begin immediate')
    os.write(log, b'begin\\n')
    # More than SQLite's cache, so that the file is written before the end.
    db.executemany('insert into t(who, number, part, k, b) values (?, ?, ?, ?, zeroblob(700))',
        ((who, number, part, (number * 16 + part) * 7919 % 1009) for part in range(16)))
    db.execute('select sum(length(b)) from t where k between 200 and 500').fetchall()
    db.execute('delete from t where who = ? and number <= ?', [who, number - 10])
    db.execute('commit')
    os.write(log, b'%d\\n' % number)
    time.sleep(random.random() * .06)  # without, one of them has the lock all the time
stats = db.execute('pragma forebay_stats').fetchone()
print(stats[0].split()[1].split('=')[1] if stats else 0)
'''
mode, kills = sys.argv[3], int(sys.argv[4])
chance = random.Random(f'{mode} {sys.argv[5]}')
load()
uris = {'a': f'file:{path}?vfs=forebay', 'b': f'file:{path}?vfs=forebay&distance_max=16', 'c': f'file:{path}', 'd': f'file:{path}'}
checking = [connect(), sqlite3.connect(path, timeout=60, isolation_level=None)]
for setting in 'page_size=1024', 'auto_vacuum=full', f'journal_mode={mode}':
    checking[0].execute('pragma ' + setting)
checking[0].execute('create table t(a integer primary key, who, number, part, k, b)')
checking[0].execute('create index by_k on t(k)')


def log(who):
    try:
        return open(f'{path}.{who}').read().split('\n')[:-1]
    except FileNotFoundError:
        return []


def committed(who):
    return max((int(line) for line in log(who) if line != 'begin'), default=0)


def check():
    acknowledged = {who: committed(who) for who in uris}
    for db in checking:
        assert db.execute('pragma integrity_check').fetchall() == [('ok',)]
        there = {who: [] for who in uris}
        for who, number, parts in db.execute('select who, number, count(*) from t group by who, number order by number'):
            assert parts == 16, (who, number, parts)
            there[who].append(number)
        for who, numbers in there.items():
            last = max(numbers, default=0)
            assert last >= acknowledged[who], (who, numbers, acknowledged)
            assert numbers == list(range(max(1, last - 9), last + 1)), (who, numbers)


def start(who):
    return subprocess.Popen([sys.executable, '-c', WRITER, library, path, uris[who], who], stdout=subprocess.PIPE, text=True)


writers = {who: start(who) for who in uris}
began = {who: 0 for who in uris}
in_the_middle = 0
for _ in range(kills):
    victim = chance.choice('abcd')
    until = time.monotonic() + 60
    while len(log(victim)) <= began[victim] + 1 or log(victim)[-1] != 'begin':
        assert writers[victim].poll() is None and time.monotonic() < until, victim
        time.sleep(.0005)
    time.sleep(chance.random() * .006)
    writers[victim].kill()
    assert writers[victim].wait() == -signal.SIGKILL
    in_the_middle += log(victim)[-1] == 'begin'
    check()
    began[victim] = len(log(victim))
    writers[victim] = start(victim)
open(path + '.end', 'w').close()
asked = [int(writer.communicate()[0]) for writer in writers.values()]
assert all(writer.returncode == 0 for writer in writers.values())
check()
print(in_the_middle, sum(asked))
