//! The arguments that put an emulated disk under the experiments.

use clap::Args;

use forebay_measure::filesystem::Filesystem;
use forebay_measure::units::parse_size;

/// Options to measure something else than the disk under `--dir`. They are accepted after the name of an
/// experiment as well as before it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Emulated disks")]
pub struct OnArgs {
    /// Measure on an emulated disk: a profile's name (see forebay emulate --list), or the path of a
    /// .toml file. --dir then says where its data goes if that does not fit into half of the memory
    #[arg(long, value_name = "PROFILE", global = true)]
    pub on: Option<String>,
    /// Make a filesystem on the emulated disk and measure on that; needs root
    #[arg(long, value_name = "FILESYSTEM", global = true)]
    pub fs: Option<Filesystem>,
    /// Size of the emulated disk, at most the profile's [default: the profile's]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, global = true)]
    pub on_size: Option<u64>,
    /// Let the emulated disk's time run this many times as fast; times and rates are real ones
    #[arg(long, value_name = "N", value_parser = super::emulate::parse_speed_up, global = true)]
    pub speed_up: Option<f64>,
}
