//! Standard output: lines for people, or one JSON document per line for programs.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: io::Stdout,
    terminal: bool,
    /// There is a progress line without its end.
    open: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self { stdout, terminal, open: false }
    }

    /// Whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: impl fmt::Display) -> Outcome {
        self.written(|out| write!(out, "{text}"))
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Outcome {
        self.written(|out| writeln!(out, "{text}"))
    }

    /// Writes a line; on a terminal it replaces the previous one.
    pub(crate) fn progress(&mut self, text: impl fmt::Display) -> Outcome {
        if !self.terminal {
            return self.line(text);
        }
        self.open = true;
        self.written(|out| write!(out, "\r{text}\x1b[K"))
    }

    /// Ends the progress line, if there is one.
    pub(crate) fn end_progress(&mut self) -> Outcome {
        if std::mem::take(&mut self.open) { self.line("") } else { Ok(()) }
    }

    /// Writes a page. On a terminal the next page replaces it; elsewhere an empty line separates them.
    pub(crate) fn page(&mut self, text: impl fmt::Display, again: bool) -> Outcome {
        match (again, self.terminal) {
            (false, _) => self.text(text),
            (true, false) => self.text(format_args!("\n{text}")),
            // Moves the cursor to the first place and erases everything after it (ECMA-48, CUP and ED).
            (true, true) => self.text(format_args!("\x1b[H\x1b[J{text}")),
        }
    }

    /// Writes one JSON document.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string(value).map_err(|error| Failure::Other(error.to_string()))?;
        self.line(text)
    }

    fn written(&mut self, write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Outcome {
        let mut out = self.stdout.lock();
        write(&mut out).and_then(|()| out.flush()).map_err(Failure::Output)
    }
}
