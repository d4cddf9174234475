//! The files of a package that describe the command line: man pages, and completions of shells.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Cli;

/// Where Debian's shells look for completions, below share.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/forebay"),
    (Shell::Fish, "fish/vendor_completions.d/forebay.fish"),
    (Shell::Zsh, "zsh/vendor-completions/_forebay"),
];

/// Writes a man page for each command, and the completions, below `share`.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn generate(share: &Path) -> anyhow::Result<()> {
    let pages = share.join("man/man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Cli::command(), &pages)?;
    for (shell, name) in COMPLETIONS {
        let path = share.join(name);
        fs::create_dir_all(path.parent().unwrap_or(share))?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut text);
        fs::write(path, text)?;
    }
    Ok(())
}
