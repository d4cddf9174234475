//! The legend: what files and devices are called, and whatever else is told beside the figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a file is called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Called {
    /// PostgreSQL's name, its path, or its number.
    pub(super) name: String,
    pub(super) path: Option<String>,
}

/// See the module's description. In a record it is what is new since the piece before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Legend {
    /// Whom.
    pub(super) subject: String,
    /// What the events are from, and what they cannot tell.
    pub(super) source: String,
    pub(super) processes: usize,
    pub(super) remarks: Vec<String>,
    pub(super) files: BTreeMap<u32, Called>,
    pub(super) devices: BTreeMap<u32, String>,
}

impl Legend {
    pub(super) fn file(&self, number: u32) -> Called {
        let unknown = || Called { name: format!("file {number}"), path: None };
        self.files.get(&number).cloned().unwrap_or_else(unknown)
    }

    pub(super) fn device(&self, number: u32) -> String {
        self.devices.get(&number).cloned().unwrap_or_else(|| format!("device {number}"))
    }

    /// What it has that `before` has not.
    pub(super) fn since(&self, before: &Legend) -> Legend {
        let mut new = self.clone();
        new.files.retain(|number, called| before.files.get(number) != Some(called));
        new.devices.retain(|number, name| before.devices.get(number) != Some(name));
        new
    }

    /// With what is new.
    pub(super) fn add(&mut self, new: Legend) {
        self.files.extend(new.files);
        self.devices.extend(new.devices);
        let (files, devices) = (std::mem::take(&mut self.files), std::mem::take(&mut self.devices));
        *self = Legend { files, devices, ..new };
    }
}
