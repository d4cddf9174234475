//! The arguments of `forebay emulate`.

use std::path::PathBuf;

use clap::Args;
use forebay_emulate::Place;
use forebay_emulate::serve::SPEED_UPS;

use forebay_measure::device_readahead::parse_readahead;
use forebay_measure::units::parse_size;

/// `forebay emulate`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "In MOUNTPOINT there is one large sparse file, disk: the whole address space of the \
                  device. What is read and written takes the time that the device would take; the \
                  kernel's page cache and readahead work over it as over any other.\n\
                  In MOUNTPOINT/.forebay: log (requests as JSON lines), counters, profile, and control, \
                  which takes `timing off`, `timing on`, `log clear`, and `load SECONDS BYTES`: so much of the \
                  device's time passes at once, in which it is read at random.\n\
                  It unmounts when it is interrupted, when the process that started it ends, and \
                  even when it is killed.\n\n\
                  Example: forebay emulate raid10-12 /mnt/x --speed-up 10"
)]
pub struct EmulateArgs {
    /// A profile's name (see --list), or the path of a .toml file
    #[arg(required_unless_present = "list")]
    pub profile: Option<String>,
    /// An empty directory
    #[arg(value_name = "MOUNTPOINT", required_unless_present = "list")]
    pub mount_point: Option<PathBuf>,
    /// Size of the disk, at most the profile's [default: the profile's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Let its time run this many times as fast
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_speed_up)]
    pub speed_up: f64,
    /// Where the data is kept: memory, or a file. An existing file is the disk's contents; it is extended to the
    /// size of the disk, and files made next to disk take space in it. A file created here is removed at the end
    #[arg(long, value_name = "memory|FILE", default_value = "memory")]
    pub data: PathBuf,
    /// Maximum memory for the data [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// Where files next to disk are placed: begin, middle or end of the address space
    #[arg(long, value_name = "WHERE", value_parser = parse_place, default_value = "middle")]
    pub place: Place,
    /// Write every request to this file, as lines of JSON
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Seed of the model's random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// The kernel's readahead for the mount (such as 0, 128KiB, 8MiB); more than its default needs root
    #[arg(long, value_name = "SIZE", value_parser = parse_readahead)]
    pub readahead: Option<u64>,
    /// List the profiles there are
    #[arg(long)]
    pub list: bool,
    /// Stay mounted when the process that started this one ends
    #[arg(long)]
    pub outlive_parent: bool,
    /// Unmount when standard input ends, and remove the mount point
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

pub(crate) fn parse_speed_up(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(factor) if SPEED_UPS.contains(&factor) => Ok(factor),
        _ => Err("a speed-up is a number from 0.001 to 10000".to_owned()),
    }
}

fn parse_place(text: &str) -> Result<Place, String> {
    let found = Place::ALL.into_iter().find(|place| place.name() == text.trim());
    found.ok_or_else(|| format!("there are {}", Place::ALL.map(Place::name).join(", ")))
}
