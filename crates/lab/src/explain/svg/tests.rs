//! Contents of the picture.

use super::super::Strategy;
use super::super::sample::{explained, long, neighbours, reads};
use super::*;

fn drawn(explained: &Explained) -> String {
    draw(explained).unwrap()
}

/// The value of `name` in every element that has it.
fn values(svg: &str, element: &str, name: &str) -> Vec<f64> {
    let (open, key) = (format!("<{element} "), format!(" {name}=\""));
    svg.split(&open)
        .skip(1)
        .filter_map(|rest| {
            let inside = &rest[..rest.find('>').unwrap()];
            let inside = format!(" {inside}");
            let value = inside.split_once(&key)?.1;
            Some(value[..value.find('"').unwrap()].parse().unwrap())
        })
        .collect()
}

#[test]
fn each_request_is_a_group_that_says_what_it_is() {
    let svg = drawn(&neighbours());
    assert_eq!(svg.matches("<g class=\"r\">").count(), 5 + 6 + 5 + 6 + 2, "[EXS-1]");
    assert!(svg.contains("<title>request 4, R: blocks 6–9, 32.0 KiB</title>"), "[EXS-1] {svg}");
    let willneed = &svg[svg.find("aria-label=\"willneed").unwrap()..];
    let blocks: Vec<&str> =
        willneed.split("R: block ").skip(1).take(6).map(|rest| &rest[..1]).collect();
    assert_eq!(blocks, ["1", "3", "2", "6", "4", "9"], "[EXS-1]");
}

#[test]
fn the_strip_has_a_text_for_screen_readers() {
    let svg = drawn(&neighbours());
    assert!(svg.contains("<title id=\"title\">1,3,2,6,4,9: 6 blocks of 8KiB</title>"));
    let about = &svg[svg.find("<desc").unwrap()..svg.find("</desc>").unwrap()];
    assert!(
        about.contains(
            "willneed, plain reads, FADV_WILLNEED for the block 8 further on: 6 requests"
        )
    );
    assert!(about.contains("adaptive, a read stream of a Forebay pool: 2 requests, 64.0 KiB"));
    assert!(svg.contains("role=\"img\" aria-labelledby=\"title desc\""));
}

#[test]
fn it_is_self_contained_and_follows_the_scheme() {
    let svg = drawn(&neighbours());
    assert!(svg.contains("prefers-color-scheme:dark"));
    for outside in ["href", "url(", "<script", "<image", "@import"] {
        assert!(!svg.contains(outside), "{outside}");
    }
    assert_eq!(svg.matches("http").count(), 1, "the namespace");
}

/// Whether every element is closed in its turn, attributes are quoted, and `&` begins an entity.
fn is_well_formed(svg: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let Some(len) = rest[start..].find('>') else { return false };
        let text = &rest[..start];
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;", "&#x2f;"];
        if text
            .match_indices('&')
            .any(|(at, _)| entities.iter().all(|entity| !text[at..].starts_with(entity)))
        {
            return false;
        }
        let tag = &rest[start + 1..start + len];
        rest = &rest[start + len + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if tag.matches('"').count() % 2 == 1 {
            return false;
        } else if !tag.ends_with('/') {
            open.extend(tag.split_whitespace().next());
        }
    }
    open.is_empty()
}

#[test]
fn it_is_well_formed_whatever_is_in_it() {
    let mut named = neighbours();
    named.pattern.text = "@<a&\"b>.txt".into();
    for sample in [named, long(), explained("7", vec![(Strategy::Adaptive, Vec::new())])] {
        assert!(is_well_formed(&drawn(&sample)));
    }
    assert!(!is_well_formed("<g><text>a & b</text></g>"), "the check sees that");
    assert!(!is_well_formed("<g><text></g>"), "the check sees that");
}

#[test]
fn text_from_outside_is_escaped() {
    let mut explained = neighbours();
    explained.pattern.text = "@<a&\"b\u{7}>.txt".into();
    explained.disk.about = "</svg>".into();
    let svg = drawn(&explained);
    assert!(svg.contains("@&lt;a&amp;&quot;b&gt;.txt"), "[EXS-2]");
    assert_eq!(svg.matches("</svg>").count(), 1, "[EXS-2]");
    assert!(!svg.contains('\u{7}'), "[EXS-2]");
}

#[test]
fn nothing_is_drawn_outside_the_paper() {
    let far = reads(&[(0, 1), (4_294_967_295, 1)]);
    let far = explained("0,4294967295", vec![(Strategy::Os, far)]);
    for sample in [neighbours(), long(), far] {
        let svg = drawn(&sample);
        let height = values(&svg, "svg", "height")[0];
        // Each stroke is `Mx yhlength` or, of a break, `Mx yvlength`.
        for stroke in svg.split('M').skip(1) {
            let mut numbers = stroke.split(|sign: char| !sign.is_ascii_digit() && sign != '.');
            let mut next = || numbers.next().and_then(|text| text.parse::<f64>().ok());
            let (Some(x), Some(y), Some(long)) = (next(), next(), next()) else { continue };
            let across = if stroke.contains('v') { 0.0 } else { long };
            assert!(long > 0.0 && x + across <= WIDTH, "[EXS-2] {stroke}");
            assert!(y < height, "[EXS-2] {stroke}");
        }
    }
}

#[test]
fn a_segment_at_the_edge_says_where_it_begins() {
    let reads = reads(&[(5, 1), (20_000, 1), (900_000, 1)]);
    let svg = drawn(&explained("0-20000,900000", vec![(Strategy::Os, reads)]));
    assert!(svg.contains(">900,000</text>"), "{svg}");
}

#[test]
fn a_long_run_is_a_picture_of_bounded_size() {
    let svg = drawn(&long());
    assert!(svg.len() < 200_000, "{}", svg.len());
    assert!(svg.matches("<g class=\"r\">").count() <= 2 * ROWS_MAX);
    assert!(svg.contains("<title>requests 1–178</title>"), "{svg}");
    // At random in a large file, which makes the largest raster.
    let everywhere = explained("random:32000", Vec::new()).pattern;
    let list: Vec<(u64, u64)> = everywhere.blocks.iter().map(|&at| (at.into(), 1)).collect();
    let svg = drawn(&explained("random:32000", vec![(Strategy::Random, reads(&list))]));
    assert!(svg.len() < 600_000, "{}", svg.len());
}
