//! lookups: random look-ups of a B+tree, in the form in which vmcache's `rndread` tells of its own.
//!
//! ```sh
//! cargo run --release -p forebay-btree --example lookups -- /mnt/data load 22000000
//! cargo run --release -p forebay-btree --example lookups -- /mnt/data run 22000000 --memory 1GiB --threads 64
//! ```
//!
//! Keys are the numbers from 0, eight bytes each, big endian; values have 120 bytes and begin with the key. Pages
//! have 4 KiB and are full, and are read past the kernel's page cache. `run` opens what `load` made and gives one
//! line for each second: look-ups of all threads, and MiB read. Each value is compared with its key.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program tells its user")]

use std::ops::Bound;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use forebay::io::CacheMode;
use forebay::{BufferPool, Size, StrategyKind, Tablespace};
use forebay_btree::{Direction, Tree};

const USAGE: &str = "usage: lookups DIR load COUNT | run COUNT [--memory SIZE] [--threads N] [--seconds N] [--buffered]";
const VALUE_BYTES: usize = 120;
const NAME: &str = "tree";

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

struct Settings {
    directory: String,
    count: u64,
    memory: Size,
    threads: u64,
    seconds: u64,
    cache: CacheMode,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        [directory, command @ ("load" | "run"), count, options @ ..] => {
            settings(directory, count, options)
                .map_err(|error| (2, error))
                .and_then(|settings| program(command, &settings).map_err(|error| (1, error)))
        }
        _ => Err((2, USAGE.into())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) => {
            eprintln!("lookups: {error}");
            ExitCode::from(code)
        }
    }
}

fn settings(directory: &str, count: &str, options: &[&str]) -> Result<Settings> {
    let number = |name: &str, text: &str| match text.parse::<u64>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{name} is {text}: a number above 0 is expected")),
    };
    let mut settings = Settings {
        directory: directory.to_owned(),
        count: number("COUNT", count)?,
        memory: Size::from("1GiB"),
        threads: 1,
        seconds: 10,
        cache: CacheMode::Direct,
    };
    let mut options = options.iter();
    while let Some(&option) = options.next() {
        if option == "--buffered" {
            settings.cache = CacheMode::Buffered;
            continue;
        }
        let value = options.next().ok_or(USAGE)?;
        match option {
            "--memory" => {
                settings.memory = Size::from(*value);
                settings.memory.bytes("--memory")?;
            }
            "--threads" => settings.threads = number(option, value)?,
            "--seconds" => settings.seconds = number(option, value)?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(settings)
}

fn program(command: &str, settings: &Settings) -> Result<()> {
    let space = Tablespace::new("main", &settings.directory).cache(settings.cache);
    let builder = BufferPool::builder().memory(settings.memory.clone()).page_size("4 KiB");
    let pool = builder.tablespace(space).build()?;
    pool.notes().iter().for_each(|note| eprintln!("{note}"));
    if command == "load" { load(&pool, settings) } else { run(&pool, settings) }?;
    pool.close()?;
    Ok(())
}

fn load(pool: &BufferPool, settings: &Settings) -> Result<()> {
    let start = Instant::now();
    let tree = Tree::create(pool, NAME)?;
    let mut value = [0; VALUE_BYTES];
    let entries = (0..settings.count).map(|number| {
        let key = number.to_be_bytes();
        value[..8].copy_from_slice(&key);
        (key, value)
    });
    tree.bulk_load(entries, 1.0)?;
    tree.checkpoint()?;
    println!("{} entries in {:.1} s", settings.count, start.elapsed().as_secs_f64());
    tree.close()?;
    Ok(())
}

fn run(pool: &BufferPool, settings: &Settings) -> Result<()> {
    let tree = Tree::open(pool, NAME)?;
    let (done, total) = (AtomicBool::new(false), AtomicU64::new(0));
    warm(&tree)?;
    println!("ts,tx,rmb");
    thread::scope(|scope| {
        let (tree, done, total) = (&tree, &done, &total);
        let workers: Vec<_> = (0..settings.threads)
            .map(|worker| scope.spawn(move || look_up(tree, worker, settings.count, done, total)))
            .collect();
        let mut before = pool.stats();
        for second in 0..settings.seconds {
            thread::sleep(Duration::from_secs(1));
            let now = pool.stats();
            let read = now.since(&before).strategy(StrategyKind::Normal).misses * 4 / 1024;
            before = now;
            println!("{second},{},{read}", total.swap(0, Ordering::Relaxed));
        }
        done.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|it| it.join().expect("no worker panics"))
    })
}

/// Brings all of it into memory, or as much as fits.
fn warm(tree: &Tree) -> Result<()> {
    let mut cursor = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while cursor.next_entry()?.is_some() {}
    Ok(())
}

fn look_up(
    tree: &Tree,
    worker: u64,
    count: u64,
    done: &AtomicBool,
    total: &AtomicU64,
) -> Result<()> {
    /// Look-ups between two additions to the total.
    const BATCH: u64 = 64;
    let mut random = fastrand::Rng::with_seed(worker);
    let mut value = Vec::with_capacity(VALUE_BYTES);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            let key = random.u64(0..count).to_be_bytes();
            if !tree.get_into(&key, &mut value)? || value[..8] != key {
                return Err(format!("key {} is not there", u64::from_be_bytes(key)).into());
            }
        }
        total.fetch_add(BATCH, Ordering::Relaxed);
    }
    Ok(())
}
