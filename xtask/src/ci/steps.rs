//! The steps that cargo runs: what each compiles, and what it runs.

use std::env;
use std::process::Command;

use anyhow::Result;

use super::again;
use super::binaries::{Binaries, Test};
use super::run::Run;
use crate::{bugs as planted, tidy as rules, wrapper};

/// Preemptions that the ordinary models allow: most bugs need two. The long step uses the models' own bounds.
const LOOM_PREEMPTIONS: &str = "2";

/// Code with variants for other systems: opening, extending, syncing, and the available backends.
const PORTABLE: &[again::Part] =
    &[("io", "conformance", "threads/"), ("io", "conformance", "sync/"), ("io", "forebay_io", "")];

/// What the pool does with that.
const PORTABLE_POOL: &[again::Part] = &[
    ("pool", "pool", "settings::"),
    ("pool", "pool", "segments::"),
    ("pool", "pool", "streams::cold::"),
];

/// Code that is compiled only with a feature.
const WITH_FEATURES: &[again::Part] = &[
    ("compare", "forebay-compare", ""),
    ("compare", "smoke", ""),
    ("session", "forebay_session", ""),
    ("cli", "command", "object::"),
    ("cli", "advise", "tls"),
    ("object", "forebay_object", "address"),
    ("object", "server", ""),
];

/// Tests of a binary at a time: most wait for a disk, or for a process that they have started.
const THREADS: &str = "6";

/// The binaries that run longest, which start first, so that none of them runs alone at the end.
const LONGEST: [&str; 10] = [
    "command",
    "effects",
    "server",
    "differential",
    "advise",
    "pool",
    "clients",
    "conformance",
    "mounted",
    "forebay_lab",
];

/// The crates whose documentation other projects read.
const DOCUMENTED: [&str; 3] = ["forebay-io", "forebay-lookahead", "forebay"];

/// The tests of advice to a server: the package's directory, and the target.
const ADVISE: (&str, &str) = ("cli", "advise");

/// Whether a test starts PostgreSQL servers: all of the extension's do.
fn starts_servers(test: &Test<'_>) -> bool {
    test.is_in("harness") || (test.is_in(ADVISE.0) && test.target == ADVISE.1)
}

pub(super) fn fmt(run: &mut Run) -> Result<()> {
    run.command(run.cargo(&["fmt", "--all", "--check"]))
}

pub(super) fn tidy(run: &mut Run) -> Result<()> {
    rules::run(&run.workspace)
}

pub(super) fn clippy(run: &mut Run) -> Result<()> {
    let mut command = run.cargo(&["test", "--quiet", "--no-run", "--workspace", "--all-targets"]);
    command.envs([run.lints()]);
    run.build(command)
}

/// Everything with every feature: stores by their addresses, TLS, the peers that the pool is compared with.
pub(super) fn features(run: &mut Run) -> Result<()> {
    let everything = ["--workspace", "--all-features"];
    let mut doc = run.cargo(&["doc", "--no-deps"]);
    doc.args(everything).env("RUSTDOCFLAGS", with_flags("RUSTDOCFLAGS", "-D warnings"));
    run.build(doc)?;
    let (variable, lints) = run.lints();
    let all = [&everything[..], &["--all-targets"]].concat();
    let binaries = Binaries::selected(run, &all, &[(variable, &lints)])?;
    again::parts(run, &binaries, WITH_FEATURES, plain)
}

#[expect(clippy::unnecessary_wraps, reason = "a test that cannot run has no command")]
fn plain(_: &mut Run, test: &Test<'_>, arguments: &[&str]) -> Result<Option<Command>> {
    let mut command = test.command();
    command.args(arguments);
    Ok(Some(command))
}

/// Queries are always the same, so that a failure is due to a change.
pub(super) fn test(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    let mut tests: Vec<Test<'_>> = binaries.tests().collect();
    let rank = |test: &Test<'_>| LONGEST.iter().position(|&it| it == test.target);
    tests.sort_by_key(|test| rank(test).unwrap_or(LONGEST.len()));
    let mut examples = run.cargo(&["test", "--quiet", "--workspace", "--doc"]);
    examples.envs([run.lints()]);
    let commands = tests.iter().map(|test| {
        let mut command = test.command();
        command.env("RUST_TEST_THREADS", THREADS);
        match starts_servers(test) {
            true => command.env("FOREBAY_PG_SEED", "1").args(["--test-threads", THREADS]),
            false => command.env("FOREBAY_PG_QUERIES", "0"),
        };
        command
    });
    run.commands([examples].into_iter().chain(commands).collect()).map(drop)
}

/// As many interruptions as docs/advise.md promises.
pub(super) fn pg_interrupts(run: &mut Run) -> Result<()> {
    let advise = [Binaries::get(run)?.test(ADVISE.0, ADVISE.1)?.command()];
    servers(run, advise, &["interrupted"], ("FOREBAY_ADVISE_INTERRUPTS", "50"))
}

/// Tests that fail on a machine with other load.
pub(super) fn timing(run: &mut Run) -> Result<()> {
    let (name, value) = ("FOREBAY_TIMING", "1");
    let judged = [
        "emulate::times",
        "on_an_emulated_array",
        "a_volumes_credits",
        "os_against_itself_and_adaptive",
    ];
    let binaries = Binaries::get(run)?;
    let command = [binaries.test("cli", "command")?.command()];
    servers(run, command, &judged, (name, value))?;
    let advise = [binaries.test(ADVISE.0, ADVISE.1)?.command()];
    servers(run, advise, &["the_planner_changes_where_scans_cross"], (name, value))
}

/// As many queries as the extension's issue requires, from a new seed.
pub(super) fn pg_queries(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    let tests = binaries.tests().filter(starts_servers).map(|test| test.command());
    servers(run, tests, &[], ("FOREBAY_PG_QUERIES", "2000"))
}

/// Runs `tests`, which step `clippy` has built: if a part of them was selected, cargo would build much again.
fn servers(
    run: &mut Run,
    tests: impl IntoIterator<Item = Command>,
    arguments: &[&str],
    (name, value): (&str, &str),
) -> Result<()> {
    for mut command in tests {
        command.args(arguments).env(name, value);
        run.command(command)?;
    }
    Ok(())
}

/// As many of each as the VFS's issue requires; 350 statements are 6,300 for a page size, 8,400 for a journal mode.
pub(super) fn sqlite(run: &mut Run) -> Result<()> {
    let (variable, lints) = run.lints();
    let set = [
        (variable, lints.as_str()),
        ("FOREBAY_SQLITE_STATEMENTS", "350"),
        ("FOREBAY_SQLITE_KILLS", "300"),
        ("FOREBAY_SQLITE_FUZZ_SECONDS", "600"),
    ];
    run.tests(&["--workspace", "--test", "clients"], None, &set)?;
    run.tests(&["-p", "forebay-sqlite", "--lib"], Some("damaged"), &set)
}

pub(super) fn portable(run: &mut Run) -> Result<()> {
    let wrapper = wrapper::for_cfg(&run.workspace, "forebay_portable")?;
    let set = [(wrapper::VARIABLE, wrapper.as_str())];
    let mut pool = run.cargo(&["build", "--quiet", "-p", "forebay"]);
    pool.envs(set);
    run.build(pool)?;
    let selected = ["-p", "forebay-io", "--lib", "--test", "conformance"];
    let binaries = Binaries::selected(run, &selected, &set)?;
    again::parts(run, &binaries, PORTABLE, plain)
}

pub(super) fn portable_pool(run: &mut Run) -> Result<()> {
    let wrapper = wrapper::for_cfg(&run.workspace, "forebay_portable")?;
    let set = [(wrapper::VARIABLE, wrapper.as_str())];
    let selected = ["-p", "forebay", "--lib", "--test", "pool"];
    let binaries = Binaries::selected(run, &selected, &set)?;
    again::parts(run, &binaries, PORTABLE_POOL, plain)
}

pub(super) fn bugs(run: &mut Run) -> Result<()> {
    let mut suite = planted::suite(&run.workspace)?;
    suite.arg("--no-run");
    run.build(suite)?;
    planted::run(&run.workspace, &[])
}

pub(super) fn loom(run: &mut Run) -> Result<()> {
    models(run, &[("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS)])
}

pub(super) fn loom_full(run: &mut Run) -> Result<()> {
    models(run, &[])
}

/// Optimised where models spend their time, and in a separate target directory: loom is a dependency
/// for this cfg alone, which cargo has to know, and RUSTFLAGS rebuild everything.
fn models(run: &mut Run, bound: &[(&str, &str)]) -> Result<()> {
    let target = run.workspace.target_directory.join("loom");
    let flags = with_flags("RUSTFLAGS", "--cfg loom");
    let set = [&[("RUSTFLAGS", &*flags), ("CARGO_TARGET_DIR", target.as_str())], bound].concat();
    run.tests(&["-p", "forebay", "--profile", "loom", "--lib"], Some("loom_"), &set)
}

/// Optimised like a user's program: the counts include the effect of the compiler.
pub(super) fn hits(run: &mut Run) -> Result<()> {
    let selected = ["--quiet", "--release", "-p", "forebay-instructions"];
    run.build(run.cargo(&[&["build"], &selected[..]].concat()))?;
    run.command(run.cargo(&[&["run"], &selected[..]].concat()))
}

pub(super) fn doc(run: &mut Run) -> Result<()> {
    let mut command = run.cargo(&["doc", "--no-deps"]);
    command.args(DOCUMENTED.iter().flat_map(|name| ["-p", name]));
    command.env("RUSTDOCFLAGS", with_flags("RUSTDOCFLAGS", "-D warnings"));
    run.build(command)
}

/// Appends to a flags variable instead of replacing the caller's value.
fn with_flags(variable: &str, flags: &str) -> String {
    format!("{} {flags}", env::var(variable).unwrap_or_default())
}

pub(super) fn kills(run: &mut Run) -> Result<()> {
    let (variable, lints) = run.lints();
    let set =
        [(variable, lints.as_str()), ("FOREBAY_KILL_ROUNDS", "200"), ("FOREBAY_TPCC_KILLS", "50")];
    run.tests(&["--workspace", "--test", "kill"], None, &set)
}

/// As many crashes, fights and kills as the object stores' issue requires.
pub(super) fn object(run: &mut Run) -> Result<()> {
    let (variable, lints) = run.lints();
    let of = |test| ["--workspace", "--features", "forebay-object/url", "--test", test];
    let with = |name, count| [(variable, lints.as_str()), (name, count)];
    let runs = |count| with("FOREBAY_OBJECT_RUNS", count);
    run.tests(&of("object"), Some("recovery_finds"), &runs("10000"))?;
    run.tests(&of("object"), Some("two_writers_that_fight"), &runs("1000"))?;
    run.tests(&of("server"), Some("killed_process"), &with("FOREBAY_OBJECT_KILLS", "100"))
}

pub(super) fn soak(run: &mut Run) -> Result<()> {
    let selected = ["--release", "-p", "forebay", "--test", "pool"];
    run.tests(&selected, Some("soak"), &[("FOREBAY_SOAK_SECONDS", "60")])
}

/// As many as the documentation promises.
pub(super) fn cuts(run: &mut Run) -> Result<()> {
    let selected = ["--release", "-p", "forebay", "--test", "power"];
    run.tests(&selected, None, &[("FOREBAY_POWER_CUTS", "100000")])
}

pub(super) fn lean(run: &mut Run) -> Result<()> {
    let mut lean = run.cargo(&["build", "--quiet", "-p", "forebay", "--no-default-features"]);
    lean.envs([run.lints()]);
    run.build(lean)
}
