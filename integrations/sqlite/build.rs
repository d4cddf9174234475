//! Keeps the library loaded permanently: SQLite keeps the registered VFS, whatever a program closes.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
