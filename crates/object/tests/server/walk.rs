//! The example: a tree that one process changes and others read.

use crate::example;
use crate::gateway;

#[test]
fn what_one_process_sets_others_get_and_list() {
    let Some((address, variables)) = gateway::bucket() else { return };
    let run = |words: &[&str]| {
        let mut out = Vec::new();
        let args = [&[address.as_str()], words].concat();
        let known = example::run(&args, variables.clone(), &mut out);
        known.map(|known| (known, String::from_utf8(out).unwrap()))
    };
    for at in 0..4 {
        let (key, value) = (format!("key {at:02}"), at.to_string());
        assert!(run(&["set", &key, &value]).unwrap().0);
    }
    assert_eq!(run(&["get", "key 03"]).unwrap().1, "3\n");
    assert_eq!(run(&["get", "fig"]).unwrap().1, "fig is not there\n");
    let listed = run(&["list"]).unwrap().1;
    assert_eq!((listed.lines().count(), listed.lines().next()), (4, Some("key 00 0")));
    assert!(!run(&["drop", "everything"]).unwrap().0);
}
