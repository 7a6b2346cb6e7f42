//! The control line: a socket by which tests read and change the state of a device.
//!
//! One request per line, with words separated by spaces. The answer is any number of lines followed by `ok`, or `error` with the reason.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use crate::server::{Shared, lock};

/// A device's answer to a request: lines, or the reason of the refusal.
pub type Answer<D> = fn(&mut D, &[&str]) -> Result<Vec<String>, String>;

/// Opens the socket, replacing one that an earlier run has left.
///
/// # Errors
/// If it cannot be created.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// Serves every client in a separate thread.
pub fn serve<D: Send + 'static>(listener: &UnixListener, device: &Shared<D>, answer: Answer<D>) {
    for stream in listener.incoming().flatten() {
        let device = Shared::clone(device);
        // A client that disconnects during an answer is ignored.
        thread::spawn(move || drop(converse(&stream, &device, answer)));
    }
}

fn converse<D>(stream: &UnixStream, device: &Shared<D>, answer: Answer<D>) -> io::Result<()> {
    let mut out = stream;
    for line in BufReader::new(stream).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let words: Vec<_> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let answer = answer(&mut lock(device), &words);
        let text = match answer {
            Ok(lines) => lines.into_iter().map(|line| line + "\n").collect::<String>() + "ok\n",
            Err(reason) => format!("error {reason}\n"),
        };
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// A decimal number, or a hexadecimal one after `0x`.
pub fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None => word.parse().ok(),
    }
}
