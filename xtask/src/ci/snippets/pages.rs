//! The pages whose snippets run, and what each finds there.

pub(super) struct Page {
    pub(super) path: &'static str,
    /// Programs without which the page is skipped, and why.
    pub(super) needs: &'static [(&'static str, &'static str)],
    /// Its commands are for the root of the checkout; else for an empty directory.
    pub(super) in_checkout: bool,
    /// Shell before the first block, after each, and at the end, whatever happened.
    pub(super) before: &'static [&'static str],
    pub(super) between: &'static str,
    pub(super) after: &'static str,
    /// Names that are examples, and what they are here.
    pub(super) replace: &'static [(&'static str, &'static str)],
}

const NOTHING: Page = Page {
    path: "",
    needs: &[],
    in_checkout: false,
    before: &[],
    between: "",
    after: "",
    replace: &[],
};

/// What all pages find: root has no need of sudo.
pub(super) const BEFORE: &str = r#"
sudo() { "$@"; }
export PATH="$SHARED/bin:$PATH" CARGO_INSTALL_ROOT="$SHARED" PGUSER=postgres
run_sql() { psql --no-psqlrc --set ON_ERROR_STOP=1 --dbname shop --file "$1"; }
run_sqlite() { sqlite3 -bail :memory: <"$1"; }
# Not every Python loads extensions; Debian's does.
run_python() {
    local python=$PYTHON
    if grep --quiet enable_load_extension "$1" && ! "$python" -c 'import sqlite3; sqlite3.Connection.enable_load_extension'; then
        python=/usr/bin/python3
    fi
    "$python" "$SCRATCH/check.py" "$1"
}
run_js() { node -e "$(cat "$1")" | tee printed; grep --quiet wakes= printed; }
"#;

/// Runs a block of Python, then queries what it has made.
pub(super) const CHECK: &str = r#"
import sqlite3, sys
for name in ["apsw", "sqlalchemy", "sqlite_utils", "forebay_sqlite"]:
    try:
        globals()[name] = __import__(name)
    except ImportError:
        pass
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
pragma = "PRAGMA forebay_stats"
if "DATABASES" in globals():
    import django.conf
    django.conf.settings.configure(DATABASES=DATABASES)
    from django.db import connection
    with connection.cursor() as cursor:
        row = cursor.execute(pragma).fetchone()
elif "engine" in globals():
    with engine.connect() as connection:
        row = connection.exec_driver_sql(pragma).fetchone()
else:
    row = db.execute(pragma).fetchone()
print(row)
assert row and row[0].startswith("wakes="), row
"#;

/// The packages of Python, and a database in the current directory.
const PYTHON: &str = r#"
python3 -m venv environment
environment/bin/python -m pip --quiet --disable-pip-version-check install "$PACKAGES"/*"$(uname -m)".whl \
    apsw sqlalchemy django sqlite-utils
PYTHON=$PWD/environment/bin/python
cp environment/lib/python3*/site-packages/forebay_sqlite/libforebay_sqlite.so .
sqlite3 data.db 'create table orders(placed, note); insert into orders values (8, 1)'
"#;

/// Debian's server, with a database of a table that is worth a look.
const SERVER: &str = r#"
pg_createcluster --start --port 5432 15 snippets -- --auth trust >/dev/null
createdb shop
psql --quiet shop <<'TABLE'
create table orders as select i as id, i::bigint * 7919 % 400009 as placed, repeat('x', 300) as note from generate_series(1, 400000) i;
create index by_placed on orders(placed);
vacuum analyze orders;
TABLE
"#;
/// The control group of that server, with the name that systemd gives it.
const IN_A_GROUP: &str = r#"
groups=$(findmnt --noheadings --output TARGET --types cgroup2 | head -1)
mkdir -p "$groups/system.slice/postgresql@15-main.service"
echo $$ >"$groups/system.slice/postgresql@15-main.service/cgroup.procs"
"#;
/// Reads there are until the server ends.
const BUSY: &str = r#"
echo $$ >"$groups/cgroup.procs"
while psql --quiet shop --command 'select sum(length(note)) from orders'; do :; done >/dev/null 2>&1 &
sqlite3 shop.db 'create table orders(placed)'
"#;
const NO_SERVER: &str = "pg_dropcluster --stop 15 snippets";
const NO_SERVER_AND_NO_GROUP: &str = r#"
pg_dropcluster --stop 15 snippets
groups=$(findmnt --noheadings --output TARGET --types cgroup2 | head -1)
rmdir "$groups/system.slice/postgresql@15-main.service" "$groups/system.slice"
"#;

const NEEDS_SERVER: &[(&str, &str)] =
    &[("pg_createcluster", "no pg_createcluster: apt-get install postgresql-15")];

pub(super) const PAGES: &[Page] = &[
    // Installs the command, which the others use.
    Page {
        path: "docs/lab.md",
        in_checkout: true,
        needs: &[("fusermount3", "no FUSE: apt-get install fuse3")],
        before: &["mkdir -p /mnt/data"],
        between: "test ! -e forebay-report || cp forebay-report/report.json before.json; test ! -e before.json || cp before.json after.json",
        after: "rm -rf forebay-report before.json after.json depth.html; rmdir /mnt/data",
        ..NOTHING
    },
    Page {
        path: "docs/postgresql.md",
        in_checkout: true,
        needs: NEEDS_SERVER,
        before: &[SERVER],
        between: "pg_ctlcluster 15 snippets restart; psql --quiet shop --command 'create extension if not exists forebay'",
        after: "pg_dropcluster --stop 15 snippets; make -C integrations/postgres PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config uninstall clean",
        ..NOTHING
    },
    Page {
        path: "integrations/postgres/README.md",
        needs: NEEDS_SERVER,
        before: &[
            "pg_createcluster --start --port 5432 15 snippets -- --auth trust >/dev/null; cd \"$ROOT/integrations/postgres\"",
        ],
        after: "pg_dropcluster --stop 15 snippets; make -C \"$ROOT/integrations/postgres\" PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config uninstall clean",
        ..NOTHING
    },
    Page {
        path: "docs/advise.md",
        needs: NEEDS_SERVER,
        before: &[SERVER],
        between: "echo 'select count(note) from orders where placed between 1 and 2000;' >queries.sql",
        after: NO_SERVER,
        replace: &[
            ("--json advice.json", "--json advice.json --drop-caches --yes"),
            // On a busy machine nothing may gain, and then there is nothing to take back.
            ("--rollback", "--rollback || test $? = 2"),
        ],
        ..NOTHING
    },
    Page {
        path: "docs/watch.md",
        needs: NEEDS_SERVER,
        before: &[IN_A_GROUP, SERVER, BUSY],
        after: NO_SERVER_AND_NO_GROUP,
        replace: &[
            ("4711", "$(head -1 /var/lib/postgresql/15/snippets/postmaster.pid)"),
            // Watching ends when the user ends it.
            ("--service", "--seconds 5 --service"),
        ],
        ..NOTHING
    },
    Page { path: "docs/sqlite.md", before: &[PYTHON], ..NOTHING },
    Page {
        path: "docs/sqlite-clients.md",
        before: &[PYTHON],
        replace: &[("/srv/shop/", "")],
        ..NOTHING
    },
    Page { path: "integrations/sqlite/python/METADATA", before: &[PYTHON], ..NOTHING },
    Page {
        path: "integrations/sqlite/node/README.md",
        needs: &[("npm", "no npm: apt-get install npm")],
        before: &[
            "npm init --yes >/dev/null; npm install --silent \"$PACKAGES\"/*.tgz better-sqlite3",
        ],
        ..NOTHING
    },
    Page {
        path: "docs/engines.md",
        before: &[
            "run_toml() { mkdir -p engine/src; touch engine/src/lib.rs; ln -sfn \"$ROOT\" forebay; \
                 { printf '[package]\\nname = \"engine\"\\n'; cat \"$1\"; } >engine/Cargo.toml; \
                 cargo check --quiet --manifest-path engine/Cargo.toml; }",
        ],
        ..NOTHING
    },
    Page {
        path: "docs/object.md",
        needs: &[(
            "versitygw",
            "no object store: go install github.com/versity/versitygw/cmd/versitygw@latest",
        )],
        in_checkout: true,
        ..NOTHING
    },
    Page { path: "README.md", in_checkout: true, after: "rm -rf forebay-report", ..NOTHING },
    // The last one, since it takes long.
    Page { path: "docs/packages.md", in_checkout: true, ..NOTHING },
];
