//! Lines of text for a terminal: style, width and alphabet, kept in one place.
//!
//! Worked example: `two words` after ` [1] ` in ten columns is ` [1] two` and `     words`.
//!
//! Invariants:  [TXT-1] a wrapped line is at most `width` wide, also where one word is longer

use anstyle::Style;

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Columns of the terminal; values below [`WIDTH_MIN`](super::WIDTH_MIN) are raised to it.
    pub width: usize,
    /// True when escapes for colour and weight may be written.
    pub colour: bool,
    /// True when only ASCII may be written: `us` for µs.
    pub ascii: bool,
}

/// `text` in `style`, if escapes may be written.
pub fn styled(text: &str, style: Style, look: Look) -> String {
    if look.colour { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// Appends `line` to `text`, without spaces at its end.
pub fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Adds `sentence` in lines of at most `width` characters, the first after `lead`, the others
/// indented as far; a single word that is longer is broken [TXT-1].
pub fn push_wrapped(text: &mut String, lead: &str, sentence: &str, width: usize) {
    let indent = " ".repeat(lead.chars().count());
    let options = options(width).initial_indent(lead).subsequent_indent(&indent);
    for line in textwrap::wrap(&one_line(sentence), options) {
        push_line(text, &line);
    }
}

/// `text` in lines of at most `width` characters, one at least.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    textwrap::wrap(&one_line(text), options(width)).iter().map(ToString::to_string).collect()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

fn options<'o>(width: usize) -> textwrap::Options<'o> {
    textwrap::Options::new(width).word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// The first `width` characters of `text`, the last of them `…` if there are more.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// Replaces characters that ASCII lacks: those of this crate by their spelling, any others by `?`.
pub fn ascii(text: &str) -> String {
    let spelling = |letter| match letter {
        '–' => '-',
        'µ' => 'u',
        '…' => '~',
        '×' => 'x',
        // The signs of blocks.
        '■' | '█' => '#',
        '□' => 'o',
        '▣' => '@',
        '░' => '.',
        '▒' => '-',
        '▓' => '+',
        '┆' => ':',
        '±' => ' ', // the percent sign alone; columns keep their width
        letter if letter.is_ascii() => letter,
        _ => '?',
    };
    text.chars().map(spelling).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wrapped_line_is_too_wide() {
        for width in 7..40 {
            let mut text = String::new();
            push_wrapped(&mut text, " [1] ", "two words, and aVeryLongWordWithoutAnyBlank", width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "[TXT-1] {width}: {line}");
            }
        }
        let mut text = String::new();
        push_wrapped(&mut text, " [1] ", "two\nwords", 10);
        assert_eq!(text, " [1] two\n     words\n");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("interleaved-32", 8), "interle…");
        assert_eq!(cut("os", 2), "os");
    }
}
