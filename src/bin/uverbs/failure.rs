//! Why the program ends early: one line on standard error, and an exit code.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand as MissingSubcommand;
use uverbs::RuleError;

use crate::Outcome;
use crate::output::Output;

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success; also if ctrl-C ended the program after it had a result, and if the reader of the output closed it
  1  failure
  2  wrong usage: an option, a rule or a value is not valid
  3  no such device, port or file
  4  permission denied
  5  the device or this program does not support it";

/// Why the program ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library has returned an error.
    Uverbs(uverbs::Error),
    /// An option contains no valid rule.
    Rule(RuleError),
    /// Options that make no sense here.
    Usage(String),
    /// A device that does not exist.
    NotFound(String),
    /// The process lacks a permission.
    Denied(String),
    /// The device does not support this.
    Unsupported(String),
    /// A file that cannot be read.
    File(String, io::Error),
    /// Standard output cannot be written.
    Output(io::Error),
    /// Anything else.
    Other(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        use uverbs::ErrorKind::{NotFound, PermissionDenied, Unsupported};
        match self {
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Rule(_) | Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::File(_, error) if error.kind() == ErrorKind::NotFound => 3,
            Self::File(_, error) if error.kind() == ErrorKind::PermissionDenied => 4,
            Self::Denied(_) => 4,
            Self::Unsupported(_) => 5,
            Self::Uverbs(error) => match error.kind() {
                NotFound => 3,
                PermissionDenied => 4,
                Unsupported => 5,
                _ => 1,
            },
            Self::File(..) | Self::Output(_) | Self::Other(_) => 1,
        }
    }

    /// The failure as a text, preceded by the name of its subject. It keeps its kind if something does not exist, is not permitted or is
    /// not supported, and is [`Failure::Other`] otherwise.
    pub(crate) fn said_of(self, what: impl fmt::Display) -> Self {
        use uverbs::ErrorKind::{NotFound, PermissionDenied, Unsupported};
        let text = format!("{what}: {self}");
        match self {
            Self::NotFound(_) => Self::NotFound(text),
            Self::Denied(_) => Self::Denied(text),
            Self::Unsupported(_) => Self::Unsupported(text),
            Self::Uverbs(error) if error.kind() == Unsupported => Self::Unsupported(text),
            Self::Uverbs(error) if error.kind() == PermissionDenied => Self::Denied(text),
            Self::Uverbs(error) if error.kind() == NotFound => Self::NotFound(text),
            _ => Self::Other(text),
        }
    }

    /// Prints the reason on standard error. If only the reader of the output has gone, nothing is printed.
    pub(crate) fn report(&self) {
        if matches!(self, Self::Output(error) if error.kind() == ErrorKind::BrokenPipe) {
            return;
        }
        let mut stderr = io::stderr().lock();
        // If this cannot be written, nothing can.
        let _ = match self {
            // People see the position in the rule; programs get one line.
            Self::Rule(error) if stderr.is_terminal() => writeln!(stderr, "uverbs: --rule: {error:#}"),
            _ => writeln!(stderr, "uverbs: {self}"),
        };
    }
}

/// The exit code of the program, and one line if it failed.
pub(crate) fn ended(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints a remark that is not a failure on standard error, in one line.
pub(crate) fn remark(text: impl fmt::Display) {
    // If this cannot be written, nothing can.
    let _ = writeln!(io::stderr(), "uverbs: {text}");
}

/// The first failure of several steps that were all attempted. The others are reported here.
pub(crate) fn first(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    // A closed output is not a failure, and must not hide one.
    failures.sort_by_key(|failure| failure.exit_code() == 0);
    let mut failures = failures.into_iter();
    let first = failures.next();
    failures.for_each(|other| other.report());
    first.map_or(Ok(()), Err)
}

/// Handles a command line that is invalid or that requests help.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Help and version are output like any other.
        return ended(Output::new().text(error.render()));
    }
    if error.kind() == MissingSubcommand {
        // If this cannot be written, nothing can.
        let _ = error.print();
    } else {
        // The error and a hint, without the usage text that follows: one line.
        let text = error.render().to_string();
        let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
        let words: Vec<_> =
            lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
        let text = words.join(" ").replace(" tip: ", "; ");
        Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).to_owned()).report();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uverbs(error) => error.fmt(f),
            Self::Rule(error) => write!(f, "--rule: {error}"),
            Self::File(path, error) => write!(f, "{path}: {error}"),
            Self::Output(error) => write!(f, "standard output: {error}"),
            Self::Usage(text)
            | Self::NotFound(text)
            | Self::Denied(text)
            | Self::Unsupported(text)
            | Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<uverbs::Error> for Failure {
    fn from(error: uverbs::Error) -> Self {
        Self::Uverbs(error)
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Self {
        Self::Rule(error)
    }
}
