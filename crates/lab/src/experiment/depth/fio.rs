//! Comparison with fio, the standard tool, on the same file, in the same shuffle.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use super::settings::Settings;
use crate::experiment::samples::Round;
use forebay_measure::bad_input;
use forebay_measure::workfile::Workfile;

/// Refuses to begin without fio on the PATH.
///
/// # Errors
/// [`BadInput`](forebay_measure::BadInput): it is missing, or does not work.
pub(super) fn check() -> anyhow::Result<()> {
    let found = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        bad_input!("--fio: there is no working fio on the PATH; install it or leave --fio out");
    }
    Ok(())
}

/// One round of fio at `depth`, in the order that follows from `seed`.
///
/// # Errors
/// fio failed, or Ctrl-C.
pub(super) fn measure(
    settings: &Settings,
    workfile: &Workfile,
    depth: u32,
    seed: u32,
) -> anyhow::Result<Round> {
    let (blocks, time) = match settings.blocks {
        Some(blocks) => (blocks, settings.cell_time_max()),
        None => (workfile.blocks(), settings.cell_time()),
    };
    let path = workfile.path();
    let output = Command::new("fio")
        .args(["--name=forebay", "--ioengine=io_uring", "--direct=1", "--rw=randread"])
        .args(["--readonly", "--allow_file_create=0", "--output-format=json", "--thread"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={}", settings.block_bytes))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--size={}", workfile.size_bytes))
        .arg(format!("--io_size={}", blocks * settings.block_bytes))
        .arg(format!("--runtime={}ms", time.as_millis()))
        .arg(format!("--randseed={seed}"))
        .stdin(Stdio::null())
        .output()
        .context("cannot start fio")?;
    forebay_measure::interrupt::check()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // fio prints its notes before the JSON.
    let start = text.find('{').unwrap_or(0);
    let answer: Value = serde_json::from_str(&text[start..]).with_context(|| {
        format!("fio answered {}: {}", output.status, String::from_utf8_lossy(&output.stderr))
    })?;
    let job = &answer["jobs"][0];
    let number = |of: &Value| of.as_f64().context("fio's answer lacks a figure");
    if number(&job["error"])? != 0.0 {
        bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let blocks = number(&job["read"]["total_ios"])?;
    let processor_percent = number(&job["usr_cpu"])? + number(&job["sys_cpu"])?;
    let milliseconds = number(&job["job_runtime"])?;
    Ok(Round {
        blocks: blocks as u64,
        blocks_needed: Some(blocks as u64),
        seconds: blocks / number(&job["read"]["iops"])?,
        processor_seconds: processor_percent / 100.0 * milliseconds / 1e3,
        ..Round::default()
    })
}
