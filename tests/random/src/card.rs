//! The control line of a virtual device (`tests/vhca`).

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The line, a tty.
pub struct Card(Mutex<File>);

impl Card {
    /// Opens the line and ends what has been left on it.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        Command::new("stty").arg("-F").arg(path).args(["raw", "-echo"]).status()?;
        let tty = OpenOptions::new().read(true).write(true).open(path)?;
        let card = Self(Mutex::new(tty));
        card.heal()?;
        Ok(card)
    }

    /// Asks for something, which has been done when this returns.
    pub fn ask(&self, request: &str) -> std::io::Result<()> {
        let mut tty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tty.write_all(format!("{request}\n").as_bytes())?;
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            tty.read_exact(&mut byte)?;
            match byte[0] {
                b'\n' if line == b"ok" => return Ok(()),
                b'\n' if line.starts_with(b"error") => {
                    let text = String::from_utf8_lossy(&line).into_owned();
                    return Err(std::io::Error::other(format!("{request:.60}: {text}")));
                }
                b'\n' => line.clear(),
                other => line.push(other),
            }
        }
    }

    /// Nothing fails any more, and what is sent comes back, as on the soft device.
    pub fn heal(&self) -> std::io::Result<()> {
        ["heal", "limit counters 0xffffffff", "loop on"].iter().try_for_each(|request| self.ask(request))
    }

    /// A frame comes in from the wire.
    pub fn inject(&self, frame: &[u8]) {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask(&format!("send {digits}")).expect("the control line answers");
    }
}
