//! Waiting calls that a signal ends, and the end of a connection.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::ErrorKind;
use uverbs::cm::{Closed, Connection, Waiting};

use crate::Outcome;
use crate::failure::Failure;
use crate::stop::Stop;

/// Maximum time between two checks for signals.
pub(super) const NAP: Duration = Duration::from_millis(20);

/// The result of a call that cannot be made again. `None` if a signal comes first: the call's thread then ends with the process.
pub(super) fn once<T, E>(
    call: Waiting<'static, T, E>,
    timeout: Duration,
    stop: &Stop,
) -> Outcome<Option<Result<T, E>>>
where
    T: Send + 'static,
    E: From<uverbs::Error> + Send + 'static,
{
    let (tell, told) = channel();
    let failed = |error| Failure::Other(format!("no thread to wait in: {error}"));
    // When this side has been stopped, nobody receives the result.
    let wait = move || drop(tell.send(call.within(timeout)));
    thread::Builder::new().spawn(wait).map_err(failed)?;
    while !stop.is_set() {
        match told.recv_timeout(NAP) {
            Ok(result) => return Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Other("the thread that waited has panicked".to_owned()));
            }
        }
    }
    Ok(None)
}

/// The result of a call that can be made again, in short waits. `None` after the time, or if a signal comes first.
pub(super) fn again<T>(
    timeout: Duration,
    stop: &Stop,
    mut call: impl FnMut(Duration) -> uverbs::Result<T>,
) -> Outcome<Option<T>> {
    let start = Instant::now();
    while !stop.is_set() && start.elapsed() < timeout {
        match call(NAP) {
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            result => return Ok(Some(result?)),
        }
    }
    Ok(None)
}

/// Waits for the end of the connection.
pub(super) fn closed(connection: &Connection, timeout: Duration, stop: &Stop) -> Outcome<Option<Closed>> {
    again(timeout, stop, |nap| connection.closed().within(nap))
}

/// Ends the connection. What was measured is not worth less if the other side does not answer.
pub(super) fn disconnect(connection: &mut Connection, timeout: Duration, stop: &Stop) -> Outcome {
    again(timeout, stop, |nap| connection.disconnect().within(nap)).map(drop)
}
