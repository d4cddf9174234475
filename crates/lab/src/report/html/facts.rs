//! Facts about the machine and its storage, as rows of a table.
//!
//! A fact that could not be found reads `unknown` [HTM-3]: a reader must be able to tell a disk
//! without a queue from a disk whose queue nobody could see.

use serde::Serialize;

use super::super::numbers::bytes;
use crate::facts::{Device, Host, Storage};
use crate::report::Report;

/// One row: what it is, its value, and whether the value is missing.
#[derive(Debug, Serialize)]
pub(super) struct Fact {
    name: &'static str,
    value: String,
    unknown: bool,
}

fn fact(name: &'static str, value: Option<String>) -> Fact {
    let unknown = value.is_none();
    Fact { name, value: value.unwrap_or_else(|| "unknown".to_owned()), unknown }
}

fn known(name: &'static str, value: &str) -> Fact {
    fact(name, Some(value.to_owned()))
}

/// The line under the title: storage, directory, kernel and start of the run.
pub(super) fn setting(report: &Report) -> Vec<String> {
    let storage = &report.storage;
    let filesystem = storage.filesystem.as_deref().unwrap_or("unknown filesystem");
    let place = match &storage.device {
        Some(device) => match &device.model {
            Some(model) => format!("{filesystem} on {} ({})", device.name, model.trim()),
            None => format!("{filesystem} on {}", device.name),
        },
        None => filesystem.to_owned(),
    };
    let place = match storage.profile() {
        Some(profile) => format!("{place}, emulated disk {profile}"),
        None => place,
    };
    let started = report.started.replacen('T', " ", 1).replace('Z', " UTC");
    vec![place, storage.directory.clone(), report.host.kernel.clone(), started]
}

pub(super) fn host(host: &Host) -> Vec<Fact> {
    vec![
        known("Name", &host.name),
        known("Kernel", &host.kernel),
        fact("Processor", host.cpu.clone()),
        known("Processors usable", &host.cpus.to_string()),
        fact("Memory", host.memory_bytes.map(bytes)),
        fact("Virtualisation", host.virtualisation.clone()),
        fact("Container", host.container.clone()),
        known("Ran as root", yes_or_no(host.root)),
    ]
}

pub(super) fn storage(storage: &Storage) -> Vec<Fact> {
    let mut rows = vec![
        known("Directory", &storage.directory),
        fact("Filesystem", storage.filesystem.clone()),
        fact("Mounted at", storage.mount_point.clone()),
        fact("Mount options", storage.mount_options.clone()),
        fact("Source", storage.source.clone()),
    ];
    match &storage.device {
        Some(found) => rows.extend(device(found)),
        None => rows.push(fact("Device", None)),
    }
    if let Some(disk) = &storage.emulated {
        rows.push(known("Emulated disk", &format!("{} ({})", disk.profile, disk.about)));
        rows.push(known("Its size", &bytes(disk.size_bytes)));
        rows.push(known("Its time runs", &format!("{} times as fast", disk.speed_up)));
    }
    if !storage.device_remark.is_empty() {
        rows.push(known("Remark", &storage.device_remark));
    }
    rows
}

fn device(device: &Device) -> Vec<Fact> {
    vec![
        known("Device", &device.name),
        fact("Works through", Some(device.leaves.join(", ")).filter(|names| !names.is_empty())),
        fact("Model", device.model.clone()),
        fact("Size", device.size_bytes.map(bytes)),
        fact("Rotates", device.rotational.map(|rotates| yes_or_no(rotates).to_owned())),
        fact("Scheduler", device.scheduler.clone()),
        fact("Kernel readahead", device.readahead_bytes.map(bytes)),
        fact("Requests queued by the kernel", device.queue_requests.map(|count| count.to_string())),
        fact("Commands queued by the device", device.queue_depth.map(|count| count.to_string())),
        fact("Write cache", device.write_cache.clone()),
        fact("Logical block", device.logical_block_bytes.map(bytes)),
        fact("Physical block", device.physical_block_bytes.map(bytes)),
        fact("Largest request", device.request_bytes_max.map(bytes)),
    ]
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}
