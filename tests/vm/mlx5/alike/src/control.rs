//! The control line of the virtual device: see tests/vhca/README.md.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

/// The guest's end of the line, which the lane has set to raw mode.
#[derive(Debug)]
pub(crate) struct Control {
    requests: File,
    answers: BufReader<File>,
}

impl Control {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let requests = File::options().write(true).open(path)?;
        Ok(Self { requests, answers: BufReader::new(File::open(path)?) })
    }

    /// Sends a request, and returns the lines before `ok`.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Vec<String>, String> {
        let failed = |error: std::io::Error| format!("control line: {error}");
        self.requests.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).map_err(failed)?;
            match line.strip_suffix('\n') {
                Some("ok") => return Ok(lines),
                Some(line) if !line.starts_with("error") => lines.push(line.to_owned()),
                _ => return Err(format!("{request:.80}: {line}")),
            }
        }
    }
}
