//! tree: a B+tree on a bucket, changed by one process and read by any number of others, anywhere.
//!
//! ```sh
//! cargo run -p forebay-object --features url --example tree -- s3://bucket/fruit set apple red
//! cargo run -p forebay-object --features url --example tree -- s3://bucket/fruit get apple
//! cargo run -p forebay-object --features url --example tree -- s3://bucket/fruit list
//! ```
//!
//! Credentials come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` and so on). `set` opens the
//! tablespace for writing, and fails while another process has it open; `take` instead of `set` fences the other
//! process off. `get` and `list` read at the newest manifest and never make a writer wait.
//!
//! The tree code knows nothing of object stores: it uses a pool whose tablespace is a mount.
//!
//! Failure: a crash leaves the state of the last checkpoint, which is here the last command that succeeded.

#![allow(clippy::print_stderr, reason = "a program reports to its user what went wrong")]

use std::error::Error;
use std::io::{BufWriter, Write};
use std::ops::Bound;
use std::process::ExitCode;

use forebay::{BufferPool, Checksum, Tablespace, TornPages};
use forebay_btree::{Direction, Tree};
use forebay_object::{Bucket, Error as ObjectError, Mount, Options, Takeover, open};

const USAGE: &str = "usage: tree URL set|take KEY VALUE | get KEY | list";
const PAGE_BYTES: u64 = 8192;
const FILE: &str = "tree";

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let done = run(&args, std::env::vars(), &mut out);
    match done.and_then(|known| Ok(out.flush().map(|()| known)?)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("tree: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns false for an unknown command.
pub(crate) fn run(
    args: &[&str],
    variables: impl IntoIterator<Item = (String, String)>,
    out: &mut impl Write,
) -> Result<bool> {
    let bucket = |url| {
        let (store, prefix) = open(url, variables)?;
        Bucket::new(store, prefix.as_str(), Options::default())
    };
    match *args {
        [url, "set", key, value] => set(&bucket(url)?, Takeover::Refuse, key, value)?,
        [url, "take", key, value] => set(&bucket(url)?, Takeover::Force, key, value)?,
        [url, "get", key] => read(&bucket(url)?, |tree| {
            match tree.get(key.as_bytes())? {
                Some(value) => writeln!(out, "{}", String::from_utf8_lossy(&value))?,
                None => writeln!(out, "{key} is not there")?,
            }
            Ok(())
        })?,
        [url, "list"] => read(&bucket(url)?, |tree| {
            let mut entries = tree.range(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((key, value)) = entries.next_entry()? {
                let [key, value] = [key, value].map(String::from_utf8_lossy);
                writeln!(out, "{key} {value}")?;
            }
            Ok(())
        })?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn set(bucket: &Bucket, takeover: Takeover, key: &str, value: &str) -> Result<()> {
    match bucket.create(PAGE_BYTES as u32) {
        Ok(()) | Err(ObjectError::Exists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let writer = bucket.writer(takeover)?;
    let is_new = writer.view().files().is_empty();
    // Written pages stay here until a sync puts them into the bucket.
    let local = tempfile::tempdir()?;
    let mount = Mount::new(writer, local.path(), 64 << 20)?;
    let pool = pool(&mount)?;
    let tree = if is_new { Tree::create(&pool, FILE) } else { Tree::open(&pool, FILE) }?;
    tree.insert(key.as_bytes(), value.as_bytes())?;
    tree.close()?;
    pool.close()?;
    Ok(mount.close()?)
}

fn read(bucket: &Bucket, look: impl FnOnce(&Tree) -> Result<()>) -> Result<()> {
    let local = tempfile::tempdir()?;
    let mount = Mount::read_only(bucket.reader()?, local.path())?;
    let pool = pool(&mount)?;
    let tree = Tree::open(&pool, FILE)?;
    look(&tree)?;
    tree.close()?;
    pool.close()?;
    Ok(mount.close()?)
}

fn pool(mount: &Mount) -> Result<BufferPool> {
    let tablespace = Tablespace::new("main", mount.directory());
    let tablespace = tablespace.volume(mount.volume()).io(mount.io(256)?).costs(mount.costs());
    // The store keeps a checksum of each page and replaces whole objects.
    let builder = BufferPool::builder().checksum(Checksum::Off).torn_pages(TornPages::Unprotected);
    Ok(builder.page_size(PAGE_BYTES).tablespace(tablespace).build()?)
}
