//! A real S3 server on loopback: versitygw over a directory, with credentials, while a test runs.
//!
//! It is found on PATH or by FOREBAY_VERSITYGW. Without it a test says `skipped` and writes that to the file named
//! by FOREBAY_SKIPS.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use tempfile::TempDir;

const KEY: &str = "forebay";
const SECRET: &str = "forebay-secret";

/// The server of this thread, and so of this test; it ends with the thread.
pub(crate) struct Gateway {
    child: Child,
    port: u16,
    directory: TempDir,
}

thread_local! {
    static GATEWAY: RefCell<Option<Gateway>> = const { RefCell::new(None) };
}

static BUCKETS: AtomicU32 = AtomicU32::new(0);

/// The address of a new bucket, and the variables to reach it; `None` if no server is available.
pub(crate) fn bucket() -> Option<(String, Vec<(String, String)>)> {
    GATEWAY.with_borrow_mut(|gateway| {
        if gateway.is_none() {
            *gateway = Gateway::start();
        }
        gateway.as_ref().map(Gateway::bucket)
    })
}

impl Gateway {
    fn start() -> Option<Gateway> {
        let Some(program) = program() else {
            let why = "no versitygw on PATH and none by FOREBAY_VERSITYGW";
            println!("skipped: {why}");
            if let Some(skips) = env::var_os("FOREBAY_SKIPS") {
                let mut file = File::options().append(true).create(true).open(skips).unwrap();
                let test = thread::current().name().unwrap_or("a test").to_owned();
                file.write_all(format!("object: {test}: {why}\n").as_bytes()).unwrap();
            }
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        for name in ["data", "extra"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        // The port was free a moment ago; another test may have taken it.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new(&program);
            command.args(["--access", KEY, "--secret", SECRET, "--quiet"]);
            command.args(["--port", &format!("127.0.0.1:{port}"), "posix", "--sidecar"]);
            // Attributes in a separate directory: not every filesystem supports them on the files.
            command.arg(directory.path().join("extra")).arg(directory.path().join("data"));
            let log = File::create(directory.path().join("log")).unwrap();
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            let mut child = command.spawn().unwrap();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(20) && child.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Gateway { child, port, directory });
                }
                thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("{}", fs::read_to_string(directory.path().join("log")).unwrap());
    }

    fn bucket(&self) -> (String, Vec<(String, String)>) {
        let name = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        fs::create_dir(self.directory.path().join("data").join(&name)).unwrap();
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        (format!("s3://{name}/space"), variables.to_vec())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let named = env::var_os("FOREBAY_VERSITYGW").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|it| it.join("versitygw"));
    named.or_else(|| on_path.find(|it| it.is_file()))
}
