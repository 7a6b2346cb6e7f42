//! The wire of the port: frames that leave the device, and their destination.

mod mishaps;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use vpci::lock;
use vpci::wire::{Ends, Line};

pub(crate) use self::mishaps::{Mishap, Mishaps};
use crate::server::Shared;

/// Number of sent frames that are kept for the control line.
const SENT_KEPT: usize = 4096;

/// The wire, from the point of view of the device.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Sent frames return.
    pub(crate) is_loop: bool,
    pub(crate) sent: VecDeque<Vec<u8>>,
    /// The faults of packets of the connected transports.
    pub(crate) mishaps: Mishaps,
    /// To the thread that sends, if there is another end.
    line: Option<Line>,
}

impl Wire {
    /// Sends a frame to the other end, if there is one.
    pub(crate) fn send(&self, frame: &[u8]) {
        if let Some(line) = &self.line {
            line.send(frame.to_vec());
        }
    }

    /// Sends the time of this device to the other end, and returns the time to which it may advance.
    pub(crate) fn keep_pace(&self, time: Duration) -> Duration {
        let until = self.line.as_ref().map(|line| {
            line.tell(time);
            line.until()
        });
        until.unwrap_or(Duration::MAX)
    }

    /// Keeps a frame for the control line.
    pub(crate) fn keep(&mut self, frame: Vec<u8>) {
        if self.sent.len() == SENT_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back(frame);
    }
}

/// Connects a device to the other end.
///
/// # Errors
/// If its own socket cannot be created. The other one may be created later.
pub(crate) fn connect(ends: &Ends, device: &Shared) -> io::Result<()> {
    let to = Shared::clone(device);
    let line = vpci::wire::connect(ends, move |frame| lock(&to).frame_arrives(frame))?;
    lock(device).wire.line = Some(line);
    Ok(())
}
