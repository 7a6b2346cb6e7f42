//! The source of packets of a soft device: a capture or a generator, in its own thread.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uverbs::SoftDevice;
use uverbs::soft::{Capture, CaptureError, Traffic};

use crate::Outcome;
use crate::failure::Failure;

/// Number of frames between two readings of the clock.
const BURST: u64 = 64;
/// Maximum sleep of the generator, short compared with any useful interval.
const NAP: Duration = Duration::from_micros(500);

/// How long to wait for a thread that was told to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Frames that are ready to be sent.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file, and its name for errors.
    Capture(Capture, String),
    /// A pipe or a terminal. Opening it waits for its writer, so the thread opens it.
    Pipe(PathBuf),
    Generator(Traffic),
}

impl Source {
    pub(crate) fn capture(path: &Path) -> Outcome<Self> {
        let name = path.display().to_string();
        let kind = fs::metadata(path).map_err(|error| failure(&name, error.into()))?.file_type();
        if kind.is_fifo() || kind.is_char_device() {
            return Ok(Self::Pipe(path.to_path_buf()));
        }
        let capture = Capture::open(path).map_err(|error| failure(&name, error))?;
        Ok(Self::Capture(capture, name))
    }

    /// Starts sending the frames.
    pub(crate) fn start(self, device: SoftDevice) -> Outcome<Running> {
        let shared = Arc::new(Replay::default());
        let ends = !matches!(self, Self::Generator(_));
        let ours = shared.clone();
        let run = move || {
            let result = match self {
                Self::Capture(capture, name) => play(capture, &device, &ours).map_err(|e| failure(&name, e)),
                Self::Pipe(path) => Capture::open(&path)
                    .and_then(|capture| play(capture, &device, &ours))
                    .map_err(|e| failure(&path.display().to_string(), e)),
                Self::Generator(traffic) => {
                    generate(traffic, &device, &ours);
                    Ok(())
                }
            };
            ours.done.store(true, Ordering::Release);
            result
        };
        let thread = thread::Builder::new().name("traffic".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Failure::Other(format!("no thread for the traffic: {error}")))?;
        Ok(Running { shared, ends, thread })
    }
}

fn failure(name: &str, error: CaptureError) -> Failure {
    match error {
        CaptureError::Io(error) => Failure::File(name.to_owned(), error),
        error => Failure::Other(format!("{name}: {error}")),
    }
}

#[derive(Debug, Default)]
struct Replay {
    stop: AtomicBool,
    done: AtomicBool,
    frames: AtomicU64,
}

impl Replay {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, frames: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
    }
}

/// Frames that are being sent.
#[derive(Debug)]
pub(crate) struct Running {
    shared: Arc<Replay>,
    /// Whether they end by themselves.
    ends: bool,
    thread: JoinHandle<Outcome>,
}

impl Running {
    /// Whether the frames end by themselves and have not ended yet.
    pub(crate) fn goes_on(&self) -> bool {
        self.ends && !self.is_done()
    }

    /// Whether no more frames will be sent.
    pub(crate) fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Number of frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.shared.frames.load(Ordering::Relaxed)
    }

    /// Stops. Returns the number of frames, and the error if there was one.
    pub(crate) fn stop(self) -> (u64, Outcome) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // A capture that is a pipe may keep its thread waiting for ever; the end of the program ends the thread too.
        let patience = Instant::now() + PATIENCE;
        while !self.thread.is_finished() {
            if Instant::now() > patience {
                return (self.frames(), Ok(()));
            }
            thread::sleep(NAP);
        }
        let died = |_| Err(Failure::Other("the thread that generates traffic panicked".to_owned()));
        let result = self.thread.join().unwrap_or_else(died);
        // The thread has ended, so the number is final.
        (self.shared.frames.load(Ordering::Relaxed), result)
    }
}

/// Sends every frame of a capture, as fast as the device accepts them.
fn play(mut capture: Capture, device: &SoftDevice, shared: &Replay) -> Result<(), CaptureError> {
    while !shared.stopped() {
        match device.play(&mut capture)? {
            0 => break,
            frames => shared.count(frames),
        }
    }
    Ok(())
}

/// Sends frames at the generator's rate until stopped.
fn generate(mut traffic: Traffic, device: &SoftDevice, shared: &Replay) {
    let start = Instant::now();
    while !shared.stopped() {
        let due = traffic.due(start.elapsed()).min(BURST);
        for _ in 0..due {
            device.inject(traffic.next_frame());
        }
        shared.count(due);
        if due < BURST {
            thread::sleep(NAP);
        }
    }
}
