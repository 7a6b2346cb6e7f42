//! The control line: a socket on which tests send packets, make commands fail, and look inside.
//!
//! One request a line; the answer is any number of lines and then `ok`, or `error` with the reason. See README.md.

mod request;
mod show;

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

pub(crate) use self::request::number;
use crate::server::{Shared, lock};

/// Opens the socket, in place of one that an earlier run has left.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// Serves everybody who connects, each in a thread.
pub(crate) fn serve(listener: &UnixListener, device: &Shared) {
    for stream in listener.incoming().flatten() {
        let device = Shared::clone(device);
        // A client that goes away in the middle of an answer is its own concern.
        thread::spawn(move || drop(converse(&stream, &device)));
    }
}

fn converse(stream: &UnixStream, device: &Shared) -> io::Result<()> {
    let mut out = stream;
    for line in BufReader::new(stream).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        let words: Vec<_> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let answer = request::answer(&mut lock(device), &words);
        let text = match answer {
            Ok(lines) => lines.into_iter().map(|line| line + "\n").collect::<String>() + "ok\n",
            Err(reason) => format!("error {reason}\n"),
        };
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}
