//! Two sides, a request from one to the other, and what can be seen of it on both.

use uverbs::abi::types::{SendFlags, WcFlags, qp_state, wc_opcode};
use uverbs::raw::{Address, Batch, Data, FillSends, Lower, Opcode, Refused, Sge};
use uverbs::{AccessFlags, AddressHandle, Completion, Context, EventKind, MemoryRegion, Remote, Status};

use super::end::{End, HEADER, LEN, RECEIVES, Refusal, Transport, errno, refusal};
use crate::commands::verbs::QKEY;

/// What the memory of the sender contains, and that of its peer.
const FILLED: [u8; 2] = [0xa5, 0x5a];

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Post {
    pub(super) operation: Operation,
    pub(super) pieces: Vec<Sge>,
    /// This many bytes of inline data instead.
    pub(super) inline: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Send,
    SendImmediate,
    SendInvalidate(u32),
    Write(Remote),
    WriteImmediate(Remote),
    Read(Remote),
    Add(Remote),
    Swap(Remote),
    LocalInvalidate(u32),
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Sender,
    Peer,
}

/// The destination of datagrams.
pub(super) struct To {
    pub(super) address: AddressHandle,
    pub(super) qp_num: u32,
    pub(super) qkey: u32,
}

/// The number that goes with a message.
const IMMEDIATE: u32 = 0x1234_5678;

/// Both sides of one cell of the grid, and a third one.
pub(super) struct Scene {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) other: Option<End>,
    pub(super) to: Option<To>,
    /// Further objects that must exist meanwhile.
    pub(super) regions: Vec<MemoryRegion>,
    pub(super) transport: Transport,
    seen: Seen,
}

/// What has been seen of a request.
#[derive(Default)]
struct Seen {
    completions: [Vec<Completion>; 2],
    /// The completions that have been described.
    told: [usize; 2],
    events: [Vec<EventKind>; 2],
    refused: Vec<String>,
}

impl Scene {
    pub(super) fn new(contexts: &[Context; 2], transport: Transport) -> Self {
        let a = End::new(&contexts[0], transport, FILLED[0]);
        let b = End::new(&contexts[1], transport, FILLED[1]);
        Self { a, b, other: None, to: None, regions: Vec::new(), transport, seen: Seen::default() }
    }

    /// Connects both sides.
    pub(super) fn connect(&mut self) -> Result<(), Refusal> {
        let (a, b) = (self.a.number(), self.b.number());
        self.b.raise(qp_state::INIT, qp_state::RTS, a)?;
        self.a.raise(qp_state::INIT, qp_state::RTS, b)?;
        if self.transport == Transport::Ud {
            let route = self.a.route(self.a.link.is_astray);
            let address = self.a.pd.create_ah(&route).map_err(|error| refusal(&error))?;
            self.to = Some(To { address, qp_num: self.a.link.to.unwrap_or(b), qkey: QKEY });
        }
        Ok(())
    }

    pub(super) fn end(&mut self, who: Who) -> &mut End {
        match who {
            Who::Sender => &mut self.a,
            Who::Peer => &mut self.b,
        }
    }

    /// Posts a receive without memory at the sender, and two receives at the peer.
    pub(super) fn receive(&mut self) {
        self.a.receive(10, &[]);
        for (number, wr_id) in [(0, 20), (1, 21)] {
            let room = self.b.room(number);
            self.b.receive(wr_id, &[room]);
        }
    }

    /// Datagrams go to the peer from now on.
    pub(super) fn correct(&mut self) {
        if self.transport == Transport::Ud {
            let address = self.a.pd.create_ah(&self.a.route(false)).unwrap();
            self.to = Some(To { address, qp_num: self.b.number(), qkey: QKEY });
        }
    }

    /// The sender is at fault before it posts.
    pub(super) fn refuse(&mut self, why: Refusal) {
        self.seen.refused.push(why);
    }

    /// A key that is given to nothing: one of a place that is far from those in use.
    pub(super) fn key_of_nothing(&self) -> u32 {
        self.a.memory().lkey() ^ 0x0010_0000
    }

    /// Registers more memory on one side, in its domain or in another.
    pub(super) fn more(&mut self, who: Who, access: AccessFlags, is_elsewhere: bool) -> &MemoryRegion {
        let end = self.end(who);
        let pd = if is_elsewhere { end.context().alloc_pd().unwrap() } else { end.pd.clone() };
        self.regions.push(pd.register(LEN, access).unwrap());
        self.regions.last().expect("it was added")
    }

    pub(super) fn post(&mut self, wr_id: u64, post: &Post) {
        let answer = self.put(wr_id, post).map_err(|why| match why {
            Refused::Full => errno(12),
            Refused::Lacks => errno(95),
            _ => errno(22),
        });
        let answer = answer.map_err(|errno| format!("{wr_id} refused {errno}")).and_then(|()| {
            let Some((_, sends, _)) = &mut self.a.qp else { return Ok(()) };
            sends.publish().map_err(|error| format!("{wr_id} {}", refusal(&error)))
        });
        if let Err(why) = answer {
            if let Some((_, sends, _)) = &mut self.a.qp {
                sends.rewind();
            }
            self.seen.refused.push(why);
        }
    }

    fn put(&mut self, wr_id: u64, post: &Post) -> Result<(), Refused> {
        let immediate = IMMEDIATE.to_be();
        let opcode = match post.operation {
            Operation::Send | Operation::SendImmediate if self.transport == Transport::Ud => {
                let immediate = matches!(post.operation, Operation::SendImmediate).then_some(immediate);
                let to = self.to.as_ref().expect("a destination");
                let ah: Address = *to.address.driver_address();
                Opcode::Datagram { ah, qp_num: to.qp_num, qkey: to.qkey, immediate }
            }
            Operation::Send => Opcode::Send,
            Operation::SendImmediate => Opcode::SendImmediate(immediate),
            Operation::SendInvalidate(key) => Opcode::SendInvalidate(key),
            Operation::Write(remote) => Opcode::Write(remote),
            Operation::WriteImmediate(remote) => Opcode::WriteImmediate(remote, immediate),
            Operation::Read(remote) => Opcode::Read(remote),
            Operation::Add(remote) => Opcode::FetchAdd { remote, add: 1 },
            Operation::Swap(remote) => Opcode::CompareSwap { remote, compare: 0, swap: 1 },
            Operation::LocalInvalidate(key) => Opcode::LocalInvalidate(key),
        };
        let (_, sends, _) = self.a.qp.as_mut().expect("a queue pair");
        sends.step(One { wr_id, opcode, post })
    }

    fn poll(&mut self) {
        let Seen { completions: [here, there], events: [mine, theirs], .. } = &mut self.seen;
        self.a.poll(here);
        self.b.poll(there);
        self.a.poll_events(mine);
        self.b.poll_events(theirs);
    }

    /// Describes what has been seen since the last description: the completions of the sender, those of the peer, the states, the events,
    /// and the bytes that have changed.
    pub(super) fn look(&mut self) -> [String; 5] {
        self.poll();
        let [mut here, there] =
            [0, 1].map(|side| completions(&self.seen.completions[side][self.seen.told[side]..]));
        here.splice(0..0, self.seen.refused.iter().cloned());
        let states = format!("{} {}", self.a.state(), self.b.state());
        let names = ["sender", "peer"];
        let events = names.iter().zip(&self.seen.events).flat_map(|(name, events)| {
            let mut events: Vec<_> = events.iter().map(|event| format!("{name} {event:?}")).collect();
            events.sort();
            events
        });
        let events: Vec<_> = events.collect();
        let changes: Vec<_> = names
            .iter()
            .zip([&self.a, &self.b])
            .zip(FILLED)
            .flat_map(|((name, end), fill)| self.changed(end, name, fill))
            .collect();
        [here, there, vec![states], events, changes].map(|parts| match parts.join(", ") {
            text if text.is_empty() => "-".into(),
            text => text,
        })
    }

    /// What has been seen so far is not described again.
    pub(super) fn turn_page(&mut self) {
        self.seen.told = [0, 1].map(|side| self.seen.completions[side].len());
        self.seen.refused.clear();
    }

    fn changed(&self, end: &End, name: &str, fill: u8) -> Vec<String> {
        let Some(memory) = &end.memory else { return Vec::new() };
        let mut bytes = vec![0; LEN];
        memory.read(0, &mut bytes).unwrap();
        if self.transport == Transport::Ud {
            // Whether a datagram has this header depends on the link.
            for start in RECEIVES {
                bytes[start..start + HEADER].fill(fill);
            }
        }
        let mut changes = Vec::new();
        let mut at = 0;
        while let Some(first) = bytes[at..].iter().position(|byte| *byte != fill) {
            let first = at + first;
            let len = bytes[first..].iter().position(|byte| *byte == fill).unwrap_or(LEN - first);
            changes.push(format!("{name} {first}+{len}"));
            at = first + len;
        }
        changes
    }
}

/// Completions in words. Sends and receives are flushed at the same time, so these are in the order of their numbers.
fn completions(all: &[Completion]) -> Vec<String> {
    let mut all = all.to_vec();
    all.sort_by_key(|each| {
        (each.status == Status::Flushed, if each.status == Status::Flushed { each.wr_id } else { 0 })
    });
    all.iter()
        .map(|each| {
            let wr_id = each.wr_id;
            if each.status != Status::Success {
                return format!("{wr_id} {:?}", each.status);
            }
            let is_receive = matches!(each.opcode, wc_opcode::RECV | wc_opcode::RECV_RDMA_WITH_IMM);
            let immediate = match each.flags {
                flags if flags.contains(WcFlags::WITH_IMM) && is_receive => " with immediate data",
                flags if flags.contains(WcFlags::WITH_INVALIDATE) => " with a key",
                _ => "",
            };
            let len = if is_receive { format!(" of {}", each.len) } else { String::new() };
            format!("{wr_id} {}{len}{immediate}", operation(each.opcode))
        })
        .collect()
}

fn operation(opcode: u32) -> &'static str {
    match opcode {
        wc_opcode::SEND => "sent",
        wc_opcode::RDMA_WRITE => "written",
        wc_opcode::RDMA_READ => "read",
        wc_opcode::COMP_SWAP => "swapped",
        wc_opcode::FETCH_ADD => "added",
        wc_opcode::LOCAL_INV => "invalidated",
        wc_opcode::RECV => "received",
        wc_opcode::RECV_RDMA_WITH_IMM => "received by a write",
        _ => "done",
    }
}

/// A batch of one request.
struct One<'a> {
    wr_id: u64,
    opcode: Opcode<'a>,
    post: &'a Post,
}

impl FillSends for One<'_> {
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        let Self { wr_id, opcode, post } = self;
        let bytes = vec![FILLED[0]; post.inline.unwrap_or(0)];
        let flags = SendFlags::SIGNALED;
        match post.inline {
            Some(_) => {
                let data = Data::<std::slice::Iter<'_, Sge>, _>::Inline(std::iter::once(&bytes[..]));
                batch.put(wr_id, flags | SendFlags::INLINE, &opcode, None, &data)
            }
            None => {
                let data = Data::<_, std::iter::Empty<&[u8]>>::Pieces(post.pieces.iter());
                batch.put(wr_id, flags, &opcode, None, &data)
            }
        }
    }
}
