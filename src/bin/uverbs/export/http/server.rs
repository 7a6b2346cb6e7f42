//! Connections: one thread for each, with a limit on their number and on their duration.
//!
//! If the limit is reached, the oldest connection is closed to make room for a new one. A scrape takes milliseconds, so the
//! oldest connection is the slowest, and clients that hold connections open without a request cannot keep others out. Each
//! connection serves one request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use super::request::{self, MAX_HEAD, Page, Refusal, Request, TIMEOUT};

/// The limits of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum number of connections at a time.
    pub(crate) connections: usize,
    /// Maximum time for a request, and again for its response.
    pub(crate) time: Duration,
}

/// How many bytes behind the first request are read, so that the response arrives (RFC 9112, 9.6).
const LINGER: usize = 64 * 1024;
const LINGER_TIME: Duration = Duration::from_millis(500);

/// How long to wait for the threads of closed connections to end before a new connection is refused.
const ROOM_TIME: Duration = Duration::from_secs(2);

/// Stack size of a connection's thread.
const STACK: usize = 256 * 1024;

/// The content of a page, and its type.
pub(crate) struct Content {
    pub(crate) kind: &'static str,
    pub(crate) body: Body,
}

/// Bytes that belong to the connection, or that connections share.
pub(crate) type Body = Box<dyn AsRef<[u8]>>;

/// Creates the content of a page.
pub(crate) type Pages = dyn Fn(Page) -> Content + Send + Sync;

/// The state that all connections share.
pub(crate) struct Server {
    limits: Limits,
    pages: Box<Pages>,
    open: Mutex<Vec<Arc<TcpStream>>>,
    /// Number of threads that have not ended. The threads of closed connections may still wait for a device to be read.
    threads: AtomicUsize,
}

impl Server {
    pub(crate) fn new(limits: Limits, pages: Box<Pages>) -> Arc<Self> {
        Arc::new(Self { limits, pages, open: Mutex::default(), threads: AtomicUsize::new(0) })
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<TcpStream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection and serves it in a new thread.
    ///
    /// # Errors
    /// The errors of accepting. A connection that was closed meanwhile is not an error; too many open files is.
    pub(crate) fn accept(self: &Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) if is_harmless(&error) => return Ok(()),
            Err(error) => {
                // If too few files are allowed, the oldest connection is closed.
                let is_short =
                    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE));
                let mut open = self.open();
                if is_short && !open.is_empty() {
                    let _ = open.remove(0).shutdown(Shutdown::Both);
                }
                return Err(error);
            }
        };
        if !self.has_room() {
            return Ok(());
        }
        // The connection blocks, although its listener does not.
        stream.set_nonblocking(false)?;
        {
            let mut open = self.open();
            if open.len() >= self.limits.connections {
                // Its thread then reads the end of the stream.
                let _ = open.remove(0).shutdown(Shutdown::Both);
            }
            open.push(stream.clone());
        }
        let (server, ours) = (self.clone(), stream.clone());
        let run = move || {
            let _forget = Forget(&server, &ours);
            // The client sees the error; it is not reported elsewhere.
            let _ = server.serve(&ours);
        };
        self.threads.fetch_add(1, Ordering::Relaxed);
        let spawned = thread::Builder::new().name("scrape".to_owned()).stack_size(STACK).spawn(run);
        spawned.map(drop).inspect_err(|_| self.forget(&stream))
    }

    /// Whether one more thread may be started. Threads of closed connections take a moment to end.
    fn has_room(&self) -> bool {
        let begun = Instant::now();
        // Only this thread increases the number.
        while self.threads.load(Ordering::Relaxed) >= 2 * self.limits.connections {
            if begun.elapsed() > ROOM_TIME {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn forget(&self, stream: &Arc<TcpStream>) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
        self.open().retain(|open| !Arc::ptr_eq(open, stream));
    }

    /// Serves one request.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(request) = self.request(stream)? else { return Ok(()) };
        let (status, content) = match request.page {
            Ok(page) => (Refusal(200, "OK"), (self.pages)(page)),
            Err(refusal) => (refusal, refused(refusal)),
        };
        let body = content.body.as_ref().as_ref();
        let mut head = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nDate: {}\r\n",
            status.0,
            status.1,
            content.kind,
            body.len(),
            date(SystemTime::now())
        );
        match status {
            Refusal(200, _) => head.push_str("Vary: Accept\r\n"),
            request::METHOD_NOT_ALLOWED => head.push_str("Allow: GET, HEAD\r\n"),
            _ => {}
        }
        head.push_str("\r\n");
        let deadline = Instant::now() + self.limits.time;
        write_all(stream, head.as_bytes(), deadline)?;
        if !request.head_only {
            write_all(stream, body, deadline)?;
        }
        stream.shutdown(Shutdown::Write)?;
        linger(stream);
        Ok(())
    }

    /// Reads a head; `None` if the client sends nothing.
    fn request(&self, mut stream: &TcpStream) -> io::Result<Option<Request>> {
        let deadline = Instant::now() + self.limits.time;
        let (mut head, mut len) = (vec![0; MAX_HEAD], 0);
        loop {
            let Some(room) = head.get_mut(len..).filter(|room| !room.is_empty()) else {
                return Ok(request::parse(&head));
            };
            stream.set_read_timeout(Some(left(deadline)))?;
            let came = match stream.read(room) {
                Ok(0) => return Ok(None),
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_timeout(&error) => {
                    return Ok(Some(Request { page: Err(TIMEOUT), head_only: false }));
                }
                Err(error) => return Err(error),
            };
            let is_first = len == 0;
            // The head is parsed only when a line has ended, so that input in single bytes is not parsed again for each byte.
            let is_due = is_first || room[..came].contains(&b'\n');
            len += came;
            if !is_due && len < MAX_HEAD {
                continue;
            }
            if let Some(request) = request::parse(&head[..len]) {
                return Ok(Some(request));
            }
        }
    }
}

/// Removes a connection from the list when its thread ends, also by a panic.
struct Forget<'a>(&'a Server, &'a Arc<TcpStream>);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

fn refused(refusal: Refusal) -> Content {
    let Refusal(code, words) = refusal;
    let body = Box::new(format!("{code} {words}\n"));
    Content { kind: "text/plain; charset=utf-8", body }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
fn date(time: SystemTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86400, seconds % 86400);
    // The calculation uses years that begin in March, in eras of 400 years, so that the leap day is the last day of a year.
    let from_march = days + 719_468;
    let (era, day_of_era) = (from_march / 146_097, from_march % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 2, 0) } else { (month - 10, 1) };
    let year = era * 400 + year_of_era + next_year;
    let name = |names: &[&'static str], at: u64| names.get(at as usize).copied().unwrap_or_default();
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        name(&DAYS, days % 7),
        name(&MONTHS, month),
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// The time that is left. It is never zero, which a socket would take for no limit.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Errors that do not concern the listener (accept(2)).
fn is_harmless(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
}

/// Writes everything before the deadline, however slowly the client reads.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left(deadline)))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads for a moment longer, until the client has closed the connection. If unread data remains when a socket is closed, such as
/// a second request that was sent with the first, the client loses the response.
fn linger(mut stream: &TcpStream) {
    let deadline = Instant::now() + LINGER_TIME;
    let (mut sink, mut rest) = ([0; 4096], LINGER);
    while rest > 0 && Instant::now() < deadline && stream.set_read_timeout(Some(left(deadline))).is_ok() {
        match stream.read(&mut sink) {
            Ok(0) | Err(_) => break,
            Ok(len) => rest = rest.saturating_sub(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(2);

    /// A separate server, which never ends.
    fn server(limits: Limits) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let pages = |page| {
            let body = match page {
                Page::Healthy => String::new(),
                Page::Root => "x".repeat(16 << 20),
                Page::Metrics { open_metrics } => format!("{open_metrics}\n"),
            };
            Content { kind: "text/plain", body: Box::new(body) }
        };
        let server = Server::new(limits, Box::new(pages));
        thread::spawn(move || {
            loop {
                server.accept(&listener).expect("a connection")
            }
        });
        address
    }

    fn said(address: std::net::SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(request).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    const GOOD: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

    #[test]
    fn a_request_has_one_answer() {
        let address = server(Limits { connections: 4, time: TIME });
        let answer = said(address, GOOD);
        let (head, date) = answer.split_once("Date: ").expect("a date");
        assert_eq!(
            head,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\nConnection: close\r\n"
        );
        assert!(date.ends_with(" GMT\r\nVary: Accept\r\n\r\nfalse\n"), "{date}");
        let answer = said(address, b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(answer.contains("Content-Length: 16777216\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
        let answer = said(address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.split_once("\r\n\r\n").expect("a body").1.len(), 16 << 20);
        let answer = said(address, b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nAllow: GET, HEAD\r\n"),
            "{answer}"
        );
        assert!(answer.ends_with("\r\n\r\n405 Method Not Allowed\n"), "{answer}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), wanted);
        }
    }

    #[test]
    fn what_is_too_large_is_refused_and_the_refusal_arrives() {
        let address = server(Limits { connections: 4, time: TIME });
        let head = [b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ", vec![b'x'; 60_000].as_slice()].concat();
        assert!(said(address, &head).starts_with("HTTP/1.1 431 "));
        let body =
            [b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", vec![b'x'; 60_000].as_slice()]
                .concat();
        assert!(said(address, &body).starts_with("HTTP/1.1 413 "));
        assert!(said(address, b"\x16\x03\x01\x02\x00\x01").starts_with("HTTP/1.1 400 "), "TLS");
    }

    #[test]
    fn what_comes_behind_a_request_does_not_cost_its_answer() {
        let address = server(Limits { connections: 4, time: TIME });
        for count in [2, 1000] {
            let answer = said(address, &GOOD.repeat(count));
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nfalse\n"), "{answer}");
        }
        // A second request, which arrives after the response to the first.
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(GOOD).expect("it is taken");
        let mut first = [0; 1];
        stream.read_exact(&mut first).expect("an answer");
        stream.write_all(GOOD).expect("it is taken");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("the rest of the answer");
        assert!(rest.ends_with("\r\n\r\nfalse\n"), "{rest}");
    }

    #[test]
    fn time_is_limited() {
        let address = server(Limits { connections: 4, time: Duration::from_millis(300) });
        assert!(said(address, b"GET /metrics HT").starts_with("HTTP/1.1 408 "));
        // A client that does not read its response.
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
        thread::sleep(Duration::from_millis(1500));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 16 << 20, "{}", answer.len());
        assert!(said(address, GOOD).starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn slow_ones_keep_nobody_out() {
        let address = server(Limits { connections: 16, time: Duration::from_secs(60) });
        let slow: Vec<_> = (0..100)
            .map(|number| {
                let mut stream = TcpStream::connect(address).expect("a connection");
                // Half of the clients send something, but never a complete request.
                if number % 2 == 0 {
                    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHo");
                }
                stream
            })
            .collect();
        let begun = Instant::now();
        for _ in 0..20 {
            assert!(said(address, GOOD).ends_with("false\n"));
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        drop(slow);
    }
}
