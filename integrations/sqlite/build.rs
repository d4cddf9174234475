//! Has the library stay once it is loaded: SQLite keeps the VFS that it registered, whatever a program closes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
