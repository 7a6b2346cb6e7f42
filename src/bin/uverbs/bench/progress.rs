//! The progress of a measurement, on a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::pace::Limit;

/// A bar on standard error if that is a terminal; otherwise nothing.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Samples of the previous settings.
    before: u64,
    by_time: bool,
}

impl Progress {
    /// For this number of settings, each with the same number of samples or the same time.
    pub(super) fn new(limit: Limit, settings: u64) -> Self {
        let samples = match limit {
            Limit::Samples(samples) => Some(samples.saturating_mul(settings)),
            Limit::Time(_) => None,
        };
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr_with_hz(10),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(samples.unwrap_or(settings)), target);
        let style = ProgressStyle::with_template("{wide_bar} {percent:>3} % {msg} {eta:>4}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar, before: 0, by_time: samples.is_none() }
    }

    /// Shows what is measured now.
    pub(super) fn begin(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Shows the number of samples.
    pub(super) fn show(&self, samples: u64) {
        if !self.by_time {
            self.bar.set_position(self.before + samples);
        } else {
            self.bar.tick();
        }
    }

    /// A setting is finished, with this number of samples.
    pub(super) fn end(&mut self, samples: u64) {
        self.before += if self.by_time { 1 } else { samples };
        self.bar.set_position(self.before);
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
