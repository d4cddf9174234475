//! The report page in a real browser: is it drawn, can it be used, is the console clean.
//!
//! A page that looks right in its source can still be blank: a script that throws, a policy that
//! forbids it, a colour that is never resolved. So the page is opened in Chromium and used by a
//! probe as a reader would use it. Without a Chromium
//! on PATH the tests say `skipped` and write that to the file named by FOREBAY_SKIPS.
#![allow(clippy::print_stdout)]

mod chromium;
mod sample;

use std::io::Write;
use std::path::PathBuf;

use chromium::{Visit, visit};
use forebay_lab::report::html;

const PROBE: &str = include_str!("page/probe.js");
/// Comes before any script of the page, so that it sees every error of theirs.
const WATCH: &str = "<script>window.seenErrors = [];\
    addEventListener('error', (event) => seenErrors.push('error: ' + event.message));\
    addEventListener('unhandledrejection', (event) => seenErrors.push('rejected: ' + event.reason));\
    addEventListener('securitypolicyviolation', (event) => seenErrors.push('policy: ' + event.blockedURI));\
    </script>";
const DARK: &str = "--blink-settings=preferredColorScheme=0";
const LIGHT: &str = "--blink-settings=preferredColorScheme=1";

fn page() -> String {
    html::render(&sample::report()).unwrap()
}

/// The page with the watch before its own scripts and the probe after them.
fn probed(page: &str) -> String {
    assert_eq!(page.matches("</body>").count(), 1);
    let watched =
        page.replacen("<meta charset=\"utf-8\">", &format!("<meta charset=\"utf-8\">{WATCH}"), 1);
    watched.replacen("</body>", &format!("<script>{PROBE}</script></body>"), 1)
}

/// The browser, or a skip that is said and counted.
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

/// What the probe wrote under `name`.
fn seen<'v>(visit: &'v Visit, name: &str) -> Option<&'v str> {
    let start = format!("data-seen-{name}=\"");
    let rest = &visit.dom[visit.dom.find(&start)? + start.len()..];
    rest.split('"').next()
}

/// Everything that is wrong with a visited page; empty when it works.
fn faults(visit: &Visit) -> Vec<String> {
    let mut faults = visit.console.clone();
    let mut check = |good: bool, what: &str| {
        if !good {
            faults.push(what.to_owned());
        }
    };
    check(seen(visit, "done") == Some("true"), "the probe did not get to its end");
    check(seen(visit, "errors") == Some(""), "the page had errors");
    check(seen(visit, "resources") == Some(""), "the page fetched something");
    check(seen(visit, "heat") == Some("5"), "the heat map has not its colours");
    check(seen(visit, "other-heat") == Some("5"), "the other heat map has not its colours");
    check(seen(visit, "lost") == Some("true"), "a loss of adaptive is not marked");
    check(seen(visit, "share") == Some("1.00"), "the heat map begins without shares");
    check(seen(visit, "rate") == Some("66.4k"), "the switch does not change the figures");
    check(seen(visit, "bars") == Some("3"), "the bars of interplay are alike");
    let teeth: Vec<u32> = seen(visit, "teeth")
        .unwrap_or("")
        .split(',')
        .filter_map(|high| high.parse().ok())
        .collect();
    check(teeth.len() == 2 && teeth[0] > 100 && teeth[1] < 10, "no tooth, or two of them");
    check(seen(visit, "teeth-inks") == Some("2"), "both paces have one colour");
    check(seen(visit, "teeth-width") == Some("true"), "the timeline is narrow");
    let curves: Vec<u32> = seen(visit, "curves")
        .unwrap_or("")
        .split(',')
        .filter_map(|high| high.parse().ok())
        .collect();
    check(curves.len() == 2 && curves[0] < 20 && curves[1] > 60, "no curve of eight readers");
    check(seen(visit, "curve-inks") == Some("2"), "both curves have one colour");
    check(seen(visit, "ceiling") == Some("true"), "the ceiling is not above the curves");
    check(seen(visit, "curves-of-mixture") == Some("2"), "no curves of the mixture");
    check(
        seen(visit, "background") != seen(visit, "other-background"),
        "the theme does not switch",
    );
    if !faults.is_empty() {
        faults.push(format!("seen: {}", visit.dom.split("<head>").next().unwrap_or("")));
    }
    faults
}

#[test]
fn opened_in_chromium() {
    let Some(browser) = browser("opened_in_chromium") else { return };
    for (scheme, background) in [(LIGHT, "rgb(251, 251, 249)"), (DARK, "rgb(20, 24, 28)")] {
        let visit = visit(&browser, &probed(&page()), &[scheme]);
        assert_eq!(faults(&visit), [""; 0], "{scheme}");
        assert_eq!(seen(&visit, "background"), Some(background), "{scheme}");
    }
}

/// The check above is worth something: broken pages do not pass it.
#[test]
fn broken_pages_are_found_out() {
    let Some(browser) = browser("broken_pages_are_found_out") else { return };
    let page = page();
    let throwing =
        page.replacen("</head>", "<script>throw new Error('on purpose')</script></head>", 1);
    let fetching = page.replacen(
        "</head>",
        "<script src=\"https://example.invalid/x.js\"></script></head>",
        1,
    );
    let cases = [
        ("throwing", throwing, "the page had errors"),
        ("fetching", fetching, "the page had errors"), // its own policy forbids the fetch
    ];
    for (name, broken, fault) in cases {
        assert_ne!(broken, page, "{name}: nothing was broken");
        let faults = faults(&visit(&browser, &probed(&broken), &[]));
        assert!(faults.iter().any(|found| found == fault), "{name}: {faults:?}");
    }
}

/// Names that try to be markup stay text in a browser's eyes, in the page and in its data.
#[test]
fn hostile_names_stay_inert_in_chromium() {
    let Some(browser) = browser("hostile_names_stay_inert_in_chromium") else { return };
    let hostile = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";
    let mut report = sample::report();
    report.host.name = hostile.to_owned();
    report.command = hostile.to_owned();
    report.conclusions[0].sentence = hostile.to_owned();
    report.records[46].remarks.push(hostile.to_owned());
    let visit = visit(&browser, &probed(&html::render(&report).unwrap()), &[]);
    assert!(visit.dom.contains("<title>forebay lab: &lt;/script&gt;"), "the title was taken");
    assert_eq!(faults(&visit), [""; 0]);
}

/// Scripts are forbidden by a sandboxed frame; what is then rendered is read from outside.
#[test]
fn without_scripts_the_tables_remain() {
    let Some(browser) = browser("without_scripts_the_tables_remain") else { return };
    let mut report = sample::report();
    report.records.push(sample::unheard_of());
    let source = html::render(&report).unwrap();
    let source = source.replace('&', "&amp;").replace('"', "&quot;");
    let framed = format!(
        "<!doctype html><html><body><iframe sandbox=\"allow-same-origin\" width=\"1200\" \
         height=\"3000\" srcdoc=\"{source}\"></iframe><script>onload = () => \
         document.documentElement.setAttribute('data-seen-rendered', \
         document.querySelector('iframe').contentDocument.body.innerText)</script></body></html>"
    );
    let visit = visit(&browser, &framed, &[]);
    let rendered = seen(&visit, "rendered").unwrap_or("");
    for text in [
        "Ask 64 blocks ahead",
        "io_setup:",
        "the gauge was frozen",
        "Where adaptive loses",
        "at once: balanced, combined",
        "0.881 of async",
        "4.62",
    ] {
        assert!(rendered.contains(text), "{text} in {rendered}");
    }
    for text in ["Copy", "Save report.json"] {
        assert!(!rendered.contains(text), "{text} needs scripts: {rendered}");
    }
}
