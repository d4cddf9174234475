# Runs Python's own tests of sqlite3, with the library as the default VFS or, without one, with stock.
#
# argv[1]: library or nothing; argv[2]: a directory; argv[3]: `files` has databases in memory lie in files.
# Prints how many tests ran and how many files were opened through the VFS, then the tests that failed.
import ctypes, ctypes.util, os, sqlite3, sys, unittest

library, directory, where = sys.argv[1:4]
os.chdir(directory)
if library:
    sqlite = ctypes.CDLL(ctypes.util.find_library('sqlite3') or 'libsqlite3.so.0')
    sqlite.sqlite3_initialize()
    functions = [sqlite.sqlite3_vfs_find, sqlite.sqlite3_vfs_register, sqlite.sqlite3_mprintf, sqlite.sqlite3_uri_parameter,
                 sqlite.sqlite3_log]
    assert ctypes.CDLL(library).forebay_sqlite_register(*functions, 1) == 0
    if not sqlite3.connect('probe.db').execute('pragma forebay_stats').fetchall():
        print('another SQLite')
        sys.exit()

opened = 0
real_connect = sqlite3.connect


def connect(*arguments, **named):
    global opened
    if where == 'files' and arguments[:1] == (':memory:',):
        arguments = f'{opened}.db', *arguments[1:]
    opened += arguments[:1] != (':memory:',)
    return real_connect(*arguments, **named)


sqlite3.connect = sqlite3.dbapi2.connect = connect
suite = unittest.defaultTestLoader.loadTestsFromName('test.test_sqlite3')
result = unittest.TextTestRunner(stream=open(os.devnull, 'w')).run(suite)
print(result.testsRun, opened)
for test, _ in result.failures + result.errors:
    print(test)
