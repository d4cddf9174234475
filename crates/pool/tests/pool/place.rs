//! Where the model's tablespaces are: in directories. The tests of tablespaces on object stores use the same model,
//! with their own version of this module.

use std::sync::Arc;

use forebay::Tablespace;

use crate::disk::Disk;
use crate::site::Site;

/// The disk, and the tablespaces `main` and `cut` on it.
pub(crate) fn tablespaces(site: &Site) -> (Arc<Disk>, Tablespace, Tablespace) {
    let (io, disk) = Disk::open();
    let main = Tablespace::new("main", site.path("main")).io(io.clone());
    (disk, main, Tablespace::new("cut", site.path("cut")).io(io))
}
