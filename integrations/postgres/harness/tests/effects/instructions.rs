//! What a query in memory costs with the extension: counted in instructions, as time says little on a shared machine.

use std::io::Write as _;
use std::process::{Command, Stdio};

use forebay_postgres_harness::suite::{Case, must, note_skip, text};
use forebay_postgres_harness::{Disk, Server};

const CURSORS: u32 = 500;

const TABLES: &str = "create table rows (id int primary key, note text);
    insert into rows select g, repeat('x', 100) from generate_series(1, 20000) g;
    create table ids as select g * 337 % 20000 + 1 as id from generate_series(1, 100) g;
    vacuum analyze; checkpoint";

/// As many tables as it takes for the cost of each to count.
const PARTITIONS: &str = "do $$ begin
        create table parts (id int, value int) partition by range (id);
        for i in 0 .. 999 loop
            execute format('create table part_%s partition of parts for values from (%s) to (%s)', i, 10 * i, 10 * i + 10);
        end loop;
        insert into parts select g, g from generate_series(0, 9999) g;
        create index on parts (id);
    end $$";

/// Reads all pages first, so that none is missing from shared buffers later.
const WARM: &[&str] = &[
    "select sum(length(note)) from rows",
    "set enable_seqscan = off",
    "select count(*) from rows where id > 0",
    "reset enable_seqscan",
];

/// A statement that is executed many times.
struct Repeated {
    name: &'static str,
    before: &'static [&'static str],
    execute: fn(u32) -> String,
    counts: [u32; 2],
    /// At most this many times the server's own instructions.
    limit: f64,
}

const REPEATED: &[Repeated] = &[
    Repeated {
        name: "a prepared look-up of one row",
        before: &["prepare p as select note from rows where id = $1"],
        execute: |number| format!("execute p({})", number * 7919 % 20000 + 1),
        counts: [500, 1500],
        limit: 1.01,
    },
    Repeated {
        name: "a nested loop of a hundred look-ups",
        before: &[
            "set enable_hashjoin = off",
            "set enable_mergejoin = off",
            "set enable_memoize = off",
            "prepare p as select count(note) from ids join rows using (id)",
        ],
        execute: |_| "execute p".to_owned(),
        counts: [50, 150],
        limit: 1.01,
    },
    Repeated {
        name: "a scan of a thousand partitions",
        before: &[
            "set enable_seqscan = off",
            "set enable_bitmapscan = off",
            "set track_counts = off",
            "select count(value) from parts where id >= 0",
        ],
        execute: |_| "select count(value) from parts where id >= 0".to_owned(),
        counts: [1, 2],
        limit: 1.022,
    },
    Repeated {
        name: "five hundred open cursors",
        before: &[
            "set enable_seqscan = off",
            "set enable_bitmapscan = off",
            "set track_counts = off",
        ],
        execute: |_| {
            format!(
                "do $$ declare one refcursor; found record; begin for i in 1 .. {CURSORS} loop one := 'cursor ' || i; \
                 open one for select id, note from rows where id >= i order by id; fetch one into found; end loop; end $$"
            )
        },
        counts: [1, 2],
        limit: 1.022,
    },
];

/// Instructions that a backend executes for `count` executions, and for what it does before and after.
fn counted(
    server: &Server,
    repeated: &Repeated,
    libraries: &str,
    count: u32,
) -> Result<u64, String> {
    let arguments = ["--tool=callgrind", "--callgrind-out-file=/tmp/cg.out.%p"];
    let settings = [("shared_buffers", "32MB"), ("session_preload_libraries", libraries)];
    let mut command = server.single_user("valgrind", &arguments, &settings);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(text)?;
    let mut statements = WARM.iter().chain(repeated.before).copied().collect::<Vec<_>>().join("\n");
    for number in 0..count {
        statements.push('\n');
        statements.push_str(&(repeated.execute)(number));
    }
    statements.push('\n');
    child.stdin.take().ok_or("no input")?.write_all(statements.as_bytes()).map_err(text)?;
    let output = child.wait_with_output().map_err(text)?;
    let words = String::from_utf8_lossy(&output.stderr);
    let collected = words.split_once("Collected :").filter(|_| output.status.success());
    let (_, rest) = collected.ok_or_else(|| format!("valgrind: {}: {words}", output.status))?;
    if words.contains("ERROR:") {
        return Err(format!("a statement failed: {words}"));
    }
    rest.split_whitespace().next().unwrap_or_default().parse().map_err(text)
}

pub(crate) fn are_few(case: &Case) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") || Command::new("valgrind").arg("--version").output().is_err()
    {
        note_skip("effects", "queries_in_memory_cost_a_hundredth_more", "no valgrind for x86-64");
        return Ok(());
    }
    let mut server = Server::new(&case.installation, case.extension.as_ref(), Disk::Real, &[]);
    let server = server.as_mut().map_err(text)?;
    // A table of a server in single-user mode would be one of the system's.
    let mut session = server.connect("postgres", &[]).map_err(text)?;
    session.rows(PARTITIONS).map_err(text)?;
    must(&mut session, TABLES)?;
    drop(session);
    server.stop().map_err(text)?;
    for repeated in REPEATED {
        let [few, many] = repeated.counts;
        // The first process that reads the rows sets their hint bits.
        counted(server, repeated, "", 1)?;
        let each = |libraries| {
            let (few, many) = (
                counted(server, repeated, libraries, few)?,
                counted(server, repeated, libraries, many)?,
            );
            Ok::<_, String>(
                (many - few) as f64 / f64::from(repeated.counts[1] - repeated.counts[0]),
            )
        };
        let (stock, ours) = (each("")?, each("forebay")?);
        if ours > stock * repeated.limit {
            return Err(format!(
                "{}: {ours:.0} instructions, {stock:.0} without forebay: {:.2} % more",
                repeated.name,
                (ours / stock - 1.0) * 100.0
            ));
        }
        #[expect(clippy::print_stderr, reason = "a figure that docs/postgresql.md names")]
        {
            eprintln!(
                "{}: {}: {stock:.0} instructions, {ours:.0}",
                case.installation.version, repeated.name
            );
        }
    }
    Ok(())
}
