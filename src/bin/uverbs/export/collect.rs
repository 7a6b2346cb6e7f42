//! One pass over everything that is exported.
//!
//! Each device is read by its own thread. A device whose firmware does not answer is reported as down and does not delay the
//! others.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::device::KERNEL_NAME;
use super::exposition::{Families, Metric};
use crate::failure;

const UP: Metric<'static> = Metric::gauge("uverbs_up", "Whether the device could be read.");
const TOOK: Metric<'static> =
    Metric::gauge("uverbs_read_seconds", "How long reading the device took.").in_unit("seconds");
const DISCOVERED: Metric<'static> =
    Metric::gauge("uverbs_discovery_successful", "Whether the machine could be asked for its devices.");

/// A source of values, which is read again and again.
pub(super) trait Source: Send {
    /// # Errors
    /// Why the source cannot be read. It is opened again before the next read.
    fn read(&mut self) -> Result<Families, String>;
}

/// A source that exists now, and how to open it.
pub(super) struct Found {
    /// The value of the label `device`; `None` if the source is not a device.
    pub(super) device: Option<String>,
    /// The name of the source in messages.
    pub(super) name: String,
    /// Distinguishes this source from an earlier one with the same name.
    pub(super) identity: String,
    /// The values that are exported if the source cannot be read.
    pub(super) absent: Absent,
    pub(super) open: Box<dyn FnOnce() -> Result<Box<dyn Source>, String> + Send>,
}

/// The values that are exported in place of a source.
pub(super) type Absent = Box<dyn Fn() -> Families + Send>;

/// The values that are exported for a device that cannot be read.
pub(super) fn down(device: &str) -> Families {
    let mut families = Families::default();
    families.add(&UP, &[("device", device)], false);
    families
}

/// Finds the sources.
pub(super) trait Machine: Send {
    /// # Errors
    /// Why the search failed. The sources that were found before are still read.
    fn find(&mut self) -> Result<Vec<Found>, String>;
}

/// A thread that repeats one task on request.
struct Worker<T> {
    ask: SyncSender<()>,
    answers: Receiver<T>,
    /// When the current request was made, if there is no answer yet.
    asked: Option<Instant>,
    /// Whether the thread is still busy with a request of an earlier pass.
    is_late: bool,
}

impl<T: Send + 'static> Worker<T> {
    /// `begin` is called in the new thread.
    fn start<F: FnMut() -> T>(begin: impl FnOnce() -> F + Send + 'static) -> Result<Self, String> {
        let (ask, asked) = mpsc::sync_channel(1);
        let (answer, answers) = mpsc::sync_channel(1);
        let run = move || {
            let mut work = begin();
            while asked.recv().is_ok() {
                if answer.send(work()).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(run)
            .map_err(|error| format!("no thread for a reader: {error}"))?;
        Ok(Self { ask, answers, asked: None, is_late: false })
    }

    /// Makes a request, unless the thread is still busy with an earlier one.
    fn ask(&mut self) {
        if self.asked.is_some() {
            // An answer that arrives late is outdated.
            match self.answers.try_recv() {
                Ok(_) => self.asked = None,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {
                    self.is_late = true;
                    return;
                }
            }
        }
        self.ask_now();
    }

    fn ask_now(&mut self) {
        self.is_late = false;
        self.asked = self.ask.try_send(()).is_ok().then(Instant::now);
    }

    /// The answer, if it arrives within `patience` after the request, and the time that it took. A thread that is stuck is not
    /// waited for a second time.
    fn answer(&mut self, patience: Duration) -> (Result<T, String>, Duration) {
        let ended = || Err("its reader has ended".to_owned());
        loop {
            let Some(asked) = self.asked else { return (ended(), Duration::ZERO) };
            let answer = match self.answers.recv_timeout(patience.saturating_sub(asked.elapsed())) {
                Err(RecvTimeoutError::Timeout) => {
                    return (Err("it does not answer".to_owned()), asked.elapsed());
                }
                Err(RecvTimeoutError::Disconnected) => ended(),
                // The answer to a request of an earlier pass is outdated.
                Ok(_) if self.is_late => {
                    self.ask_now();
                    continue;
                }
                Ok(answer) => Ok(answer),
            };
            self.asked = None;
            return (answer, asked.elapsed());
        }
    }

    fn is_busy(&self) -> bool {
        self.asked.is_some()
    }
}

/// A thread that reads one source, and what is known about the source.
struct Reader {
    device: Option<String>,
    name: String,
    identity: String,
    absent: Absent,
    worker: Worker<Result<Families, String>>,
}

impl Reader {
    fn start(found: Found) -> Result<Self, String> {
        let Found { device, name, identity, absent, open } = found;
        let begin = move || {
            let mut source = open();
            move || source.as_mut().map_err(|why| why.clone()).and_then(|source| source.read())
        };
        Ok(Self { device, name, identity, absent, worker: Worker::start(begin)? })
    }
}

/// All sources, and their threads.
pub(super) struct Collector {
    /// The thread that searches for sources. The kernel may query the firmware for this too.
    finder: Result<Worker<Result<Vec<Found>, String>>, String>,
    /// Maximum time for the search, and for each source.
    patience: Duration,
    readers: Vec<Reader>,
    /// The errors that were already reported, so that each is printed once.
    said: Vec<(String, String)>,
}

impl Collector {
    pub(super) fn new(mut machine: Box<dyn Machine>, patience: Duration) -> Self {
        let finder = Worker::start(move || move || machine.find());
        Self { finder, patience, readers: Vec::new(), said: Vec::new() }
    }

    /// The sources that exist now.
    fn find(&mut self) -> Result<Vec<Found>, String> {
        let finder = self.finder.as_mut().map_err(|why| why.clone())?;
        finder.ask();
        finder.answer(self.patience).0?
    }

    /// Reads all sources once.
    pub(super) fn read(&mut self) -> Families {
        let mut families = Families::default();
        let mut wrong = Vec::new();
        let found = self.find();
        families.add(&DISCOVERED, &[], found.is_ok());
        match found {
            Ok(found) => {
                for (name, absent, why) in self.keep(found) {
                    families.merge(absent);
                    wrong.push((name, why));
                }
            }
            Err(why) => wrong.push(("discovery".to_owned(), why)),
        }
        self.readers.iter_mut().for_each(|reader| reader.worker.ask());
        self.readers.retain_mut(|reader| {
            let (read, took) = reader.worker.answer(self.patience);
            let device = reader.device.as_deref();
            if let Some(device) = device {
                families.add(&TOOK, &[("device", device)], took.as_secs_f64());
            }
            match read.and_then(|read| read) {
                Ok(read) => {
                    families.merge(read);
                    if let Some(device) = device {
                        families.add(&UP, &[("device", device)], true);
                    }
                    true
                }
                Err(why) => {
                    families.merge((reader.absent)());
                    wrong.push((reader.name.clone(), why));
                    // A source that answered with an error is opened again. One that did not answer would not answer then either.
                    reader.worker.is_busy()
                }
            }
        });
        families.unite(&KERNEL_NAME);
        for (name, why) in wrong.iter().filter(|wrong| !self.said.contains(wrong)) {
            failure::remark(format_args!("{}: {why}", name.escape_debug()));
        }
        self.said = wrong;
        families
    }

    /// Ends the readers of sources that no longer exist, and starts readers for new ones. Returns those that could not be
    /// started.
    fn keep(&mut self, found: Vec<Found>) -> Vec<(String, Families, String)> {
        self.readers.retain(|reader| found.iter().any(|found| found.identity == reader.identity));
        let mut refused = Vec::new();
        for found in found {
            if self.readers.iter().any(|reader| reader.identity == found.identity) {
                continue;
            }
            let (name, absent) = (found.name.clone(), (found.absent)());
            match Reader::start(found) {
                Ok(reader) => self.readers.push(reader),
                Err(why) => refused.push((name, absent, why)),
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use super::super::exposition::Form;
    use super::*;

    const VALUE: Metric<'static> = Metric::gauge("value", "A value.");

    /// What each device does, by name: it returns a value or an error, or it hangs until it is told otherwise.
    type Doing = Vec<(&'static str, Result<u64, &'static str>)>;

    #[derive(Clone, Default)]
    struct Script(Arc<(Mutex<Doing>, Condvar)>);

    impl Script {
        fn now(&self) -> Doing {
            self.0.0.lock().expect("no panic").clone()
        }

        fn set(&self, there: &[(&'static str, Result<u64, &'static str>)]) {
            *self.0.0.lock().expect("no panic") = there.to_vec();
            self.0.1.notify_all();
        }

        fn wait_while(&self, is: impl Fn(&Doing) -> bool) {
            drop(
                self.0.1.wait_while(self.0.0.lock().expect("no panic"), |there| is(there)).expect("no panic"),
            );
        }
    }

    /// Longer than any operation that is not stuck takes, on a busy machine too.
    const PATIENCE: Duration = Duration::from_secs(3);

    struct Fake(Script);

    struct Device(Script, &'static str);

    const SILENT: Result<u64, &str> = Err("silent");

    impl Machine for Fake {
        fn find(&mut self) -> Result<Vec<Found>, String> {
            let there = self.0.now();
            if there.iter().any(|(name, _)| *name == "lost") {
                return Err("no sysfs".to_owned());
            }
            self.0.wait_while(|there| there.iter().any(|(name, _)| *name == "stuck"));
            let found = there.into_iter().map(|(name, _)| {
                let script = self.0.clone();
                Found {
                    device: Some(name.to_owned()),
                    name: name.to_owned(),
                    identity: name.to_owned(),
                    absent: Box::new(move || down(name)),
                    open: Box::new(move || Ok(Box::new(Device(script, name)) as _)),
                }
            });
            Ok(found.collect())
        }
    }

    impl Source for Device {
        fn read(&mut self) -> Result<Families, String> {
            let found = self.0.now().into_iter().find(|(name, _)| *name == self.1);
            let mut families = Families::default();
            match found.ok_or("gone")?.1 {
                SILENT => self.0.wait_while(|there| there.contains(&(self.1, SILENT))),
                value => families.add(&VALUE, &[("device", self.1)], value.map_err(str::to_owned)?),
            }
            Ok(families)
        }
    }

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|there| there == line)
    }

    #[test]
    fn devices_come_go_fail_and_hang() {
        let script = Script::default();
        let mut collector = Collector::new(Box::new(Fake(script.clone())), PATIENCE);
        let mut read = |there: &[(&'static str, Result<u64, &'static str>)]| {
            script.set(there);
            collector.read().text(Form::Text)
        };
        let text = read(&[]);
        assert!(has(&text, "uverbs_discovery_successful 1") && !text.contains("uverbs_up"), "{text}");
        let text = read(&[("a", Ok(1)), ("b", Ok(2))]);
        assert!(has(&text, "value{device=\"a\"} 1") && has(&text, "value{device=\"b\"} 2"), "{text}");
        let text = read(&[("a", Err("broken")), ("b", Ok(3))]);
        assert!(has(&text, "uverbs_up{device=\"a\"} 0") && !text.contains("value{device=\"a\"}"), "{text}");
        assert!(has(&text, "uverbs_up{device=\"b\"} 1") && has(&text, "value{device=\"b\"} 3"), "{text}");
        // This device is back, and the other one has been removed.
        let text = read(&[("a", Ok(4))]);
        assert!(has(&text, "uverbs_up{device=\"a\"} 1") && has(&text, "value{device=\"a\"} 4"), "{text}");
        assert!(!text.contains("\"b\""), "{text}");
        // A device that does not answer delays nothing, in later passes either.
        for is_known in [false, true] {
            let begun = Instant::now();
            let text = read(&[("a", SILENT), ("b", Ok(5))]);
            assert!(has(&text, "uverbs_up{device=\"a\"} 0") && has(&text, "value{device=\"b\"} 5"), "{text}");
            assert!(!is_known || begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        }
        // If the search hangs or fails, the devices that were found before are read.
        let text = read(&[("b", Ok(6)), ("stuck", Ok(0))]);
        assert!(has(&text, "uverbs_discovery_successful 0") && has(&text, "value{device=\"b\"} 6"), "{text}");
        let text = read(&[("b", Ok(6)), ("lost", Ok(0))]);
        assert!(has(&text, "uverbs_discovery_successful 0") && has(&text, "value{device=\"b\"} 6"), "{text}");
    }

    #[test]
    fn nobody_waits_twice_for_one_that_is_stuck() {
        let (go, gone) = mpsc::channel::<u32>();
        let mut worker = Worker::start(move || move || gone.recv().ok()).expect("a thread");
        worker.ask();
        let since = worker.asked;
        assert!(since.is_some() && worker.answer(Duration::ZERO).0.is_err());
        // No second request is made, and the time counts from the first one.
        worker.ask();
        assert_eq!(worker.asked, since);
        // The answer is to the first request, so another request is made.
        go.send(1).expect("it waits");
        go.send(2).expect("it waits");
        assert_eq!(worker.answer(Duration::from_secs(60)).0, Ok(Some(2)));
        assert!(!worker.is_busy());
        drop(go);
        worker.ask();
        assert_eq!(worker.answer(Duration::from_secs(60)).0, Ok(None));
    }
}
