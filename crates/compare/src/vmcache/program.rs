//! vmcache's side: its own program, which gets all its settings from its environment.
//!
//! It prints a line for each second: its number, what it has done, MiB read, MiB written, and words that repeat its
//! settings. A pipe holds them all, so they are read when it has ended.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::{GIB, Seconds, Settings, Workload, rest};

/// Between two looks whether it has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// A child process that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets it load everything and then work with `threads` threads.
pub(super) fn measure(
    directory: &Path,
    settings: &Settings,
    threads: u32,
) -> anyhow::Result<Seconds> {
    let name = settings.program.display();
    let block = directory.join("pages");
    // An empty one, as it does not make it.
    File::create(&block).with_context(|| format!("cannot make {}", block.display()))?;
    let seconds = settings.settle_seconds + settings.seconds;
    // No more than it needs: the system may refuse address space beyond its memory.
    let memory_gib = settings.memory_bytes / GIB;
    let virtual_gib = settings.workload.bytes_max() / GIB + 1;
    let (lookups, size) = match settings.workload {
        Workload::Lookups { entries } => (1, entries),
        Workload::Tpcc { warehouses } => (0, warehouses.into()),
    };
    let variables = [
        ("RNDREAD", lookups),
        ("VIRTGB", virtual_gib.max(memory_gib)),
        ("PHYSGB", memory_gib),
        ("THREADS", threads.into()),
        ("DATASIZE", size),
        ("RUNFOR", seconds),
    ];
    let child = Command::new(&settings.program)
        .env("BLOCK", &block)
        .envs(variables.map(|(name, value)| (name, value.to_string())))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = Running(child.with_context(|| format!("cannot run {name}"))?);
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        rest(Instant::now() + LOOK_INTERVAL)?;
    };
    let (mut out, mut error) = (String::new(), String::new());
    if let (Some(stdout), Some(stderr)) = (&mut child.0.stdout, &mut child.0.stderr) {
        stdout.read_to_string(&mut out)?;
        stderr.read_to_string(&mut error)?;
    }
    std::fs::remove_file(&block)?;
    let found = parse(&out);
    if !status.success() || found.done.len() as u64 != seconds {
        let lines = found.done.len();
        bail!("{name} ended with {status} after {lines} of {seconds} seconds: {}", error.trim());
    }
    Ok(found)
}

/// The lines that are seconds.
fn parse(out: &str) -> Seconds {
    let mut seconds = Seconds::default();
    for line in out.lines() {
        let mut fields = line.split(',').map(str::parse::<f64>);
        let four = [fields.next(), fields.next(), fields.next(), fields.next()];
        if let [Some(Ok(_)), Some(Ok(done)), Some(Ok(read)), Some(Ok(written))] = four {
            seconds.done.push(done as u64);
            seconds.read_mib.push(read);
            seconds.written_mib.push(written);
        }
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_a_line_of_numbers() {
        let out = "ts,tx,rmb,wmb,system,threads,datasize,workload,batch\n\
                   0,1546875,12.5,0,vmcache,2,7500000,rndread,64\n\
                   1,1681710,0,1.25,vmcache,2,7500000,rndread,64\n";
        let expected = Seconds {
            done: vec![1_546_875, 1_681_710],
            read_mib: vec![12.5, 0.0],
            written_mib: vec![0.0, 1.25],
        };
        assert_eq!(parse(out), expected);
        assert_eq!(parse("space: 1 GB\n"), Seconds::default());
    }
}
