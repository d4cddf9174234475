//! Shipped profiles, by name, as `forebay emulate --list` shows them.

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each.
        pub(super) const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),*];
    };
}

shipped![
    "7200rpm",
    "5400rpm",
    "15k",
    "raid0-4x7200",
    "raid0-4x15k",
    "raid10-12",
    "raid10-12-256k",
    "sata-ssd",
    "nvme",
    "nvme-old",
    "cloud-gp",
    "cloud-burst",
    "cloud-io",
    "fixed-100us",
    "instant",
];
