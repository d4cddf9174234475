//! How many instructions a hit with its release takes, and an optimistic read of 8 bytes: counted, and refused
//! when they are more than stated here.
//!
//! Time says little on a shared machine; a count is the same on every one. This program runs itself under
//! valgrind (`callgrind`) with two numbers of steps: what the pool does besides falls out of the difference.
//! The same loop over plain memory is taken off. What it counts is a user's program, so a small function of the
//! pool's that is not inlined across crates counts with its call.
//!
//! `cargo run --release -p forebay-instructions`. Without valgrind, or on another processor than x86-64, it says
//! `skipped` and writes that to the file named by FOREBAY_SKIPS.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::env;
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, ExitCode};

use forebay::{BufferPool, Checksum, FileOptions, Lsn, PagedFile, TornPages};

/// What is counted, and the most instructions that it may take beyond [`plain`]. How the compiler divides the crate
/// among its units moves a hit by three of them: it takes 50 now, and an optimistic read 55 (ADR 19).
const LIMITS: [(&str, u64); 2] = [("hit", 50), ("optimistic", 57)];

/// More than the page table has in one chunk, so that the compiler cannot know the chunk.
const BLOCKS: u32 = 2048;
const PAGE: usize = 8192;
const OFFSET: usize = 128;
const FEW: u64 = 10_000;
const MANY: u64 = 110_000;

/// Every block, in another order than they lie; from memory, so that the compiler cannot know what comes next.
type Order = [u32; BLOCKS as usize];

fn order() -> Order {
    black_box(std::array::from_fn(|step| (step as u32 * 441) % BLOCKS))
}

fn at(order: &Order, step: u64) -> u32 {
    order[step as usize % order.len()]
}

fn word(page: &[u8]) -> u64 {
    u64::from_ne_bytes(page[OFFSET..OFFSET + 8].try_into().unwrap())
}

#[inline(never)]
fn plain(memory: &[u8], order: &Order, steps: u64) -> u64 {
    (0..steps).fold(0, |sum, step| {
        let page = at(order, step) as usize * PAGE;
        sum.wrapping_add(word(&memory[page..page + PAGE]))
    })
}

#[inline(never)]
fn hits(file: &PagedFile, order: &Order, steps: u64) -> u64 {
    (0..steps).fold(0, |sum, step| sum.wrapping_add(word(&file.read(at(order, step)).unwrap())))
}

#[inline(never)]
fn optimistic(file: &PagedFile, order: &Order, steps: u64) -> u64 {
    let mut copy = [0; 8];
    (0..steps).fold(0, |sum, step| {
        file.copy(at(order, step), OFFSET, &mut copy).unwrap();
        sum.wrapping_add(u64::from_ne_bytes(copy))
    })
}

fn work(what: &str, steps: u64) {
    let directory = tempfile::tempdir().unwrap();
    let pool = BufferPool::builder()
        .frames(u64::from(BLOCKS))
        .page_size(PAGE)
        .checksum(Checksum::Off)
        .torn_pages(TornPages::Unprotected)
        .directory(directory.path())
        .build()
        .unwrap();
    let file = pool.open_file("counted", &FileOptions::new().create(true)).unwrap();
    file.extend(BLOCKS).unwrap();
    for block in 0..BLOCKS {
        file.init(block).unwrap().mark_dirty(Lsn::NONE);
    }
    let (memory, order) = (vec![0; BLOCKS as usize * PAGE], order());
    black_box(match what {
        "plain" => plain(&memory, &order, steps),
        "hit" => hits(&file, &order, steps),
        "optimistic" => optimistic(&file, &order, steps),
        other => unreachable!("{other}"),
    });
    // Nothing here is worth writing to the disk.
    file.drop_file().unwrap();
}

/// Instructions of `what` for each step.
fn counted(what: &str) -> f64 {
    let all = |steps: u64| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().unwrap())
            .args(["count", what, &steps.to_string()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "valgrind: {}: {said}", output.status);
        let (_, rest) = said.split_once("Collected :").expect("what callgrind has counted");
        rest.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    (all(MANY) - all(FEW)) as f64 / (MANY - FEW) as f64
}

fn skipped(reason: &str) -> ExitCode {
    println!("instructions: skipped: {reason}");
    if let Some(skips) = env::var_os("FOREBAY_SKIPS") {
        let mut skips = OpenOptions::new().append(true).create(true).open(skips).unwrap();
        writeln!(skips, "pool: instructions: {reason}").unwrap();
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [count, what, steps] = &arguments[..]
        && count == "count"
    {
        work(what, steps.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    if !cfg!(target_arch = "x86_64") {
        return skipped("the limits are for x86-64");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skipped("no valgrind");
    }
    let plain = counted("plain");
    let mut code = ExitCode::SUCCESS;
    for (what, limit) in LIMITS {
        // The pool's own threads take a few hundred in all, more or less.
        let took = (counted(what) - plain).round();
        println!("{what}: {took} instructions, of {limit} at most");
        if took > limit as f64 {
            code = ExitCode::FAILURE;
        }
    }
    code
}
