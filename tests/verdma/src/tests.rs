//! The device with a driver that the tests simulate.

use vpci::{Device as _, Memory};

use crate::bytes::{Bytes as _, BytesMut as _};
use crate::control;
use crate::device::Device;
use crate::qp::state;
use crate::work::opcode;

const COMMANDS: u64 = 0x10_0000;
const COMPLETIONS: u64 = 0x11_0000;
const EVENTS: u64 = 0x12_0000;
const CQ: u64 = 0x20_0000;
const QUEUES: u64 = 0x30_0000;
const DATA: u64 = 0x40_0000;
const KEY: u32 = 0x500;
const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const DEPTH: u32 = 512;

struct Guest {
    device: Device,
    next: u16,
    pages: [u64; 3],
    /// Entries of the completion queue that were read.
    seen: u32,
    posted: [[u16; 2]; 2],
}

impl Guest {
    fn new() -> Self {
        let mut device = Device::new([2, 0, 0, 0, 0, 1], 0x88);
        device.memory = Memory::zeroed(&[(COMMANDS, 0x40_0000)]);
        let mut guest = Self { device, next: 0, pages: [0; 3], seen: 0, posted: [[0; 2]; 2] };
        for (at, value) in [(0x20, COMMANDS), (0x28, COMPLETIONS), (0x38, EVENTS), (0x40, EVENTS + 0x8000)] {
            guest.write(at, &value.to_le_bytes());
        }
        for (at, value) in [(0x30, DEPTH), (0x34, 128), (0x48, 64), (0x10, 2)] {
            guest.write(at, &u32::to_le_bytes(value));
        }
        let mut status = [0; 4];
        guest.device.read_bar(0, 0x14, &mut status);
        assert_eq!(status[0] & 2, 2, "it is initialised");
        guest
    }

    /// With an event queue, a completion queue, pages, a region and two connected queue pairs.
    fn connected() -> Self {
        let mut guest = Self::new();
        let mut eq = [0; 128];
        eq.put_u64(8, EVENTS + 0x1000);
        eq.put(16, &[1, 1, 8, 1]);
        guest.run((1, 0), eq).unwrap();
        let mut gid = [0; 128];
        gid.put(12, &GID);
        guest.run((0, 14), gid).unwrap();
        let mut pages = [0; 128];
        pages.put_u32(8, 7);
        let [answer, _] = guest.run((1, 8), pages).unwrap();
        guest.pages = [answer & 0xffff, answer >> 48, answer >> 32 & 0xffff];
        let mut cq = [0; 128];
        cq.put_u32(8, 6 << 24 | 1);
        cq.put_u64(12, CQ);
        cq.put_u32(20, 1 << 16 | 1 << 11 | 1);
        cq.put_u32(36, guest.pages[2] as u32);
        guest.run((0, 4), cq).unwrap();
        let mut mr = [0; 128];
        mr.put_u32(8, 1 << 31 | KEY >> 8);
        mr.put_u32(12, 1 << 12 | 0x1f << 1);
        mr.put_u64(16, DATA);
        mr.put_u32(24, 0x4000);
        mr.put_u32(28, 14 << 27 | 1);
        mr.put_u64(32, DATA);
        guest.run((0, 8), mr).unwrap();
        for number in [1_u32, 2] {
            let mut qp = [0; 128];
            let base = QUEUES + u64::from(number) * 0x4000;
            qp.put_u32(8, 4 << 20 | number);
            qp.put_u32(12, 2 << 20 | 1);
            qp.put_u32(16, 1 << 25 | 1);
            qp.put_u32(20, 1 << 25 | 1);
            qp.put_u64(24, base);
            qp.put_u64(32, base + 0x1000);
            qp.put_u32(40, 1 << 1);
            qp.put_u32(44, 1 << 1);
            qp.put_u32(112, (guest.pages[0] << 16 | guest.pages[1]) as u32);
            guest.run((0, 1), qp).unwrap();
            for (state, mask) in [(1, 1), (2, 0x35), (3, 9)] {
                let mut modify = [0; 128];
                modify.put_u32(8, state << 24 | number);
                modify.put_u32(12, 3 - number);
                modify.put_u32(16, mask);
                modify.put_u32(24, 100 + (3 - number));
                modify.put_u32(28, 100 + number);
                modify.put(52, &GID);
                guest.run((0, 3), modify).unwrap();
            }
        }
        guest
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.device.write_bar(0, at, bytes).unwrap();
    }

    /// Executes a command; the error is the syndrome.
    fn run(&mut self, (module, opcode): (u64, u64), mut command: [u8; 128]) -> Result<[u64; 2], u32> {
        let slot = self.next;
        self.next = slot.wrapping_add(4);
        command.put_u64(0, 3 << 52 | module << 24 | opcode << 16 | u64::from(self.next));
        let at = u64::from(u32::from(slot) % DEPTH) * 32;
        self.device.memory.write(COMMANDS + at, &command).unwrap();
        self.write(0x200, &u64::from(self.next).to_le_bytes());
        let number = u32::from(slot) / 4;
        let mut entry = [0; 32];
        self.device.memory.read(COMPLETIONS + u64::from(number % DEPTH) * 32, &mut entry).unwrap();
        let word = |at: usize| u32::from_be_bytes(entry.array(at));
        assert_eq!(
            (word(0) >> 31, word(4)),
            (u32::from(number & DEPTH == 0), slot.into()),
            "it has completed"
        );
        match word(0) & 0xff {
            0 => Ok([8, 16].map(|at| u64::from(word(at)) | u64::from(word(at + 4)) << 32)),
            syndrome => Err(syndrome),
        }
    }

    /// Posts a request of one to four slots, without its first word.
    fn send(&mut self, qp: u32, opcode: u8, len: u64, rest: &[u64]) {
        let begin = self.posted[qp as usize - 1][0];
        let slots = (rest.len() + 1).div_ceil(4) as u16;
        let end = begin + slots;
        let head = len << 56
            | u64::from(slots - 1) << 52
            | u64::from(qp) << 32
            | u64::from(opcode) << 27
            | 1 << 22
            | u64::from(end);
        for (i, word) in [head].iter().chain(rest).enumerate() {
            let at = (u64::from(begin) * 4 + i as u64) % 64 * 8;
            let base = QUEUES + u64::from(qp) * 0x4000;
            self.device.memory.write(base + at, &word.to_le_bytes()).unwrap();
        }
        self.posted[qp as usize - 1][0] = end;
        self.ring(self.pages[0] * 4096 + u64::from(qp & 31) * 128, u64::from(qp) << 32 | u64::from(end));
    }

    fn receive(&mut self, qp: u32, address: u64, len: u32) {
        let begin = self.posted[qp as usize - 1][1];
        let end = begin + 1;
        // The reserved part is not cleared, as by liberdma.
        let head = u64::from(qp) << 32 | 0xbdfa << 16 | u64::from(end);
        let slot = [head, 0, address, u64::from(len) | u64::from(KEY) << 32];
        let at = QUEUES + u64::from(qp) * 0x4000 + 0x1000 + u64::from(begin % 4) * 32;
        self.device.memory.write(at, slot.map(u64::to_le_bytes).as_flattened()).unwrap();
        self.posted[qp as usize - 1][1] = end;
        // Where the kernel has mapped the page of completion queues.
        self.ring(self.pages[2] * 4096 + u64::from(qp & 0x7f) * 32, head);
    }

    fn ring(&mut self, at: u64, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Operation, syndrome, slot, queue pair and immediate data of each completion.
    fn completions(&mut self) -> Vec<[u32; 5]> {
        std::iter::from_fn(|| {
            let mut entry = [0; 32];
            self.device.memory.read(CQ + u64::from(self.seen % 64) * 32, &mut entry).unwrap();
            let word = |at: usize| u32::from_be_bytes(entry.array(at));
            let is_new = word(0) >> 31 == u32::from(self.seen & 64 == 0);
            is_new.then(|| {
                self.seen += 1;
                [word(0) >> 16 & 0x7f, word(0) & 0xff, word(4), word(8), word(12)]
            })
        })
        .collect()
    }

    fn complaints(&self) -> usize {
        self.device.complaints.len()
    }
}

#[test]
fn messages_go_from_one_queue_pair_to_another() {
    let mut guest = Guest::connected();
    guest.receive(2, DATA + 0x1000, 64);
    guest.device.memory.write(DATA, b"hello").unwrap();
    let piece = [DATA, 5 | u64::from(KEY) << 32];
    guest.send(1, opcode::SEND_IMMEDIATE, 1, &[0x0403_0201 | 5 << 32, piece[0], piece[1]]);
    let mut found = [0; 5];
    guest.device.memory.read(DATA + 0x1000, &mut found).unwrap();
    assert_eq!(&found, b"hello");
    // Immediate data is turned round.
    let received = [opcode::RECEIVED_IMMEDIATE.into(), 0, 0, 2, 0x0403_0201];
    assert_eq!(guest.completions(), [received, [opcode::SEND_IMMEDIATE.into(), 0, 0, 1, 0]]);
    let add = [0, 7, 0, DATA + 8, u64::from(KEY) << 32, DATA + 16, 8 | u64::from(KEY) << 32];
    guest.send(2, opcode::FETCH_ADD, 0, &add);
    assert_eq!(guest.completions(), [[opcode::FETCH_ADD.into(), 0, 0, 2, 0]]);
    let mut value = [0; 8];
    guest.device.memory.read(DATA + 8, &mut value).unwrap();
    assert_eq!((value.u64(0), guest.complaints()), (7, 0), "{:?}", guest.device.complaints);
}

#[test]
fn an_event_is_made_once_for_what_was_not_seen() {
    let mut guest = Guest::connected();
    let events = |guest: &Guest| {
        let mut eq = [0; 64];
        guest.device.memory.read(EVENTS + 0x1000, &mut eq).unwrap();
        (0..4).filter(|at| eq.u32(at * 16) == 1 << 31 | 1).count()
    };
    let doorbell = guest.pages[1] * 4096 + 8;
    let write = [4 << 32, u64::from(KEY) | DATA << 32, 0, 0x1122_3344];
    guest.ring(doorbell, 1 << 32 | 1 << 31);
    assert_eq!(events(&guest), 0);
    guest.send(1, opcode::WRITE, 4, &[write[0], write[1], write[2], write[3]]);
    // Four bytes that are in the request.
    assert_eq!((guest.completions()[0][1], events(&guest)), (8, 1), "they are not: the request is malformed");
    guest.ring(doorbell, 1 << 32 | 1 << 31);
    assert_eq!(events(&guest), 1, "this request was answered");
    guest.ring(doorbell, 1 << 32 | 1 << 31 | 1 << 28);
    assert_eq!(events(&guest), 2, "there is one that was not seen");
    guest.ring(doorbell, 1 << 32 | 1 << 31 | 2 << 28 | 1);
    assert_eq!((events(&guest), guest.complaints()), (2, 1));
}

#[test]
fn what_is_not_the_guests_is_complained_of_and_fails() {
    let mut guest = Guest::connected();
    guest.ring(guest.pages[0] * 4096 + 128, 9 << 32 | 1);
    guest.ring(guest.pages[0] * 4096, 1 << 32 | 1);
    guest.ring(0x20_0000, 1 << 32 | 1);
    guest.ring(guest.pages[1] * 4096 + 8, 1 << 32 | 1 << 31 | 77);
    assert_eq!(guest.complaints(), 4);
    // Memory that is not the region's.
    guest.send(1, opcode::SEND, 1, &[5 << 32, DATA + 0x4000, 5 | u64::from(KEY) << 32]);
    assert_eq!(guest.completions(), [[opcode::SEND.into(), 11, 0, 1, 0]]);
    let mut query = [0; 128];
    query.put_u32(8, 1);
    assert_eq!(guest.run((0, 17), query).unwrap()[0] >> 48, u64::from(state::ERROR));
    guest.send(1, opcode::SEND, 1, &[5 << 32, DATA, 5 | u64::from(KEY) << 32]);
    assert_eq!(guest.completions(), [[opcode::SEND.into(), 15, 1, 1, 0]], "it is flushed");
}

#[test]
fn objects_that_are_used_stay() {
    let mut guest = Guest::connected();
    let command = |at: usize, value: u32| {
        let mut command = [0; 128];
        command.put_u32(at, value);
        command
    };
    assert_eq!(guest.run((0, 5), command(8, 1)), Err(3), "queue pairs complete there");
    assert_eq!(guest.run((0, 2), command(8, 9)), Err(2));
    assert_eq!(guest.run((0, 77), [0; 128]), Err(5));
    for number in [1, 2] {
        guest.run((0, 2), command(8, number)).unwrap();
    }
    guest.run((0, 5), command(8, 1)).unwrap();
    let mut pages = [0; 128];
    for (at, page) in [(12, guest.pages[1]), (14, guest.pages[0]), (18, guest.pages[2])] {
        pages.put_u16(at, page as u16);
    }
    guest.run((1, 9), pages).unwrap();
    guest.run((0, 9), command(8, KEY >> 8)).unwrap();
    let ask = |guest: &mut Guest, line: &str| {
        control::answer(&mut guest.device, &line.split_whitespace().collect::<Vec<_>>())
    };
    let objects = ask(&mut guest, "objects").unwrap();
    assert_eq!(objects, ["qp 0", "cq 0", "mr 0", "ah 0", "page 0", "gid 1", "eq 3"]);
    ask(&mut guest, "fail QUERY_DEVICE 2").unwrap();
    for _ in 0..2 {
        assert_eq!(guest.run((0, 0), [0; 128]), Err(6));
    }
    guest.run((0, 0), [0; 128]).unwrap();
    for line in ["help", "heal", "lose 5", "statistics", "trace", "complaints", "complaints clear"] {
        assert!(ask(&mut guest, line).is_ok(), "{line}");
    }
    for line in ["bogus", "fail", "fail NOTHING", "fail CREATE_QP 0", "lose many"] {
        assert!(ask(&mut guest, line).is_err(), "{line}");
    }
}
