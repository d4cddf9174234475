//! The header that C programs include matches the library.

use std::path::Path;
use std::{env, fs};

/// With `FOREBAY_HEADER=write` it regenerates the header.
#[test]
fn the_header_is_what_cbindgen_makes_of_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    cbindgen::generate(root).expect("cbindgen reads the crate").write(&mut made);
    let path = root.join("include/forebay_lookahead.h");
    if env::var_os("FOREBAY_HEADER").is_some_and(|what| what == "write") {
        fs::write(&path, &made).expect("the header can be written");
    }
    let there = fs::read(&path).expect("the header is there");
    assert!(there == made, "FOREBAY_HEADER=write cargo test -p forebay-lookahead-c");
}
