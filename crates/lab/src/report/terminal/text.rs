//! Lines, bars and signs of the terminal's tables.
//!
//! Everything that ends up on the terminal besides the cells of a table goes through here, so
//! that width and alphabet are kept in one place. Worked example: `two words` after ` [1] ` in
//! nine columns is ` [1] two` and `     words`.
//!
//! Invariants:  [TXT-1] a wrapped line is at most `width` wide, also where one word is longer
//!              [TXT-2] a bar is at most as wide as its room

use anstyle::Style;

use super::super::footnotes::Footnotes;
use super::super::standing::Standing;
use super::Look;

/// `text` in `style`, if escapes may be written.
pub(crate) fn styled(text: &str, style: Style, look: Look) -> String {
    if look.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

pub(crate) fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Adds `sentence` in lines of at most `width` characters, the first after `lead`, the others
/// indented as far; a single word that is longer is cut [TXT-1].
pub(crate) fn push_wrapped(text: &mut String, lead: &str, sentence: &str, width: usize) {
    let indent = lead.chars().count();
    let room = width.saturating_sub(indent).max(1);
    let mut line = String::new();
    let mut lead = lead.to_owned();
    for word in sentence.split_whitespace() {
        let mut letters = word.chars().peekable();
        while letters.peek().is_some() {
            let piece: String = letters.by_ref().take(room).collect();
            let taken = line.chars().count();
            if taken > 0 && taken + 1 + piece.chars().count() > room {
                push_line(text, &format!("{lead}{line}"));
                lead = " ".repeat(indent);
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&piece);
        }
    }
    push_line(text, &format!("{lead}{line}"));
}

/// Adds a heading in `style`; one that is wider than the terminal is wrapped and left plain.
pub(super) fn push_heading(text: &mut String, heading: &str, style: Style, look: Look) {
    if heading.chars().count() < look.width {
        push_line(text, &format!(" {}", styled(heading, style, look)));
    } else {
        push_wrapped(text, " ", heading, look.width);
    }
}

/// The first `width` characters of `text`, the last of them `…` if there are more.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// A bar of eighths of a character for a `share` of one; hollow when the figure was not cold.
pub(super) fn bar(share: f64, standing: Standing, width: usize, ascii: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let (full, hollow) = if ascii { ("#", ".") } else { ("█", "░") };
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let whole = eighths / 8;
    match (standing, ascii) {
        (Standing::Unmeasured, _) => String::new(),
        (Standing::NotCold, _) => hollow.repeat(whole.max(1)),
        (Standing::Cold, true) => full.repeat(eighths.div_ceil(8)),
        (Standing::Cold, false) => {
            let last = EIGHTHS.get(eighths % 8).unwrap_or(&"");
            full.repeat(whole) + last
        }
    }
}

/// What ends a table: the remarks by number, what parentheses mean if there are any, and how
/// many records fit no row; empty when there is nothing to say.
pub(super) fn footnotes(
    notes: &Footnotes,
    some_not_cold: bool,
    leftovers: usize,
    look: Look,
) -> String {
    let mut text = String::new();
    for (index, sentence) in notes.sentences().iter().enumerate() {
        push_wrapped(&mut text, &format!(" [{}] ", index + 1), sentence, look.width);
    }
    if some_not_cold {
        let meaning = "In parentheses: the page cache was not cold, so the figure is not compared.";
        push_wrapped(&mut text, " ", meaning, look.width);
    }
    if leftovers > 0 {
        let left_out = format!("{leftovers} of the records fit no row here; the JSON has them.");
        push_wrapped(&mut text, " ", &left_out, look.width);
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Replaces what ASCII lacks: our own signs by their spelling, anything else by `?`.
pub(crate) fn ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '–' => plain.push('-'),
            'µ' => plain.push('u'),
            '…' => plain.push('~'),
            '±' => plain.push(' '), // the percent sign alone; columns keep their width
            letter if letter.is_ascii() => plain.push(letter),
            _ => plain.push('?'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wrapped_line_is_too_wide() {
        for width in 6..40 {
            let mut text = String::new();
            push_wrapped(&mut text, " [1] ", "two words, and aVeryLongWordWithoutAnyBlank", width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "[TXT-1] {width}: {line}");
            }
        }
        let mut text = String::new();
        push_wrapped(&mut text, " [1] ", "two words", 10);
        assert_eq!(text, " [1] two\n     words\n");
    }

    #[test]
    fn no_bar_is_wider_than_its_room() {
        for share in [0.0, 0.01, 0.5, 0.999, 1.0, 7.0, f64::INFINITY, -1.0] {
            for (standing, ascii) in
                [(Standing::Cold, true), (Standing::Cold, false), (Standing::NotCold, false)]
            {
                let drawn = bar(share, standing, 10, ascii);
                assert!(drawn.chars().count() <= 10, "[TXT-2] {share}: {drawn}");
            }
        }
        assert_eq!(bar(0.55, Standing::Cold, 10, false), "█████▌");
        assert_eq!(bar(1.0, Standing::Unmeasured, 10, false), "");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("interleaved-32", 8), "interle…");
        assert_eq!(cut("os", 2), "os");
    }
}
