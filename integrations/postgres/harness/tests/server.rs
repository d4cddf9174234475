//! What an administrator does with the extension, on a server of every version here.

use std::path::Path;
use std::process::ExitCode;

use forebay_postgres_harness::suite::{self, Case};
use forebay_postgres_harness::{Disk, Server};

fn main() -> ExitCode {
    suite::run("server", Path::new(env!("CARGO_TARGET_TMPDIR")), &[("starts", starts)])
}

fn starts(case: &Case) -> Result<(), String> {
    let server = Server::new(&case.installation, case.extension.as_ref(), Disk::Real, &[])
        .map_err(|e| e.to_string())?;
    let mut s = server.connect("postgres", &[("work_mem", "64kB")]).unwrap();
    let mark = server.mark_log().unwrap();
    println!("{:?}", s.run("select 1/0"));
    println!("{:?}", s.run("show work_mem; select generate_series(1,3)"));
    println!("{:?} {:?}", s.private_memory(), server.findings(mark));
    Ok(())
}
