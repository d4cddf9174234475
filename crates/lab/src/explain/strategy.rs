//! Who reads: the kernel without advice and with three kinds of it, and a read stream of a pool.

use std::fmt;
use std::str::FromStr;

/// A way of reading the blocks of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Plain reads of one block each; the kernel reads ahead as it sees fit.
    Os,
    /// The same after FADV_RANDOM: no readahead.
    Random,
    /// The same after FADV_SEQUENTIAL: twice the readahead.
    Max,
    /// The same, with FADV_WILLNEED for each block some blocks before it is read.
    WillNeed,
    /// A read stream of a Forebay pool, which knows the list and chooses by itself.
    Adaptive,
}

impl Strategy {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Strategy; 5] =
        [Strategy::Os, Strategy::Random, Strategy::Max, Strategy::WillNeed, Strategy::Adaptive];

    /// Name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Os => "os",
            Strategy::Random => "random",
            Strategy::Max => "max",
            Strategy::WillNeed => "willneed",
            Strategy::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Strategy, String> {
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name.trim());
        found.ok_or_else(|| format!("there are {}", Strategy::ALL.map(Strategy::name).join(", ")))
    }
}
