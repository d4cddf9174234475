//! Lists without repetition, and in groups.

use std::collections::BTreeSet;

/// `items` ascending, each once.
pub fn sorted<T: Copy + Ord>(items: &[T]) -> Vec<T> {
    let items: BTreeSet<T> = items.iter().copied().collect();
    items.into_iter().collect()
}

/// `items` in their order, each once.
pub fn unique<T: Clone + PartialEq>(items: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for item in items {
        if !kept.contains(item) {
            kept.push(item.clone());
        }
    }
    kept
}

/// `items` grouped by `key`, in the order of their first occurrence.
pub fn grouped<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}
