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
pub(super) const WHOLE: &[Part] = &[
    ("pool", "pool", ""),
    ("io", "conformance", ""),
    ("io", "forebay_io", ""),
    ("pool", "process", ""),
    ("pool", "examples", ""),
    ("pool", "kill", ""),
    ("pool", "stress", ""),
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
    again(run, AS_USER, LAB_AS_USER, |run, test, names| user.command(run, test, names))
}

pub(super) fn lab(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    let lab = [Selection::part(&("cli", "command", ""))];
    select(run, &binaries, &lab, |run, test, names| without_uring(run, test, names, "EPERM"))?;
    let Some(user) = OrdinaryUser::new(run)? else {
        return Ok(());
    };
    select(run, &binaries, &lab, |run, test, names| user.command(run, test, names))
}

/// All of io and pool with io_uring unknown to the kernel, and as an ordinary user.
pub(super) fn lesser(run: &mut Run) -> Result<()> {
    let binaries = Binaries::get(run)?;
    parts(run, &binaries, WHOLE, |run, test, names| without_uring(run, test, names, "ENOSYS"))?;
    let Some(user) = OrdinaryUser::new(run)? else {
        return Ok(());
    };
    parts(run, &binaries, WHOLE, |run, test, names| user.command(run, test, names))
}

/// Tests of one binary.
struct Selection<'a> {
    directory: &'a str,
    target: &'a str,
    arguments: Vec<&'a str>,
    /// The number of tests that the arguments list, if they list them.
    listed: Option<usize>,
}

impl<'a> Selection<'a> {
    fn part((directory, target, part): &Part) -> Selection<'a> {
        Selection { directory, target, arguments: vec![part], listed: None }
    }
}

/// Runs each of `parts` by the command that `command` returns for the arguments of a test binary; none if it cannot run
/// here.
///
/// # Errors
/// A test fails, or a part names none.
pub(super) fn parts(
    run: &mut Run,
    binaries: &Binaries,
    parts: &[Part],
    command: impl Fn(&mut Run, &Test<'_>, &[&str]) -> Result<Option<Command>>,
) -> Result<()> {
    let all: Vec<Selection<'_>> = parts.iter().map(Selection::part).collect();
    select(run, binaries, &all, command)
}

/// Runs `parts` and the tests `lab`.
fn again(
    run: &mut Run,
    parts: &[Part],
    lab: &[&str],
    command: impl Fn(&mut Run, &Test<'_>, &[&str]) -> Result<Option<Command>>,
) -> Result<()> {
    let binaries = Binaries::get(run)?;
    let arguments = [&["--exact"], lab].concat();
    let listed = Some(lab.len());
    // The longest first.
    let mut all = vec![Selection { directory: "cli", target: "command", arguments, listed }];
    all.extend(parts.iter().map(Selection::part));
    select(run, &binaries, &all, command)
}

fn select(
    run: &mut Run,
    binaries: &Binaries,
    all: &[Selection<'_>],
    command: impl Fn(&mut Run, &Test<'_>, &[&str]) -> Result<Option<Command>>,
) -> Result<()> {
    let (mut commands, mut started) = (Vec::new(), Vec::new());
    for one in all {
        let test = binaries.test(one.directory, one.target)?;
        if let Some(command) = command(run, &test, &one.arguments)? {
            commands.push(command);
            started.push(one);
        }
    }
    for (Selection { directory, target, arguments, listed }, ran) in
        started.into_iter().zip(run.commands(commands)?)
    {
        // A binary that cannot run here is one skip.
        let is_skipped = ran.tests == 0 && ran.skips > 0;
        let is_whole = listed.map_or(ran.tests > 0, |listed| ran.tests == listed);
        ensure!(
            is_skipped || is_whole,
            "{} tests of `{target}` in {directory} ran with {arguments:?}: put the list right",
            ran.tests
        );
    }
    Ok(())
}

/// The command that runs `test` with every io_uring call failing with `errno`; none where there is no io_uring.
fn without_uring(
    run: &mut Run,
    test: &Test<'_>,
    arguments: &[&str],
    errno: &str,
) -> Result<Option<Command>> {
    if !cfg!(target_os = "linux") {
        run.skip("a whole test binary", "there is no io_uring to block");
        return Ok(None);
    }
    let mut command = Command::new(&run.xtask);
    command.args(["no-uring", "--errno", errno, "--"]).arg(test.path).args(arguments);
    test.prepare(&mut command);
    Ok(Some(command))
}
