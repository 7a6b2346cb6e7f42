//! The objects of a program, and the results of its steps.

use std::fmt;
use std::time::{Duration, Instant};

use uverbs::soft::SoftDevice;
use uverbs::{
    AddressHandle, CompletionChannel, CompletionCounter, CompletionQueue, Context, Counters, Device, Error,
    ErrorKind, Flow, IndirectionTable, Mapping, Membership, MemoryRegion, MemoryWindow, ProtectionDomain,
    QueuePair, RawPacket, Rc, Reader, RssQueuePair, Sampler, SharedReceiveQueue, Snapshot, Uc, Ud, WaitSet,
    WorkQueue, mlx5,
};

use crate::card::Control;
use crate::connections::Connections;
use crate::language::{PLACES, Step};
use crate::starved::Scarce;

/// The device on which a program runs.
#[derive(Clone)]
pub struct Machine {
    pub device: Device,
    /// The soft device, if it is one.
    pub soft: Option<SoftDevice>,
    /// The control line of a virtual device.
    pub card: Option<&'static Control>,
    /// The soft device is compared with a device on which the crate has no messages.
    pub lacks_messages: bool,
    /// Frames can arrive from the wire.
    pub has_wire: bool,
    /// The local identifier of the port, on InfiniBand.
    pub lid: u16,
    /// Attributes of queue pairs are compared only as far as mlx5 returns them.
    pub tells_as_mlx5: bool,
}

impl Machine {
    /// What the crate refuses before any command on a device for raw packets; the soft device beside it does the same.
    pub fn has_messages(&self) -> Result<(), Miss> {
        if self.lacks_messages { Err(Miss::Lacking) } else { Ok(()) }
    }

    /// Removes the device, if possible: a soft one directly, another by the command in UVERBS_TEST_REMOVE.
    pub fn unplug(&self) -> Result<(), Miss> {
        match &self.soft {
            Some(soft) => soft.unplug(),
            None => run("UVERBS_TEST_REMOVE").ok_or(Miss::Absent)?,
        }
        Ok(())
    }

    /// Brings the device back by the command in UVERBS_TEST_RESTORE, and searches for it again.
    pub fn restore(&mut self) {
        if self.soft.is_some() || run("UVERBS_TEST_RESTORE").is_none() {
            return;
        }
        let devices = uverbs::devices().expect("devices");
        self.device = devices.named(self.device.name()).expect("the device has its name").clone();
    }

    /// A frame arrives from the wire, if possible.
    pub fn inject(&self, frame: &[u8]) -> Result<(), Miss> {
        match (&self.soft, self.card) {
            _ if !self.has_wire => return Err(Miss::Absent),
            (Some(soft), _) => soft.inject(frame),
            (None, Some(card)) => card.send(frame),
            (None, None) => return Err(Miss::Absent),
        }
        Ok(())
    }
}

/// Runs the command in an environment variable, if it is set; it must succeed.
fn run(variable: &str) -> Option<()> {
    let command = std::env::var(variable).ok()?;
    let status = std::process::Command::new("sh").args(["-c", &command]).status().expect("a shell");
    assert!(status.success(), "{command}: {status}");
    Some(())
}

/// Why a step did not succeed.
pub enum Miss {
    /// An object does not exist, or its number is in use.
    Absent,
    /// It was refused.
    Refused(Error),
    /// The crate does not support it for this driver.
    Lacking,
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// The visible result of a step, as text.
pub type Played = Result<String, Miss>;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its objects do not exist.
    Absent,
    /// It succeeded; the visible result.
    Done(String),
    /// It was refused.
    Refused(ErrorKind, Option<i32>),
    /// It panicked.
    Panicked(String),
}

impl Outcome {
    /// The number at its beginning.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Done(text) => text.split_whitespace().next()?.parse().ok(),
            _ => None,
        }
    }
}

impl From<Played> for Outcome {
    fn from(played: Played) -> Self {
        match played {
            Ok(text) => Self::Done(text),
            Err(Miss::Absent) => Self::Absent,
            Err(Miss::Lacking) => Self::Refused(ErrorKind::Unsupported, Some(nix::libc::EOPNOTSUPP)),
            Err(Miss::Refused(error)) => Self::Refused(error.kind(), error.errno()),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("-"),
            Self::Done(text) if text.is_empty() => f.write_str("ok"),
            Self::Done(text) => write!(f, "ok {text}"),
            Self::Refused(kind, Some(errno)) => {
                write!(f, "{kind:?} {:?}", nix::errno::Errno::from_raw(*errno))
            }
            Self::Refused(kind, None) => write!(f, "{kind:?}"),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

/// The objects of a kind.
#[derive(Clone)]
pub struct Places<T>([Option<T>; PLACES]);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| None))
    }
}

impl<T> Places<T> {
    /// Checks that no object has this number.
    pub fn free(&self, at: u64) -> Result<(), Miss> {
        match self.0.get(at as usize) {
            Some(None) => Ok(()),
            _ => Err(Miss::Absent),
        }
    }

    pub fn get(&self, at: u64) -> Result<&T, Miss> {
        self.0.get(at as usize).and_then(Option::as_ref).ok_or(Miss::Absent)
    }

    pub fn get_mut(&mut self, at: u64) -> Result<&mut T, Miss> {
        self.0.get_mut(at as usize).and_then(Option::as_mut).ok_or(Miss::Absent)
    }

    pub fn take(&mut self, at: u64) -> Result<T, Miss> {
        self.0.get_mut(at as usize).and_then(Option::take).ok_or(Miss::Absent)
    }

    /// Keeps an object under a free number.
    pub fn put(&mut self, at: u64, object: T) {
        if let Some(place) = self.0.get_mut(at as usize) {
            *place = Some(object);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(at, object)| Some((at, object.as_ref()?)))
    }

    /// Destroys an object, or keeps it if that fails.
    pub fn destroy(&mut self, at: u64, how: impl FnOnce(T) -> Result<(), (T, Error)>) -> Played {
        match how(self.take(at)?) {
            Ok(()) => Ok(String::new()),
            Err((object, error)) => {
                self.put(at, object);
                Err(error.into())
            }
        }
    }
}

/// A queue pair of any type.
pub enum Pair {
    Rc(QueuePair<Rc>),
    Uc(QueuePair<Uc>),
    Ud(QueuePair<Ud>),
    Raw(QueuePair<RawPacket>),
}

/// The same with a queue pair of any type.
#[macro_export]
macro_rules! each_pair {
    ($pair:expr, $qp:ident => $what:expr) => {
        match $pair {
            $crate::world::Pair::Rc($qp) => $what,
            $crate::world::Pair::Uc($qp) => $what,
            $crate::world::Pair::Ud($qp) => $what,
            $crate::world::Pair::Raw($qp) => $what,
        }
    };
}

impl Pair {
    pub fn number(&self) -> u32 {
        each_pair!(self, qp => qp.number())
    }
}

/// The objects of a program.
pub struct World {
    pub connections: Option<Box<Connections>>,
    pub machine: Machine,
    pub contexts: Places<Context>,
    pub domains: Places<ProtectionDomain>,
    pub regions: Places<MemoryRegion>,
    pub windows: Places<MemoryWindow>,
    pub handles: Places<AddressHandle>,
    pub channels: Places<CompletionChannel>,
    pub completions: Places<CompletionQueue>,
    pub shared: Places<SharedReceiveQueue>,
    pub pairs: Places<Pair>,
    pub memberships: Places<Membership>,
    pub counters: Places<Counters>,
    pub flows: Places<Flow>,
    pub readers: Places<Reader>,
    pub snapshots: Places<Snapshot>,
    pub samplers: Places<Sampler>,
    pub counting: Places<CompletionCounter>,
    pub work_queues: Places<WorkQueue>,
    pub tables: Places<IndirectionTable>,
    pub rss: Places<RssQueuePair>,
    pub pools: Places<mlx5::CounterPool>,
    pub pool_counters: Places<mlx5::PoolCounter>,
    pub pool_flows: Places<mlx5::PoolFlow>,
    /// Memory of the program.
    pub memory: Mapping,
    pub wait_set: WaitSet,
    /// In a child of fork, which opens nothing, and does not write to the memory that it shares with its parent.
    pub is_child: bool,
    /// Addresses at which datagrams may begin: their header contains addresses that differ between devices.
    pub headers: Vec<u64>,
    /// Numbers of all queue pairs so far, with their numbers in the program.
    pub numbers: Vec<(u32, usize)>,
    /// The number of events in this step in the first run, if there was one.
    pub expected: Option<usize>,
    /// The time that a device of the kernel gets.
    pub patience: Duration,
    /// The process can allocate little memory.
    pub scarce: Option<Scarce>,
}

/// Size of a program's own memory.
pub const MEMORY: usize = 16384;

impl World {
    pub fn new(machine: &Machine, patience: Duration) -> Self {
        Self {
            connections: None,
            machine: machine.clone(),
            contexts: Places::default(),
            domains: Places::default(),
            regions: Places::default(),
            windows: Places::default(),
            handles: Places::default(),
            channels: Places::default(),
            completions: Places::default(),
            shared: Places::default(),
            pairs: Places::default(),
            memberships: Places::default(),
            counters: Places::default(),
            flows: Places::default(),
            readers: Places::default(),
            snapshots: Places::default(),
            samplers: Places::default(),
            counting: Places::default(),
            work_queues: Places::default(),
            tables: Places::default(),
            rss: Places::default(),
            pools: Places::default(),
            pool_counters: Places::default(),
            pool_flows: Places::default(),
            memory: crate::memory::mapping(MEMORY),
            wait_set: WaitSet::new(),
            is_child: false,
            headers: Vec::new(),
            numbers: Vec::new(),
            expected: None,
            patience,
            scarce: None,
        }
    }

    /// A world for another thread: it shares the objects that can be shared, with the same numbers, and may create the others itself.
    pub fn beside(&self) -> Self {
        Self {
            contexts: self.contexts.clone(),
            domains: self.domains.clone(),
            regions: self.regions.clone(),
            handles: self.handles.clone(),
            channels: self.channels.clone(),
            counters: self.counters.clone(),
            snapshots: self.snapshots.clone(),
            pools: self.pools.clone(),
            pool_counters: self.pool_counters.clone(),
            wait_set: self.wait_set.clone(),
            ..Self::new(&self.machine, self.patience)
        }
    }

    pub fn step(&mut self, step: &Step, expected: Option<usize>) -> Outcome {
        self.expected = expected;
        let played =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (step.verb.play)(self, &step.args)));
        match played {
            Ok(played) => played.into(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Outcome::Panicked(text.unwrap_or_default())
            }
        }
    }

    /// A device of the kernel executes requests in its own time; the soft device has finished them.
    pub fn settle(&self) {
        if self.machine.soft.is_none() {
            std::thread::sleep(self.patience / 8);
        }
    }

    /// Collects events until there are as many as in the first run, and then for a moment longer.
    pub fn collect<T>(
        &mut self,
        mut more: impl FnMut(&mut Self, &mut Vec<T>) -> Result<(), Miss>,
    ) -> Result<Vec<T>, Miss> {
        let mut all = Vec::new();
        more(self, &mut all)?;
        if self.machine.soft.is_none() {
            let (start, wanted) = (Instant::now(), self.expected.unwrap_or(0));
            while all.len() < wanted && start.elapsed() < self.patience * 3 {
                std::thread::sleep(Duration::from_micros(200));
                more(self, &mut all)?;
            }
        }
        Ok(all)
    }

    /// The number in the program of a queue pair, from the device's number.
    pub fn place_of(&self, number: u32) -> String {
        let of = |(known, place): &(u32, usize)| (*known == number).then(|| format!("x{place}"));
        self.numbers.iter().rev().find_map(of).unwrap_or_else(|| (if number == 0 { "0" } else { "?" }).into())
    }

    /// Removes headers from bytes that were read at an address.
    pub fn without_headers(&self, from: u64, bytes: &mut [u8]) {
        for header in &self.headers {
            for (at, byte) in bytes.iter_mut().enumerate() {
                if (from + at as u64).wrapping_sub(*header) < 40 {
                    *byte = 0;
                }
            }
        }
    }

    /// Refuses to write to memory, or to send: the parent must not see the effect.
    pub fn own_memory(&self) -> Result<(), Miss> {
        if self.is_child { Err(Miss::Absent) } else { Ok(()) }
    }

    /// Checks that a device can be opened under this number.
    pub fn free_to_open(&self, at: u64) -> Result<(), Miss> {
        self.contexts.free(at)?;
        if self.is_child { Err(Miss::Absent) } else { Ok(()) }
    }
}
