# Locks are held while other connections of the process read, and close; other processes try to get in.
import subprocess

OTHER = '''
import sqlite3, sys
library, uri, statement = sys.argv[1:4]
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.load_extension(library)
db = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
try:
    db.execute(statement)
    print('got it')
except sqlite3.OperationalError as error:
    print(error)
'''


def others(statement):
    'What processes without the VFS and with it see.'
    says = []
    for uri in f'file:{path}', f'file:{path}?vfs=forebay':
        run = subprocess.run([sys.executable, '-c', OTHER, library, uri, statement], capture_output=True, text=True)
        says.append(run.stdout.strip() or run.stderr)
    return says


load()
locked, let_in = ['database is locked'] * 2, ['got it'] * 2
query = 'select count(b) from t where k between 0 and 700'
stock = lambda: sqlite3.connect(path, isolation_level=None)
db = connect()
db.execute('pragma cache_size=20')
db.execute('create table t(a integer primary key, k, b)')
db.execute('create index by_k on t(k)')
db.execute('begin')
db.executemany('insert into t(k, b) values (?, zeroblob(900))', [[i * 7919 % 1009] for i in range(1000)])
db.execute('commit')
for mode in 'delete', 'wal':
    assert db.execute(f'pragma journal_mode={mode}').fetchone() == (mode,)
    for opens in connect, stock, lambda: connect('&readahead=off'):
        # A writer's lock.
        cold(path)
        db.execute('begin immediate')
        db.execute('insert into t(k) values (-1)')
        db.execute(query).fetchall()
        second = opens()
        second.execute(query).fetchall()
        second.close()
        assert others('begin immediate') == locked, mode
        db.execute('rollback')
        # A reader's, which lets no process write where there is no write-ahead log.
        cold(path)
        reading = db.execute(query.replace('count(b)', 'b'))
        reading.fetchone()
        second = opens()
        second.execute(query).fetchall()
        second.close()
        assert others('insert into t(k) values (-2)') == (locked if mode == 'delete' else let_in), mode
        reading.close()
        assert others('insert into t(k) values (-2)') == let_in
# A client that has all of it lets no process read.
assert db.execute('pragma journal_mode=delete').fetchone() == ('delete',)
db.execute('begin exclusive')
connect().close()
assert others('select * from t') == locked
db.execute('commit')
print(db.execute('pragma forebay_stats').fetchone()[0].split()[0].split('=')[1])
