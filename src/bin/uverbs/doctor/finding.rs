//! What a check has found.

use std::fmt::Write;

use serde::Serialize;

use crate::table::{Colours, Style};

/// How much it matters. The worst one decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Worth knowing.
    Note,
    /// RDMA works, but in part or slowly.
    Warning,
    /// RDMA does not work.
    Problem,
}

impl Severity {
    pub(super) const ALL: [Self; 3] = [Self::Problem, Self::Warning, Self::Note];

    fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Note => Style::Faint,
            Self::Warning => Style::Warning,
            Self::Problem => Style::Head,
        }
    }

    /// A number of findings, in words.
    pub(super) fn counted(self, count: usize) -> String {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {}{plural}", self.name())
    }
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The check, by a name that does not change.
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) device: Option<String>,
    pub(super) port: Option<u32>,
    pub(super) seen: String,
    /// Why it matters.
    pub(super) why: String,
    /// The command or the setting that mends it; none for notes that need nothing.
    pub(super) mend: Option<String>,
}

/// Puts the worst first.
pub(super) fn sort(found: &mut [Finding]) {
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
}

impl Finding {
    fn new(check: &'static str, severity: Severity, seen: impl Into<String>, why: impl Into<String>) -> Self {
        let (seen, why) = (seen.into(), why.into());
        Self { check, severity, device: None, port: None, seen, why, mend: None }
    }

    pub(super) fn problem(check: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(check, Severity::Problem, seen, why)
    }

    pub(super) fn warning(check: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(check, Severity::Warning, seen, why)
    }

    pub(super) fn note(check: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(check, Severity::Note, seen, why)
    }

    pub(super) fn on(self, device: &str) -> Self {
        Self { device: Some(device.to_owned()), ..self }
    }

    pub(super) fn port(self, port: u32) -> Self {
        Self { port: Some(port), ..self }
    }

    pub(super) fn mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }

    /// Four lines, or three for a note that needs nothing.
    pub(super) fn write(&self, text: &mut String, colours: Colours) {
        let head = colours.paint(self.severity.name(), self.severity.style());
        let place = match (&self.device, self.port) {
            (Some(device), Some(port)) => format!(", {} port {port}", device.escape_debug()),
            (Some(device), None) => format!(", {}", device.escape_debug()),
            (None, _) => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{head} {}{place}\n  seen: {}\n  why:  {}", self.check, self.seen, self.why);
        if let Some(mend) = &self.mend {
            let _ = writeln!(text, "  mend: {mend}");
        }
    }
}
