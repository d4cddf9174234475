//! The report page in a real browser: whether the first screen is complete, the page is usable, the console is clean.
//!
//! A page that looks right in its source can still be blank: a script that throws, a policy that
//! forbids it, a colour that is never resolved. So the page is opened in Chromium, used by a
//! probe like a reader, and the pixels of its plot are counted. Without a Chromium
//! on PATH the tests say `skipped` and write that to the file named by FOREBAY_SKIPS.
#![allow(clippy::print_stdout)]

mod chromium;

use std::io::Write;
use std::path::PathBuf;

use chromium::{Visit, visit};
use forebay_measure::report::{html, sample};

const PROBE: &str = include_str!("page/probe.js");
/// Runs before any script of the page, so that it sees all their errors.
const WATCH: &str = "<script>window.seenErrors = [];\
    addEventListener('error', (event) => seenErrors.push('error: ' + event.message));\
    addEventListener('unhandledrejection', (event) => seenErrors.push('rejected: ' + event.reason));\
    addEventListener('securitypolicyviolation', (event) => seenErrors.push('policy: ' + event.blockedURI));\
    </script>";
const DARK: &str = "--blink-settings=preferredColorScheme=0";
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";

/// The items that must be visible without scrolling.
const SCREEN: (u32, u32) = (1280, 800);

fn page() -> String {
    html::render(&html::Kind::lab(&sample::report()), &sample::report(), &sample::sections())
        .unwrap()
}

/// The page with the watch before its own scripts and the probe after them.
fn probed(page: &str) -> String {
    assert_eq!(page.matches("</body>").count(), 1);
    let watched =
        page.replacen("<meta charset=\"utf-8\">", &format!("<meta charset=\"utf-8\">{WATCH}"), 1);
    watched.replacen("</body>", &format!("<script>{PROBE}</script></body>"), 1)
}

/// The browser, or a skip that is printed and counted.
fn browser(test: &str) -> Option<PathBuf> {
    let found = chromium::find();
    if found.is_none() {
        println!("skipped: no chromium");
        if let Some(skips) = std::env::var_os("FOREBAY_SKIPS") {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(skips).unwrap();
            // One write, so that tests that skip at the same time do not mix their lines.
            let line = format!("lab: {test}: no chromium on PATH\n");
            file.write_all(line.as_bytes()).unwrap();
        }
    }
    found
}

/// The probe's output under `name`.
fn seen<'v>(visit: &'v Visit, name: &str) -> &'v str {
    let start = format!("data-seen-{name}=\"");
    let found = visit.dom.find(&start).map(|at| &visit.dom[at + start.len()..]);
    found.and_then(|rest| rest.split('"').next()).unwrap_or("nothing")
}

/// Left, top, right and bottom of an element.
fn place(visit: &Visit, name: &str) -> Option<[u32; 4]> {
    let numbers: Option<Vec<u32>> =
        seen(visit, name).split(',').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Everything that is wrong with a visited page; empty when it works.
fn faults(visit: &Visit) -> Vec<String> {
    let mut faults = visit.console.clone();
    let mut check = |good: bool, what: &str| {
        if !good {
            faults.push(what.to_owned());
        }
    };
    check(seen(visit, "done") == "true", "the probe did not get to its end");
    check(seen(visit, "errors").is_empty(), "the page had errors");
    check(seen(visit, "resources").is_empty(), "the page fetched something");
    check(
        seen(visit, "width") == SCREEN.0.to_string(),
        "the screen does not have the requested width",
    );
    for name in ["device", "settings", "plot", "knee"] {
        let Some([left, top, right, bottom]) = place(visit, name) else {
            check(false, &format!("{name} is nowhere"));
            continue;
        };
        let is_inside = right <= SCREEN.0 && bottom <= SCREEN.1 && left < right && top < bottom;
        check(is_inside, &format!("{name} is not on the first screen"));
        check(seen(visit, &format!("{name}-uncovered")) == "true", &format!("{name} is covered"));
    }
    let is_large = |[left, top, right, bottom]: [u32; 4]| right - left > 400 && bottom - top > 280;
    check(place(visit, "plot").is_some_and(is_large), "the plot is small");
    check(seen(visit, "sideways") == "false", "the page is wider than the screen");
    check(seen(visit, "figures") == "right tabular-nums", "figures do not stand under each other");
    check(seen(visit, "open") == "0", "what is for engine authors is not collapsed");
    check(seen(visit, "hover").contains(", prefetch depth 0: 1,"), "a point lacks its figure");
    check(seen(visit, "bar") == "true", "no bar behind a share");
    let copied = seen(visit, "copied");
    check(
        copied.starts_with("Copied: ") && copied.contains("effective_io_concurrency"),
        "nothing is copied",
    );
    let selected = seen(visit, "selected");
    check(selected.contains("effective_io_concurrency"), "nothing is selected to be copied");
    check(
        seen(visit, "background") != seen(visit, "other-background"),
        "the theme does not switch",
    );
    check(seen(visit, "printed") == "records", "print leaves parts closed");
    // Lines of five colours: of three backends, two of them twice.
    let lines: Vec<[u8; 3]> = seen(visit, "lines").split(' ').filter_map(rgb).collect();
    check(
        lines.len() == 5 && lines[1] == lines[3] && lines[2] == lines[4],
        "lines have not their colours",
    );
    if let (Some(picture), Some(place)) = (&visit.picture, place(visit, "plot")) {
        for colour in lines {
            let pixels = picture.count(place, colour);
            check(pixels > 150, &format!("no line in {colour:?}"));
        }
    }
    if !faults.is_empty() {
        faults.push(format!("seen: {}", visit.dom.split("<head>").next().unwrap_or("")));
    }
    faults
}

fn rgb(text: &str) -> Option<[u8; 3]> {
    let parts: Option<Vec<u8>> = text.split(',').map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

#[test]
fn the_first_screen_has_the_disk_the_settings_and_the_plot_in_light_and_dark() {
    let Some(browser) = browser("the_first_screen") else { return };
    for (scheme, background) in [(LIGHT, "rgb(251, 251, 249)"), (DARK, "rgb(20, 24, 28)")] {
        let visit = visit(&browser, &probed(&page()), &[scheme]);
        assert!(visit.picture.is_some(), "{scheme}");
        assert_eq!(faults(&visit), [""; 0], "{scheme}");
        assert_eq!(seen(&visit, "background"), background, "{scheme}");
    }
}

/// Checks the check above: broken pages do not pass it.
#[test]
fn broken_pages_are_found_out() {
    let Some(browser) = browser("broken_pages_are_found_out") else { return };
    let page = page();
    let in_head = |what: &str| page.replacen("</head>", &format!("{what}</head>"), 1);
    let cases = [
        (
            "throwing",
            in_head("<script>throw new Error('on purpose')</script>"),
            "the page had errors",
        ),
        // The page's own policy forbids the fetch.
        (
            "fetching",
            in_head("<script src=\"https://example.invalid/x.js\"></script>"),
            "the page had errors",
        ),
        (
            "blank",
            page.replace("<polyline", "<polylost").replace("<circle", "<lost"),
            "no line in [0, 103, 168]",
        ),
        (
            "low",
            in_head("<style>header { padding-bottom: 400px }</style>"),
            "plot is not on the first screen",
        ),
        (
            "covered",
            in_head("<style>#device::after { content: ''; position: fixed; inset: 0 }</style>"),
            "knee is covered",
        ),
    ];
    for (name, broken, fault) in cases {
        assert_ne!(broken, page, "{name}: nothing was broken");
        let faults = faults(&visit(&browser, &probed(&broken), &[LIGHT]));
        assert!(faults.iter().any(|found| found == fault), "{name}: {faults:?}");
    }
}

/// Names that try to be markup stay text in a browser's eyes, in the page and in its data.
#[test]
fn hostile_names_stay_inert_in_chromium() {
    let Some(browser) = browser("hostile_names_stay_inert_in_chromium") else { return };
    let (report, sections) = sample::hostile();
    let page = html::render(&html::Kind::lab(&report), &report, &sections).unwrap();
    let visit = visit(&browser, &probed(&page), &[]);
    assert!(visit.dom.contains("<title>forebay lab: &lt;/script&gt;"), "the title was taken");
    assert!(!visit.dom.contains("<img"), "{}", visit.dom);
    assert_eq!(seen(&visit, "resources"), "");
    assert!(seen(&visit, "knee").contains(','), "the plot is there: {}", seen(&visit, "errors"));
}

/// A sandboxed frame forbids scripts; the test reads the rendered frame from outside.
#[test]
fn without_scripts_all_but_the_buttons_remains() {
    let Some(browser) = browser("without_scripts_all_but_the_buttons_remains") else { return };
    let source = page().replace("<details", "<details open");
    let source = source.replace('&', "&amp;").replace('"', "&quot;");
    let framed = format!(
        "<!doctype html><html><body><iframe sandbox=\"allow-same-origin\" width=\"1200\" \
         height=\"3000\" srcdoc=\"{source}\"></iframe><script>onload = () => \
         document.documentElement.setAttribute('data-seen-rendered', \
         document.querySelector('iframe').contentDocument.body.innerText)</script></body></html>"
    );
    let visit = visit(&browser, &framed, &[]);
    let rendered = seen(&visit, "rendered");
    for text in [
        "41,230",
        "effective_io_concurrency",
        "With 64 blocks prefetched",
        "io_setup:",
        "the gauge was frozen",
        "0.88",
    ] {
        assert!(rendered.contains(text), "{text} in {rendered}");
    }
    for text in ["Copy\n", "Save report.json", "Dark\n"] {
        assert!(!rendered.contains(text), "{text} needs scripts: {rendered}");
    }
}

/// The part of the settings that a phone of 390 pixels shows without scrolling sideways: setting, value, and gain.
#[test]
fn on_a_phone_the_advised_values_and_their_gains_are_seen_first() {
    let Some(browser) = browser("on_a_phone_the_advised_values") else { return };
    let source = page().replace('&', "&amp;").replace('"', "&quot;");
    // The browser's own window is never so narrow.
    let framed = format!(
        "<!doctype html><html><body style=\"margin: 0\"><iframe sandbox=\"allow-same-origin\" width=\"390\" \
         height=\"800\" style=\"border: 0\" srcdoc=\"{source}\"></iframe><script>onload = () => {{\
         const page = document.querySelector('iframe').contentDocument;\
         const cells = [...page.querySelectorAll('#settings thead th')];\
         const ends = cells.map((cell) => cell.textContent + ' ' + Math.round(cell.getBoundingClientRect().right));\
         const set = (name, value) => document.documentElement.setAttribute('data-seen-' + name, value);\
         set('ends', ends.join(','));\
         set('sideways', page.scrollingElement.scrollWidth > 390);\
         }}</script></body></html>"
    );
    let visit = visit(&browser, &framed, &[LIGHT]);
    let ends: Vec<(&str, u32)> = seen(&visit, "ends")
        .split(',')
        .map(|cell| cell.rsplit_once(' ').unwrap())
        .map(|(name, end)| (name, end.parse().unwrap()))
        .collect();
    let names: Vec<&str> = ends[..3].iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["setting", "advised", "gain"]);
    assert!(ends[2].1 <= 390, "{ends:?}");
    assert_eq!(seen(&visit, "sideways"), "false");
}
