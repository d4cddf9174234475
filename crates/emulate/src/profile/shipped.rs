//! Shipped profiles, by name.

/// Name and text of each.
pub(super) const SHIPPED: &[(&str, &str)] = &[
    ("7200rpm", include_str!("../../profiles/7200rpm.toml")),
    ("fixed-100us", include_str!("../../profiles/fixed-100us.toml")),
    ("instant", include_str!("../../profiles/instant.toml")),
];
