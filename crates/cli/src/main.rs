//! The `forebay` command: reads its arguments, runs, and turns the result into an exit code.
//!
//! Exit codes: 0 done; 1 something failed; 2 bad input; 130 interrupted; of `watch -- COMMAND` that of the command.
#![forbid(unsafe_code)]

mod arguments;
#[cfg(feature = "packaging")]
mod packaging;

use std::ffi::OsString;
use std::process::ExitCode;

use forebay_lab::Laboratory;
use forebay_measure::interrupt::{self, Interrupted};
use forebay_measure::output::note;
use forebay_measure::{BadInput, start};
use forebay_watch::CommandFailed;

use arguments::{Cli, Command, rename_options};

/// The version, with the commit that it was built from.
const VERSION: &str = env!("FOREBAY_VERSION");

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    for (old, new) in rename_options(&mut words) {
        note(&format!("{old} is now called {new}"));
    }
    let cli = Cli::read(words.iter().cloned()).unwrap_or_else(|error| error.exit());
    let result = run(&cli.command, &words);
    // A second Ctrl-C may have removed files that the run needed.
    interrupt::wait_if_ending();
    let Err(error) = result else { return ExitCode::SUCCESS };
    if error.is::<Interrupted>() {
        let left = if interrupt::is_clean() { "; nothing is left behind" } else { "" };
        note(&format!("interrupted{left}"));
        return ExitCode::from(130);
    }
    note(&chain(&error));
    if let Some(failed) = error.downcast_ref::<CommandFailed>() {
        return ExitCode::from(failed.code());
    }
    ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
}

fn run(command: &Command, words: &[OsString]) -> anyhow::Result<()> {
    // The reader of a report can repeat it.
    let typed = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match command {
        Command::Lab(args) => forebay_lab::run(args, VERSION, typed),
        Command::Emulate(args) => forebay_lab::emulate::run(args),
        Command::Explain(args) => {
            start::start()?;
            let command = forebay_lab::repeated(typed, None, args.seed);
            forebay_lab::explain::run(args, &command)
        }
        Command::Compare(args) => forebay_lab::compare::run(args),
        Command::Advise(args) => {
            forebay_advise::run(args, VERSION, &Laboratory { version: VERSION })
        }
        Command::Watch(args) => forebay_watch::run(args, VERSION),
        #[cfg(feature = "packaging")]
        Command::Generate { directory } => packaging::generate(directory),
    }
}

/// An error with its causes, without those that its own message already contains.
fn chain(error: &anyhow::Error) -> String {
    let mut ended = false;
    let own = |it: &&(dyn std::error::Error + 'static)| {
        let is_first = !ended;
        ended |= contains_its_cause(*it);
        is_first
    };
    let causes = error.chain().take_while(own).map(ToString::to_string);
    let message = causes.reduce(|message, cause| {
        if message.contains(&cause) { message } else { format!("{message}: {cause}") }
    });
    message.unwrap_or_default()
}

/// The message of a tablespace's error says enough about its cause, whose message is the store's whole response.
#[cfg(feature = "object")]
fn contains_its_cause(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<forebay_object::Error>()
}

#[cfg(not(feature = "object"))]
fn contains_its_cause(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}
