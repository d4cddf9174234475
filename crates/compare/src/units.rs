//! Numbers as people read them.

/// A measured number: `1,041,230`, `873`, `12.4`, `0.87`; a dash where there is none.
pub(crate) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    match value.abs() {
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len() - index;
        if index > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_to_three_telling_digits() {
        let cases = [
            (1_041_230.4, "1,041,230"),
            (873.2, "873"),
            (12.44, "12.4"),
            (0.87, "0.87"),
            (-1234.0, "-1,234"),
            (-123.0, "-123"),
        ];
        for (value, text) in cases {
            assert_eq!(number(Some(value)), text);
        }
        assert_eq!(number(None), "-");
    }
}
