//! Words of shell commands.

use std::borrow::Cow;

/// `text` as a word of a shell command.
pub fn quoted(text: &str) -> String {
    // Only a NUL is refused, which no path and no name has. Parts of a list are quoted singly: commas need no quotes.
    let quoted = |part| shlex::try_quote(part).map_or_else(|_| part.to_owned(), Cow::into_owned);
    text.split(',').map(quoted).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_space_or_quote_survives_the_shell() {
        assert_eq!(quoted("/mnt/data"), "/mnt/data");
        assert_eq!(quoted("/mnt/my disk"), "'/mnt/my disk'");
        assert_eq!(quoted("0,16,my disk"), "0,16,'my disk'");
        let hostile = "it's \"$(date)\" `date` \\ ! {a,b}";
        assert_eq!(shlex::split(&quoted(hostile)), Some(vec![hostile.to_owned()]));
    }
}
