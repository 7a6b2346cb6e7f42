//! Two connections with a channel between them that loses and repeats packets, each in a frame.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use uverbs::raw::roce::{Atomic, Operation, Packet, Remote, Service};

use super::frame::{Route, build, parse};
use super::*;

const KEY: u32 = 7;
const READ_ONLY: u32 = 8;
const SIZE: usize = 1 << 16;

/// A device with memory at address 0.
struct Side {
    memory: Vec<u8>,
    receives: VecDeque<Receive>,
    out: Vec<Packet>,
    sent: Vec<(u64, Status, u32)>,
    received: Vec<(u64, Status, Received)>,
    invalidated: Vec<u32>,
}

impl Side {
    fn new(fill: u8) -> Self {
        Self {
            memory: (0..SIZE).map(|at| (at as u8).wrapping_mul(fill)).collect(),
            receives: VecDeque::new(),
            out: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            invalidated: Vec::new(),
        }
    }
}

impl Host for Side {
    fn send(&mut self, packet: Packet) {
        self.out.push(packet);
    }

    fn receive(&mut self) -> Option<Receive> {
        self.receives.pop_front()
    }

    fn check(&mut self, piece: Piece, access: Access) -> Result<(), Denied> {
        let fits = piece.address.checked_add(piece.len.into()).is_some_and(|end| end <= SIZE as u64);
        let may = piece.key == KEY || piece.key == READ_ONLY && access == Access::RemoteRead;
        if fits && may { Ok(()) } else { Err(Denied) }
    }

    fn read(&mut self, piece: Piece, access: Access, bytes: &mut [u8]) -> Result<(), Denied> {
        self.check(piece, access)?;
        bytes.copy_from_slice(&self.memory[piece.address as usize..][..bytes.len()]);
        Ok(())
    }

    fn write(&mut self, piece: Piece, access: Access, bytes: &[u8]) -> Result<(), Denied> {
        self.check(piece, access)?;
        self.memory[piece.address as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, atomic: &Atomic, is_swap: bool) -> Result<u64, AtomicRefused> {
        let piece = Piece { address: atomic.address, len: 8, key: atomic.key };
        let mut bytes = [0; 8];
        self.read(piece, Access::RemoteWrite, &mut bytes).map_err(|_| AtomicRefused::Denied)?;
        let original = u64::from_le_bytes(bytes);
        let new = match is_swap {
            true if original != atomic.compare => original,
            true => atomic.operand,
            false => original.wrapping_add(atomic.operand),
        };
        self.write(piece, Access::RemoteWrite, &new.to_le_bytes()).map_err(|_| AtomicRefused::Denied)?;
        Ok(original)
    }

    fn invalidate(&mut self, key: u32) -> Result<(), Denied> {
        self.invalidated.push(key);
        if key == KEY { Err(Denied) } else { Ok(()) }
    }

    fn sent(&mut self, token: u64, status: Status, len: u32) {
        self.sent.push((token, status, len));
    }

    fn received(&mut self, token: u64, status: Status, received: Received) {
        self.received.push((token, status, received));
    }
}

fn settings() -> Settings {
    Settings {
        service: Service::Rc,
        to: 5,
        mtu: 256,
        timeout: Some(Duration::from_millis(30)),
        retries: 7,
        unready: 7,
        reads: 4,
        window: 1 << 20,
    }
}

struct World {
    now: Instant,
    ends: [(Connection, Side); 2],
    /// Which packets are lost, and which are repeated; one bit for each.
    lost: u64,
    repeated: u64,
    count: u32,
}

impl World {
    fn new(settings: Settings, lost: u64, repeated: u64) -> Self {
        let end = |fill, first, expected| (Connection::new(settings, first, expected), Side::new(fill));
        let ends = [end(3, 0xff_fff0, 17), end(5, 17, 0xff_fff0)];
        Self { now: Instant::now(), ends, lost, repeated, count: 0 }
    }

    fn lossless() -> Self {
        Self::new(settings(), 0, 0)
    }

    fn post(&mut self, sends: Vec<Send>) {
        let (connection, side) = &mut self.ends[0];
        sends.into_iter().for_each(|send| connection.post(send));
        connection.advance(side, self.now);
    }

    /// Until nothing is under way and nothing is due, or for a simulated minute.
    fn run(&mut self) {
        let end = self.now + Duration::from_secs(60);
        while self.now < end {
            for from in [0, 1] {
                for packet in std::mem::take(&mut self.ends[from].1.out) {
                    self.carry(1 - from, &packet);
                }
            }
            if self.ends.iter().all(|(_, side)| side.out.is_empty()) {
                let Some(due) = self.ends.iter().filter_map(|(connection, _)| connection.due()).min() else {
                    return;
                };
                self.now = self.now.max(due);
                for (connection, side) in &mut self.ends {
                    connection.tick(side, self.now);
                }
                if self.ends.iter().all(|(connection, _)| connection.is_idle() || connection.has_failed()) {
                    return;
                }
            }
        }
    }

    fn carry(&mut self, to: usize, packet: &Packet) {
        let bit = |word: u64| word >> (self.count % 64) & 1 == 1;
        let copies = if bit(self.lost) { 0 } else { 1 + u32::from(bit(self.repeated)) };
        self.count += 1;
        let mut route = Route { dgid: [1; 16], ..Route::default() };
        if self.count.is_multiple_of(2) {
            (route.sgid, route.dgid) = (mapped(1), mapped(2));
        }
        for _ in 0..copies {
            let (found, parsed) = parse(&build(&route, packet)).unwrap();
            // These have no acknowledgement.
            let has_none = Packet { syndrome: 0, msn: 0, ..packet.clone() };
            let expected = if packet.operation == Operation::ReadMiddle { &has_none } else { packet };
            assert_eq!((&found, &parsed), (&route, expected));
            let (connection, side) = &mut self.ends[to];
            connection.arrive(&parsed, side, self.now);
        }
    }

    fn receive(&mut self, token: u64, len: u32) {
        let half = len / 2;
        let to = vec![
            Piece { address: 0x8000 + token * 0x1000, len: half, key: KEY },
            Piece { address: 0x8000 + token * 0x1000 + u64::from(half), len: len - half, key: KEY },
        ];
        self.ends[1].1.receives.push_back(Receive { token, to });
    }
}

fn mapped(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

fn send(token: u64, work: Work, data: Vec<u8>) -> Send {
    let to = if work.is_answered() {
        vec![Piece { address: token * 0x1000, len: 1000, key: KEY }]
    } else {
        vec![]
    };
    Send { token, work, data, to, solicited: token == 2, fence: token == 4 }
}

fn remote(address: u64, key: u32) -> Remote {
    Remote { address, key, len: 0 }
}

/// One of each operation, and what they leave.
fn each_operation(world: &mut World) {
    let data = |seed: u8, len: usize| (0..len).map(|at| (at as u8) ^ seed).collect::<Vec<_>>();
    for token in 0..4 {
        world.receive(token, 1024);
    }
    let before = world.ends[1].1.memory.clone();
    let word = Atomic { address: 0x7008, key: KEY, operand: 5, compare: 0 };
    let old = u64::from_le_bytes(before[0x7008..0x7010].try_into().unwrap());
    let mut atomic = send(5, Work::FetchAdd(word), Vec::new());
    atomic.to[0].len = 8;
    let mut swap = send(6, Work::CompareSwap(Atomic { operand: 1, compare: old + 5, ..word }), Vec::new());
    swap.to[0].len = 8;
    world.post(vec![
        send(0, Work::Send(None), data(1, 1000)),
        send(1, Work::Send(Some(0x0102_0304)), data(2, 0)),
        send(2, Work::SendInvalidate(99), data(3, 256)),
        send(3, Work::Write(remote(0x6000, KEY), None), data(4, 600)),
        send(4, Work::Read(remote(0x123, READ_ONLY)), Vec::new()),
        atomic,
        swap,
        send(7, Work::Write(remote(0x6400, KEY), Some(9)), data(5, 512)),
    ]);
    world.run();
    let (here, there) = (&world.ends[0].1, &world.ends[1].1);
    let lens = [1000, 0, 256, 600, 1000, 8, 8, 512];
    let expected: Vec<_> = (0..).zip(lens).map(|(token, len)| (token, Status::Success, len)).collect();
    assert_eq!(here.sent, expected);
    let received = |len| Received { len, ..Received::default() };
    let write = Received { is_write: true, immediate: Some(9), ..received(512) };
    let invalidated = Received { invalidated: Some(99), solicited: true, ..received(256) };
    let all = [received(1000), Received { immediate: Some(0x0102_0304), ..received(0) }, invalidated, write];
    let all: Vec<_> = (0..).zip(all).map(|(token, received)| (token, Status::Success, received)).collect();
    assert_eq!(there.received, all);
    assert_eq!(there.invalidated, [99]);
    assert_eq!(there.memory[0x8000..][..1000], data(1, 1000));
    assert_eq!(there.memory[0x6000..][..600], data(4, 600));
    assert_eq!(there.memory[0x6400..][..512], data(5, 512));
    assert_eq!(here.memory[0x4000..][..1000], before[0x123..][..1000]);
    assert_eq!(here.memory[0x5000..][..8], old.to_le_bytes());
    assert_eq!(here.memory[0x6000..][..8], (old + 5).to_le_bytes());
    assert_eq!(there.memory[0x7008..][..8], 1_u64.to_le_bytes());
}

#[test]
fn each_operation_is_executed() {
    each_operation(&mut World::lossless());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_operation_is_executed_once_over_a_bad_wire(lost: u64, and: u64, repeated: u64) {
        each_operation(&mut World::new(settings(), lost & and & 0x1111_1111_1111_1111, repeated));
    }

    #[test]
    fn what_is_no_frame_is_refused(bytes: Vec<u8>, at in 0_usize..80, change in 1_u8..) {
        let _ = parse(&bytes);
        let packet = Packet { payload: vec![1; 20], ..Packet::new(Service::Rc, Operation::SendOnly, 1) };
        let route = Route { sgid: mapped(1), dgid: mapped(2), ..Route::default() };
        let mut frame = build(&route, &packet);
        let at = at % frame.len();
        frame[at] ^= change;
        // Only what is in the headers, and not in the packet, may differ.
        if let Ok((_, found)) = parse(&frame) {
            prop_assert_eq!(found, packet);
        }
    }
}

#[test]
fn a_message_waits_for_a_receive() {
    let mut world = World::lossless();
    world.post(vec![send(1, Work::Send(None), vec![1; 10])]);
    for _ in 0..2 {
        for from in [0, 1] {
            for packet in std::mem::take(&mut world.ends[from].1.out) {
                world.carry(1 - from, &packet);
            }
        }
    }
    assert!(world.ends[0].1.sent.is_empty(), "the peer is not ready");
    world.receive(0, 16);
    world.run();
    assert_eq!(world.ends[0].1.sent, [(1, Status::Success, 10)]);

    let mut world = World::new(Settings { unready: 2, ..settings() }, 0, 0);
    world.post(vec![send(1, Work::Send(None), vec![1; 10]), send(2, Work::Send(None), vec![])]);
    world.run();
    let (connection, side) = &mut world.ends[0];
    assert!(connection.has_failed());
    connection.flush(side);
    assert_eq!(side.sent, [(1, Status::UnreadyRetriesExceeded, 0), (2, Status::Flushed, 0)]);
}

#[test]
fn a_peer_that_is_gone_exhausts_the_retries() {
    let mut world = World::new(settings(), u64::MAX, 0);
    world.post(vec![send(1, Work::Send(None), vec![1; 10])]);
    world.run();
    assert_eq!(world.ends[0].1.sent, [(1, Status::RetriesExceeded, 0)]);
}

#[test]
fn refusals_end_both_sides() {
    let cases = [
        (send(1, Work::Write(remote(0, READ_ONLY), None), vec![1; 600]), Status::RemoteAccess, None),
        (send(1, Work::Read(remote(SIZE as u64 - 10, KEY)), vec![]), Status::RemoteAccess, None),
        (send(1, Work::SendInvalidate(KEY), vec![1]), Status::RemoteAccess, Some(Status::RemoteAccess)),
        (send(1, Work::Send(None), vec![1; 99]), Status::RemoteInvalidRequest, Some(Status::LocalLength)),
    ];
    for (send, status, receive) in cases {
        let mut world = World::lossless();
        world.receive(0, 32);
        world.post(vec![send.clone()]);
        world.run();
        let [(here, side), (there, peer)] = &mut world.ends;
        assert!(here.has_failed() && there.has_failed(), "{send:?}");
        assert_eq!(side.sent, [(1, status, 0)]);
        let ends: Vec<_> = peer.received.iter().map(|(_, status, _)| *status).collect();
        assert_eq!(ends, receive.into_iter().collect::<Vec<_>>(), "{send:?}");
    }
    // Memory of one's own: what arrives cannot be written, and a broken request fails in its turn.
    let mut world = World::lossless();
    let mut read = send(1, Work::Read(remote(0, KEY)), vec![]);
    read.to[0].key = READ_ONLY;
    world.post(vec![read]);
    world.run();
    assert_eq!(world.ends[0].1.sent, [(1, Status::LocalProtection, 0)]);
    let mut world = World::lossless();
    world.receive(0, 32);
    world.ends[0].0.post(send(1, Work::Send(None), vec![2; 3]));
    world.ends[0].0.post_broken(2, Status::LocalOperation);
    assert!(!world.ends[0].0.has_room());
    world.post(vec![]);
    world.run();
    assert_eq!(world.ends[0].1.sent, [(1, Status::Success, 3), (2, Status::LocalOperation, 0)]);
}
