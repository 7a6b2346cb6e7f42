//! Options of all measurements: how much, on which processors, and where the results are written.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hgrm;
use super::pace::Limit;
use super::tally::Tally;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::units;

/// Default number of samples.
const SAMPLES: u64 = 100_000;

/// How much is measured, and on which processors.
#[derive(Debug, clap::Args)]
pub(super) struct Amount {
    /// Number of samples; default 100000 without --duration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    samples: Option<u64>,
    /// Measure for this time: 10s, 500ms.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    duration: Option<Duration>,
    /// Samples of each thread before the measurement, reported separately; default: a tenth, at most 1000 or one second.
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<u64>,
    /// The processors on which the threads run, in turn: CPU numbers separated by commas, ranges such as 2-5.
    #[arg(long, value_name = "LIST", value_parser = units::cpus)]
    cpu: Option<units::Cpus>,
}

impl Amount {
    pub(super) fn limit(&self) -> Limit {
        match self.duration {
            Some(time) => Limit::Time(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            None => Limit::Samples(self.samples.unwrap_or(SAMPLES)),
        }
    }

    /// The processors on which the threads run; if it is empty, any.
    pub(super) fn cpus(&self) -> Vec<usize> {
        self.cpu.as_ref().map(|list| list.0.clone()).unwrap_or_default()
    }
}

/// Where the results are written.
#[derive(Debug, clap::Args)]
pub(super) struct Results {
    /// Write one JSON object per line for each measurement: to the file, or in place of the table.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Draw the figures into an SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write the percentile distribution in HdrHistogram's format; for several measurements, to one file each, with mode and
    /// number in its name.
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
}

/// The error if there is no result.
pub(super) fn nothing(stop: &Stop) -> Failure {
    let why = if stop.is_set() { ": ended before the first sample" } else { "" };
    Failure::Other(format!("nothing was measured{why}"))
}

impl Results {
    /// Checks the files before anything is measured.
    pub(super) fn check(&self) -> Outcome {
        let json = self.json.as_ref().filter(|path| path.as_os_str() != "-");
        json.into_iter().chain(&self.plot).chain(&self.hgrm).try_for_each(|path| {
            try_file(path).map_err(|error| Failure::File(path.display().to_string(), error))
        })
    }

    /// Writes the results to all requested places. Every write is attempted.
    pub(super) fn write(
        &self,
        lines: &str,
        table: &str,
        figure: impl FnOnce() -> Outcome<String>,
        tallies: &[(String, &Tally)],
    ) -> Outcome {
        let mut output = Output::new();
        let told = match &self.json {
            Some(path) if path.as_os_str() == "-" => output.text(lines),
            Some(path) => write(path, lines).and_then(|()| output.text(table)),
            None => output.text(table),
        };
        let drawn = match &self.plot {
            Some(path) if !tallies.is_empty() => figure().and_then(|svg| write(path, &svg)),
            _ => Ok(()),
        };
        let listed = self.hgrm.as_ref().map_or(Ok(()), |path| {
            tallies.iter().try_for_each(|(name, tally)| {
                let path = if tallies.len() == 1 { path.clone() } else { hgrm::path(path, name) };
                write(&path, &hgrm::text(tally))
            })
        });
        failure::first([told, drawn, listed])
    }
}

/// Whether a file can be written. An existing file is not changed, and none is created. A pipe is left to its reader.
fn try_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true);
    match fs::metadata(path) {
        Ok(file) if file.file_type().is_fifo() => Ok(()),
        Ok(_) => options.open(path).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            drop(options.create_new(true).open(path)?);
            fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

fn write(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| Failure::File(path.display().to_string(), error))
}

/// The kernel's release.
pub(super) fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
