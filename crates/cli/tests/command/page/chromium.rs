//! A real Chromium, started headless for one page and ended afterwards.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The result of opening one page.
pub(crate) struct Visit {
    /// The document after its scripts have run, as Chromium writes it out.
    pub(crate) dom: String,
    /// Lines that the page wrote to its console.
    pub(crate) console: Vec<String>,
    /// The picture of the window.
    pub(crate) picture: Option<Picture>,
}

/// Pixels of red, green and blue, row by row.
pub(crate) struct Picture {
    width: usize,
    bytes: Vec<u8>,
    bytes_per_pixel: usize,
}

impl Picture {
    fn read(file: &Path) -> Option<Picture> {
        let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(file).ok()?));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let bytes_per_pixel = info.color_type.samples();
        Some(Picture { width: info.width as usize, bytes, bytes_per_pixel })
    }

    /// How many pixels from left to right and top to bottom have `colour`, almost exactly.
    pub(crate) fn count(&self, place: [u32; 4], colour: [u8; 3]) -> usize {
        let [left, top, right, bottom] = place.map(|at| at as usize);
        let bottom = bottom.min(self.bytes.len() / self.bytes_per_pixel / self.width);
        let is_near = |at: usize| {
            let pixel = &self.bytes[at * self.bytes_per_pixel..][..3];
            pixel.iter().zip(colour).map(|(a, b)| u32::from(a.abs_diff(b))).sum::<u32>() < 12
        };
        let rows = (top..bottom).map(|row| row * self.width);
        rows.map(|row| (row + left..row + right).filter(|&at| is_near(at)).count()).sum()
    }
}

/// The first browser found on PATH.
pub(crate) fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let places: Vec<PathBuf> = env::split_paths(&path).collect();
    let candidates = NAMES.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// Opens `page` and waits until its scripts are done; `extra` are further arguments.
///
/// This Chromium opens only a file: it uses no profile of the user's and no network.
pub(crate) fn visit(browser: &Path, page: &str, extra: &[&str]) -> Visit {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, page).unwrap();
    let (dom, log) = (folder.path().join("dom"), folder.path().join("log"));
    let picture = folder.path().join("picture.png");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--window-size=1280,800"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .args(extra)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("chromium did not end; it logged:\n{}", text_of(&log));
        }
        thread::sleep(Duration::from_millis(20));
    };
    let log = text_of(&log);
    assert!(status.success(), "chromium: {status}\n{log}");
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Visit { dom: text_of(&dom), console, picture: Picture::read(&picture) }
}

fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}
