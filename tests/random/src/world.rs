//! What a program has made, and what became of its steps.

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
use crate::language::{PLACES, Step};
use crate::starved::Scarce;

/// The device that a program runs on.
#[derive(Clone)]
pub struct Machine {
    pub device: Device,
    /// The soft device behind it, if it is one.
    pub soft: Option<SoftDevice>,
    /// The control line of a virtual device.
    pub card: Option<&'static Control>,
    /// The soft device stands beside one on which the crate has no messages.
    pub lacks_messages: bool,
    /// Frames can come in from the wire.
    pub has_wire: bool,
    /// The local identifier of the port, on InfiniBand.
    pub lid: u16,
    /// Attributes of queue pairs are looked at as far as mlx5 tells them.
    pub tells_as_mlx5: bool,
}

impl Machine {
    /// What the crate refuses on a device for raw packets before any command; so does the soft device beside it.
    pub fn has_messages(&self) -> Result<(), Miss> {
        if self.lacks_messages { Err(Miss::Lacking) } else { Ok(()) }
    }

    /// The device goes away, if that can be had: a soft one at once, another by what UVERBS_TEST_REMOVE says.
    pub fn unplug(&self) -> Result<(), Miss> {
        match &self.soft {
            Some(soft) => soft.unplug(),
            None => run("UVERBS_TEST_REMOVE").ok_or(Miss::Absent)?,
        }
        Ok(())
    }

    /// It comes back, as UVERBS_TEST_RESTORE says, and is looked for again.
    pub fn restore(&mut self) {
        if self.soft.is_some() || run("UVERBS_TEST_RESTORE").is_none() {
            return;
        }
        let devices = uverbs::devices().expect("devices");
        self.device = devices.named(self.device.name()).expect("the device has its name").clone();
    }

    /// A frame comes in from the wire, if that can be had.
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

/// Runs a command of the environment, if there is one; it must succeed.
fn run(variable: &str) -> Option<()> {
    let command = std::env::var(variable).ok()?;
    let status = std::process::Command::new("sh").args(["-c", &command]).status().expect("a shell");
    assert!(status.success(), "{command}: {status}");
    Some(())
}

/// Why a step did not come to its end.
pub enum Miss {
    /// An object is not there, or its place is taken.
    Absent,
    /// It was refused.
    Refused(Error),
    /// The crate does not have it for this driver.
    Lacking,
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// What a step comes to: what can be seen of it, in words.
pub type Played = Result<String, Miss>;

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its objects are not there.
    Absent,
    /// It was done; what could be seen.
    Done(String),
    /// It was refused.
    Refused(ErrorKind, Option<i32>),
    /// It panicked.
    Panicked(String),
}

impl Outcome {
    /// A number that it begins with.
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
    /// Nothing is at this place yet.
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

    /// Keeps an object at a free place.
    pub fn put(&mut self, at: u64, object: T) {
        if let Some(place) = self.0.get_mut(at as usize) {
            *place = Some(object);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(at, object)| Some((at, object.as_ref()?)))
    }

    /// Destroys an object, or keeps it where it was.
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

/// What a program has made.
pub struct World {
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
    /// Memory of the program's own.
    pub memory: Mapping,
    pub wait_set: WaitSet,
    /// In a child of fork, which opens nothing, and leaves the memory alone that it shares with its parent.
    pub is_child: bool,
    /// Addresses where datagrams may begin: with a header, in which each device has its own addresses.
    pub headers: Vec<u64>,
    /// Numbers of queue pairs that there were, by their places.
    pub numbers: Vec<(u32, usize)>,
    /// How many things happened in this step where the program ran first, if it did.
    pub expected: Option<usize>,
    /// How long a device of the kernel's may take.
    pub patience: Duration,
    /// The process gets little memory.
    pub scarce: Option<Scarce>,
}

/// How much memory of its own a program has.
pub const MEMORY: usize = 16384;

impl World {
    pub fn new(machine: &Machine, patience: Duration) -> Self {
        Self {
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

    /// A world for another thread: what can be shared is, and has the same places; the rest it may make itself.
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

    /// Does a step.
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

    /// A device of the kernel's carries out in its own time what it was given; the soft device has done it.
    pub fn settle(&self) {
        if self.machine.soft.is_none() {
            std::thread::sleep(self.patience / 8);
        }
    }

    /// Collects what happens until there is as much of it as there was where the program ran first, and a moment more.
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

    /// The place of a queue pair by its number.
    pub fn place_of(&self, number: u32) -> String {
        let of = |(known, place): &(u32, usize)| (*known == number).then(|| format!("x{place}"));
        self.numbers
            .iter()
            .rev()
            .find_map(of)
            .unwrap_or_else(|| if number == 0 { "0".into() } else { "?".into() })
    }

    /// Takes what stands in headers out of bytes that were read at an address.
    pub fn without_headers(&self, from: u64, bytes: &mut [u8]) {
        for header in &self.headers {
            for (at, byte) in bytes.iter_mut().enumerate() {
                if (from + at as u64).wrapping_sub(*header) < 40 {
                    *byte = 0;
                }
            }
        }
    }

    /// What is written to memory, or sent, the parent does not see.
    pub fn own_memory(&self) -> Result<(), Miss> {
        if self.is_child { Err(Miss::Absent) } else { Ok(()) }
    }

    /// A device can be opened at this place.
    pub fn free_to_open(&self, at: u64) -> Result<(), Miss> {
        self.contexts.free(at)?;
        if self.is_child { Err(Miss::Absent) } else { Ok(()) }
    }
}
