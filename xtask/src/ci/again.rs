//! Tests that run again where something is forbidden: those whose outcome depends on it.
//!
//! A test that names its backend, or whose outcome must be the same for every backend, runs once, in step `test`: the
//! conformance suite already covers each backend. The tests that run again depend on what they find: the ladder of
//! backends, the pool's behaviour with a lesser one, rights, limits. `cargo xtask ci --full` runs them all.

use std::process::Command;

use anyhow::{Result, ensure};

use super::binaries::{Binaries, Test};
use super::ordinary_user::OrdinaryUser;
use super::run::Run;

/// Tests of one binary: the package's directory, the target, and a part of the names.
pub(super) type Part = (&'static str, &'static str, &'static str);

/// Whole, for long steps.
const WHOLE: &[(&str, &str)] = &[
    ("io", "forebay_io"),
    ("io", "conformance"),
    ("pool", "pool"),
    ("pool", "process"),
    ("pool", "kv"),
    ("pool", "kill"),
    ("pool", "stress"),
];

/// The tests of io and pool that another backend could break.
const WITHOUT_URING: &[Part] = &[
    ("io", "forebay_io", "ladder"),
    ("io", "conformance", "ladder"),
    ("pool", "pool", "settings::"),
    ("pool", "pool", "backends::"),
    ("pool", "pool", "checkpoints::basics::"),
    ("pool", "pool", "streams::cold::"),
    ("pool", "process", ""),
];

/// The tests of io and pool that another user could break: rights, and how much memory may be locked.
const AS_USER: &[Part] = &[
    ("io", "forebay_io", "file::"),
    ("io", "forebay_io", "volume::"),
    ("io", "conformance", "ladder"),
    ("io", "conformance", "memory"),
    ("pool", "pool", "settings::"),
    ("pool", "pool", "attached::"),
    ("pool", "pool", "endings::"),
    ("pool", "process", ""),
];

/// The tests of the lab that another backend could break.
const LAB_WITHOUT_URING: &[&str] = &[
    // Reports and their commands contain which backends there are, and why one is missing.
    "cli::a_small_run_writes_records_of_the_promised_shape_and_cleans_up",
    "emulate::contents::an_experiment_runs_on_it_with_every_backend",
    "on::a_report_says_what_was_emulated_and_how_to_repeat_it",
    // The backend handles requests in flight when a run is interrupted, or hangs on a dead disk.
    "cli::ctrl_c_ends_the_run_soon_with_130_and_leaves_nothing",
    "on::a_disk_whose_emulation_has_died_is_not_taken_for_a_bad_device",
    // Streams and checkpoints make the expected requests through any queue.
    "explain::six_blocks_are_six_requests_by_willneed_and_at_most_three_by_a_stream",
    "explain::past_the_page_cache_a_stream_reads_what_it_requests",
    "comparisons::strategies_measures_the_requested_matrix",
    "checkpoint::two_tablespaces_end_on_their_own_and_both_directories_are_left_empty",
];

/// The tests of the lab that another user could break.
const LAB_AS_USER: &[&str] = &[
    // Files and directories that root may touch.
    "cli::a_directory_one_may_not_write_to_is_bad_input",
    "cli::an_output_that_cannot_be_written_is_reported_before_measuring",
    "cli::a_small_run_writes_records_of_the_promised_shape_and_cleans_up",
    // Mounting through fusermount3, and unmounting.
    "emulate::contents::what_is_written_to_the_disk_and_to_files_is_read_back_buffered_and_direct",
    "emulate::endings::a_killed_server_leaves_no_mount_and_no_reader_waiting",
    "emulate::endings::a_signal_unmounts_and_answers_what_was_under_way",
    "emulate::refusals::what_cannot_be_mounted_gets_a_plain_message_with_exit_code_2",
    "on::a_report_says_what_was_emulated_and_how_to_repeat_it",
    "on::without_fuse_or_root_it_is_bad_input_in_a_sentence",
    // Settings of a device, which only root may change.
    "comparisons::a_readahead_that_cannot_be_set_is_reported_before_anything_is_measured",
    "explain::what_it_shows_is_the_disks_own_log_request_by_request",
    "environment::how_far_the_kernel_reads_ahead_is_reported_for_a_file_as_its_device_has_it",
    // A browser with its own sandbox.
    "page::the_first_screen_has_the_disk_the_settings_and_the_plot_in_light_and_dark",
];

pub(super) fn no_uring(run: &mut Run) -> Result<()> {
    again(run, WITHOUT_URING, LAB_WITHOUT_URING, |run, test, names| {
        without_uring(run, test, names, "EPERM")
    })
}

pub(super) fn user(run: &mut Run) -> Result<()> {
    let Some(user) = OrdinaryUser::new(run)? else {
        return Ok(());
    };
    again(run, AS_USER, LAB_AS_USER, |run, test, names| user.run(run, test, names))
}

pub(super) fn lab(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    let test = binaries.test("cli", "command")?;
    without_uring(run, &test, &[], "EPERM")?;
    OrdinaryUser::new(run)?.map_or(Ok(()), |user| user.run(run, &test, &[]))
}

/// All of io and pool with io_uring unknown to the kernel, and as an ordinary user.
pub(super) fn lesser(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    whole(run, &binaries, |run, test| without_uring(run, test, &[], "ENOSYS"))?;
    OrdinaryUser::new(run)?
        .map_or(Ok(()), |user| whole(run, &binaries, |run, test| user.run(run, test, &[])))
}

/// Runs everything in [`WHOLE`], each by `start`.
///
/// # Errors
/// A test fails.
pub(super) fn whole(
    run: &mut Run,
    binaries: &Binaries,
    start: impl Fn(&mut Run, &Test<'_>) -> Result<()>,
) -> Result<()> {
    for (directory, target) in WHOLE {
        start(run, &binaries.test(directory, target)?)?;
    }
    Ok(())
}

/// Runs each of `parts` by `start`, which takes the arguments of a test binary.
///
/// # Errors
/// A test fails, or a part names none.
pub(super) fn parts(
    run: &mut Run,
    binaries: &Binaries,
    parts: &[Part],
    start: impl Fn(&mut Run, &Test<'_>, &[&str]) -> Result<()>,
) -> Result<()> {
    for (directory, target, part) in parts {
        let (before, skips) = (run.found.tests_run(), run.found.skips.len());
        start(run, &binaries.test(directory, target)?, &[part])?;
        let ran = run.found.tests_run() > before || run.found.skips.len() > skips;
        ensure!(ran, "no test `{target}` of {directory} has `{part}` in its name");
    }
    Ok(())
}

/// Runs `parts` and then the tests `lab`, each by `start`, which takes the arguments of a test binary.
fn again(
    run: &mut Run,
    parts: &[Part],
    lab: &[&str],
    start: impl Fn(&mut Run, &Test<'_>, &[&str]) -> Result<()>,
) -> Result<()> {
    let binaries = Binaries::get(run)?;
    self::parts(run, &binaries, parts, &start)?;
    let (before, skips) = (run.found.tests_run(), run.found.skips.len());
    start(run, &binaries.test("cli", "command")?, &[&["--exact"], lab].concat())?;
    let (ran, listed) = (run.found.tests_run() - before, lab.len());
    // Without an ordinary user or io_uring to block, the whole program is one skip.
    let skipped = ran == 0 && run.found.skips.len() > skips;
    ensure!(
        skipped || ran == listed,
        "{ran} of {listed} tests of the lab ran: put the list in ci/again.rs right"
    );
    Ok(())
}

/// Runs `test`, with every io_uring call failing with `errno`.
fn without_uring(run: &mut Run, test: &Test<'_>, arguments: &[&str], errno: &str) -> Result<()> {
    if !cfg!(target_os = "linux") {
        run.skip("the whole step", "there is no io_uring to block");
        return Ok(());
    }
    let mut command = Command::new(&run.xtask);
    command.args(["no-uring", "--errno", errno, "--"]).arg(test.path).args(arguments);
    test.prepare(&mut command);
    run.command(command)
}
