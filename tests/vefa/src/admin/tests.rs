//! A driver without a guest: it does the same as the kernel's driver, in memory of its own.

use vpci::{Device as _, Memory};

use super::check::checksum;
use super::{Answer, Command, EMPTY};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::{Api, Device, PAGE};
use crate::fabric::Gid;
use crate::limits::Limits;
use crate::registers::*;

mod hostile;

const ANSWER: u64 = 0x1000;
const ADMIN: u64 = 0x2000;
const COMPLETIONS: u64 = 0x4000;
const AENQ: u64 = 0x5000;
/// Control buffers.
pub(crate) const BUFFER: u64 = 0x6000;
const EQ: u64 = 0x7000;
/// The first of the pages for the objects of a test.
pub(crate) const OBJECTS: u64 = 0x1_0000;
const END: u64 = 0x40_0000;
const DEPTH: u16 = 32;

/// The device, and the driver's state.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) device: Device,
    entry: usize,
    commands: u16,
    free: u64,
    pub(crate) pd: u16,
    pub(crate) uar: u16,
    pub(crate) eq: u16,
}

/// A queue pair with one completion queue, memory for its receives, and a region for everything else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) handle: u32,
    pub(crate) number: u16,
    pub(crate) cq: u16,
    cq_base: u64,
    taken: [u32; 2],
    receive_base: u64,
    pub(crate) received: u16,
    pub(crate) sent: u16,
    pub(crate) doorbells: [u32; 3],
    pub(crate) send_offset: u32,
}

pub(crate) const CQ_DEPTH: u16 = 16;
pub(crate) const SLOTS: u16 = 16;

impl Guest {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), "0.3", 1)
    }

    /// Resets the device as the driver does, sets up its queues, and creates a domain, a page of doorbells and an event queue.
    pub(crate) fn with(limits: Limits, api: &str, mac: u8) -> Self {
        let gid = Gid::of_mac([0, 0x11, 0x22, 0x33, 0x44, mac]);
        let mut device = Device::new(limits, api.parse().unwrap(), gid);
        device.memory = Memory::zeroed(&[(0, END as usize)]);
        device.fabric.hold = 0;
        let entry = if device.api >= (Api { major: 0, minor: 3 }) { 128 } else { 64 };
        let mut guest = Self { device, entry, commands: 0, free: OBJECTS, pd: 0, uar: 0, eq: 0 };
        guest.set_address(ANSWER_BASE, ANSWER);
        assert_eq!(guest.read(STATUS), READY);
        guest.set(CONTROL, 1 | 3 << 28);
        guest.set_address(ANSWER_BASE, ANSWER);
        assert_eq!(guest.read(STATUS), READY | RESETTING);
        guest.set(CONTROL, 0);
        assert_eq!(guest.read(STATUS), READY);
        guest.set_address(ADMIN_BASE, ADMIN);
        guest.set(ADMIN_CAPS, u32::from(DEPTH) | (entry as u32) << 16);
        guest.set_address(ADMIN_COMPLETION_BASE, COMPLETIONS);
        guest.set(ADMIN_COMPLETION_CAPS, u32::from(DEPTH) | 64 << 16);
        guest.set_address(AENQ_BASE, AENQ);
        guest.set(AENQ_CAPS, 16 | 64 << 16);
        guest.pd = guest.run(14, &[]).unwrap().u16(8);
        guest.uar = guest.run(16, &[]).unwrap().u16(8);
        let mut payload = [0; 16];
        payload.put_u16(0, 64);
        payload.put(2, &[1, 4]);
        payload.put_u64(4, EQ);
        payload.put_u32(12, 1);
        guest.eq = guest.run(18, &payload).unwrap().u16(8);
        guest
    }

    pub(crate) fn set(&mut self, register: u64, value: u32) {
        self.device.write_bar(0, register, &value.to_le_bytes()).unwrap();
    }

    fn set_address(&mut self, register: u64, value: u64) {
        self.set(register + 4, (value >> 32) as u32);
        self.set(register, value as u32);
    }

    /// Reads a register as the driver does.
    pub(crate) fn read(&mut self, register: u64) -> u32 {
        self.set(READ_REQUEST, (register as u32) << 16 | 0x77);
        let answer = self.bytes(ANSWER, 8);
        assert_eq!((answer.u16(0), u64::from(answer.u16(2))), (0x77, register));
        answer.u32(4)
    }

    pub(crate) fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.memory.read(address, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn put(&self, address: u64, bytes: &[u8]) {
        self.device.memory.write(address, bytes).unwrap();
    }

    /// Unused pages.
    pub(crate) fn pages(&mut self, count: u64) -> u64 {
        let start = self.free;
        self.free += count * PAGE;
        assert!(self.free <= END);
        start
    }

    /// Runs a command. Returns its answer, or the status with which it ended.
    pub(crate) fn run(&mut self, opcode: u8, payload: &[u8]) -> Result<Answer, u8> {
        self.run_with(opcode, 0, payload)
    }

    pub(crate) fn run_with(&mut self, opcode: u8, flags: u8, payload: &[u8]) -> Result<Answer, u8> {
        let (number, size) = (self.commands, self.entry);
        let phase = (number / DEPTH + 1) as u8 & 1;
        let mut entry = vec![0; size];
        entry.put_u16(0, number & 0xfff);
        entry.put(2, &[opcode, flags | phase]);
        entry.put(if size == 128 { 12 } else { 4 }, payload);
        if size == 128 {
            let sum = checksum(&entry);
            entry.put_u16(4, sum);
        }
        self.put(ADMIN + u64::from(number % DEPTH) * size as u64, &entry);
        self.commands = number.wrapping_add(1);
        self.set(ADMIN_DOORBELL, self.commands.into());
        let mut answer = self.bytes(COMPLETIONS + u64::from(number % DEPTH) * 64, 64);
        assert_eq!((answer.u16(0), answer.u8(3)), (number & 0xfff, phase));
        if self.device.api >= (Api { major: 0, minor: 2 }) {
            let sum = answer.u16(4);
            answer.put_u16(4, 0);
            assert_eq!(checksum(&answer), sum);
        }
        match answer.u8(2) {
            0 => Ok(answer.array(0)),
            status => Err(status),
        }
    }

    /// The payload of a completion queue for [`CQ_DEPTH`] entries in each ring.
    pub(crate) fn cq_payload(&self, base: u64, caps: [u8; 2]) -> [u8; 24] {
        let mut payload = [0; 24];
        payload.put(0, &caps);
        payload.put_u16(2, CQ_DEPTH);
        payload.put_u16(4, self.eq);
        payload.put_u64(8, base);
        payload.put_u16(20, self.device.limits.sub_cqs_per_cq);
        payload.put_u16(22, self.uar);
        payload
    }

    pub(crate) fn qp_payload(&self, cq: u16, receive_base: u64, is_reliable: bool, flags: u8) -> [u8; 60] {
        let mut payload = [0; 60];
        payload.put_u16(0, self.pd);
        payload.put(2, &[if is_reliable { 2 } else { 1 }, flags]);
        payload.put_u64(12, receive_base);
        payload.put_u32(20, cq.into());
        payload.put_u32(24, cq.into());
        payload.put_u32(36, u32::from(SLOTS) * 128);
        payload.put_u32(40, SLOTS.into());
        payload.put_u32(44, u32::from(SLOTS) * 16);
        payload.put_u32(48, SLOTS.into());
        payload.put_u16(52, self.uar);
        payload
    }

    /// A queue pair that is ready to send, with the key 0x1234.
    pub(crate) fn qp(&mut self, is_reliable: bool) -> Pair {
        self.qp_with(is_reliable, 0)
    }

    pub(crate) fn qp_with(&mut self, is_reliable: bool, flags: u8) -> Pair {
        let (cq_base, receive_base) = (self.pages(1), self.pages(1));
        let payload = self.cq_payload(cq_base, [1 << 5, 8 | 1 << 5 | 1 << 6]);
        let answer = self.run(9, &payload).unwrap();
        let (cq, cq_doorbell) = (answer.u16(8), answer.u32(12));
        let payload = self.qp_payload(cq, receive_base, is_reliable, flags | 1 << 3);
        let answer = self.run(1, &payload).unwrap();
        let handle = answer.u32(8);
        let doorbells = [answer.u32(20), answer.u32(24), cq_doorbell];
        let (number, send_offset) = (answer.u16(12), answer.u32(28));
        for state in 1..=3 {
            self.modify(handle, 1, state).unwrap();
        }
        Pair {
            handle,
            number,
            cq,
            cq_base,
            taken: [0; 2],
            receive_base,
            received: 0,
            sent: 0,
            doorbells,
            send_offset,
        }
    }

    /// Changes the state, and sets the key.
    pub(crate) fn modify(&mut self, handle: u32, mask: u32, state: u32) -> Result<(), u8> {
        let mut payload = [0; 28];
        payload.put_u32(0, mask | 1 << 2);
        payload.put_u32(4, handle);
        payload.put_u32(8, state);
        payload.put_u32(16, 0x1234);
        payload.put_u8(25, 1);
        self.run(2, &payload).map(drop)
    }

    /// A region over some pages: their address, its local and its remote key.
    pub(crate) fn region(&mut self, pages: u64, permissions: u8) -> (u64, u32, u32) {
        let start = self.pages(pages);
        let list: Vec<_> = (0..pages).flat_map(|page| (start + page * PAGE).to_le_bytes()).collect();
        let mut payload = [0; 60];
        payload.put_u16(0, self.pd);
        payload.put_u64(36, pages * PAGE);
        payload.put(44, &[12, permissions]);
        payload.put_u64(52, start);
        let flags = if pages <= 4 {
            payload.put(4, &list);
            0
        } else {
            self.put(BUFFER, &list);
            payload.put_u32(4, list.len() as u32);
            payload.put_u64(8, BUFFER);
            2
        };
        let answer = self.run_with(7, flags, &payload).unwrap();
        (start, answer.u32(8), answer.u32(12))
    }

    pub(crate) fn address(&mut self, gid: Gid) -> Result<u16, u8> {
        let mut payload = [0; 20];
        payload.put(0, &gid.0);
        payload.put_u16(16, self.pd);
        self.run(5, &payload).map(|answer| answer.u16(8))
    }

    pub(crate) fn ring(&mut self, offset: u32, value: u32) {
        self.device.write_bar(4, offset.into(), &value.to_le_bytes()).unwrap();
    }

    /// Posts a receive of one segment.
    pub(crate) fn post_receive(&mut self, pair: &mut Pair, id: u16, address: u64, length: u16, key: u32) {
        let mut descriptor = [0; 16];
        descriptor.put_u64(0, address);
        descriptor.put_u16(8, id);
        descriptor.put_u16(10, length);
        descriptor.put_u32(12, key | 3 << 30);
        self.put(pair.receive_base + u64::from(pair.received % SLOTS) * 16, &descriptor);
        pair.received = pair.received.wrapping_add(1);
        self.ring(pair.doorbells[1], pair.received.into());
    }

    /// Puts a request into the next slot, and sets its phase.
    pub(crate) fn fill_slot(&mut self, pair: &mut Pair, mut slot: [u8; 128]) {
        slot[3] |= (pair.sent / SLOTS) as u8 & 1;
        let at = pair.send_offset + u32::from(pair.sent % SLOTS) * 128;
        // As a processor writes it: eight bytes at a time.
        for (i, word) in slot.chunks(8).enumerate() {
            self.device.write_bar(2, u64::from(at) + i as u64 * 8, word).unwrap();
        }
        pair.sent = pair.sent.wrapping_add(1);
    }

    pub(crate) fn ring_sends(&mut self, pair: &Pair) {
        self.ring(pair.doorbells[0], pair.sent.into());
    }

    /// The completions that have arrived, of both rings.
    pub(crate) fn poll(&mut self, pair: &mut Pair) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for (ring, taken) in pair.taken.iter_mut().enumerate() {
            loop {
                let slot = ring as u64 * u64::from(CQ_DEPTH) + u64::from(*taken % u32::from(CQ_DEPTH));
                let mut entry = vec![0; 32];
                self.device.memory.read(pair.cq_base + slot * 32, &mut entry).unwrap();
                if u32::from(entry.u8(3) & 1) != (*taken / u32::from(CQ_DEPTH) + 1) & 1 {
                    break;
                }
                *taken += 1;
                found.push(entry);
            }
        }
        found
    }
}

/// A request, in a slot of 128 bytes.
pub(crate) fn slot(operation: u8, id: u16, to: u16, address: u16) -> [u8; 128] {
    let mut slot = [0; 128];
    slot.put_u16(0, id);
    slot.put(2, &[0x80 | operation, 0x1c]);
    slot.put_u16(4, to);
    slot.put_u16(12, address);
    slot.put_u32(16, 0x1234);
    slot
}

#[test]
fn the_driver_begins_with_every_version_and_goes_around_its_rings() {
    for api in ["0.1", "0.2", "0.3"] {
        let mut guest = Guest::with(Limits::default(), api, 1);
        assert_eq!(guest.read(VERSION), u32::from(api.as_bytes()[2] - b'0'));
        assert_eq!((guest.read(CONTROLLER_VERSION), guest.read(CAPS) >> 16), (1, 0));
        for _ in 0..100 {
            let pd = guest.run(14, &[]).unwrap().u16(8);
            assert_eq!(guest.run(15, &pd.to_le_bytes()).map(drop), Ok(()));
            assert_eq!(guest.run(15, &pd.to_le_bytes()), Err(5));
        }
        assert_eq!(guest.device.complaints.len(), 0);
    }
}

#[test]
fn features_say_what_the_limits_are() {
    let mut guest =
        Guest::with(Limits { max_qp: 77, max_tx_batch: 9, device_caps: 1, ..Limits::default() }, "0.3", 1);
    let mut feature = |id: u8| {
        let mut payload = [0; 16];
        payload.put_u8(13, id);
        guest.run(11, &payload)
    };
    let device = feature(1).unwrap();
    assert_eq!((device.u16(36), device.u32(40), device.u64(48)), (4, 1, 0x0211_22ff_fe33_4401));
    let queues = feature(4).unwrap();
    assert_eq!((queues.u32(8), queues.u16(62)), (77, 9));
    assert_eq!(feature(3).unwrap().u32(24), 8928);
    assert_eq!([feature(6).map(drop), feature(8).map(drop), feature(255).map(drop)], [Err(3); 3]);
}

#[test]
fn what_the_driver_says_of_itself_is_kept_and_asynchronous_events_go_where_it_wants() {
    let mut guest = Guest::new();
    let mut payload = [0; 24];
    payload.put_u8(13, 6);
    payload.put_u32(0, 180);
    payload.put_u64(4, BUFFER);
    guest.put(BUFFER, b"Linux");
    assert_eq!(guest.run_with(12, 2, &payload).map(drop), Ok(()));
    assert_eq!(&guest.device.host[..6], b"Linux\0");
    payload.put_u64(4, u64::MAX - 3);
    assert_eq!(guest.run_with(12, 2, &payload), Err(5));
    assert!(!guest.device.asynchronous_event(4, 0));
    let mut payload = [0; 24];
    payload.put_u8(13, 2);
    payload.put_u32(20, 1 << 4);
    assert_eq!(guest.run(12, &payload).map(drop), Ok(()));
    // The queue has 16 places, and the driver has taken nothing.
    let told: Vec<_> = (0..17).map(|_| guest.device.asynchronous_event(4, 3)).collect();
    assert_eq!(told.iter().filter(|told| **told).count(), 16);
    assert!(!guest.device.asynchronous_event(1, 0));
    guest.set(AENQ_CONSUMER, 16);
    assert!(guest.device.asynchronous_event(4, 5));
    let entry = guest.bytes(AENQ, 16);
    assert_eq!((entry.u16(0), entry.u16(2), entry.u8(4)), (4, 5, 0));
}

#[test]
fn an_object_that_is_used_is_not_destroyed() {
    let mut guest = Guest::new();
    let pair = guest.qp(true);
    let (pd, uar, eq) = (guest.pd.to_le_bytes(), guest.uar.to_le_bytes(), guest.eq.to_le_bytes());
    assert_eq!(
        [guest.run(15, &pd), guest.run(17, &uar), guest.run(10, &pair.cq.to_le_bytes()), guest.run(19, &eq)],
        [Err(7); 4]
    );
    let destroyed = [
        guest.run(4, &pair.handle.to_le_bytes()),
        guest.run(10, &pair.cq.to_le_bytes()),
        guest.run(19, &eq),
        guest.run(17, &uar),
        guest.run(15, &pd),
    ];
    assert!(destroyed.iter().all(Result::is_ok), "{destroyed:?}");
    assert_eq!(guest.run(4, &pair.handle.to_le_bytes()), Err(5));
}

#[test]
fn an_address_has_one_number_as_often_as_it_is_asked_for() {
    let mut guest = Guest::new();
    let gid = Gid([7; 16]);
    let numbers = [guest.address(gid), guest.address(gid)];
    assert!(numbers[0].is_ok() && numbers[0] == numbers[1]);
    let mut payload = [0; 4];
    payload.put_u16(0, numbers[0].unwrap());
    assert_eq!(guest.run(6, &payload), Err(5));
    payload.put_u16(2, guest.pd);
    assert!(guest.run(6, &payload).is_ok() && guest.run(6, &payload).is_ok());
    assert_eq!(guest.run(6, &payload), Err(5));
}

#[test]
fn queues_that_make_no_sense_are_refused() {
    let mut guest = Guest::new();
    let good = guest.cq_payload(OBJECTS, [0, 4]);
    assert!(guest.run(9, &good).is_ok());
    let wrong: [(usize, &[u8]); 8] = [
        (1, &[5]),
        (1, &[4 | 1 << 5]),
        (2, &[15]),
        (2, &[0]),
        (20, &[1]),
        (22, &[9]),
        (0, &[1 << 5, 4, 16, 0, 99]),
        (0, &[1 << 6]),
    ];
    for (at, bytes) in wrong {
        let mut payload = good;
        payload.put(at, bytes);
        assert_eq!(guest.run(9, &payload), Err(5), "{at} {bytes:?}");
    }
    let cq = guest.run(9, &good).unwrap().u16(8);
    let good = guest.qp_payload(cq, OBJECTS, true, 0);
    let wrong: [(usize, u32); 9] =
        [(0, 99), (20, 99), (24, 99), (36, 17 * 128), (40, 15), (44, 17), (48, 17), (52, 99), (36, 16 * 32)];
    for (at, value) in wrong {
        let mut payload = good;
        payload.put_u32(at, value);
        assert_eq!(guest.run(1, &payload), Err(5), "{at} {value}");
    }
    assert!(guest.run(1, &good).is_ok());
}

#[test]
fn states_follow_each_other_as_they_may() {
    let mut guest = Guest::new();
    let pair = guest.qp(true);
    let state = |guest: &mut Guest| guest.run(3, &pair.handle.to_le_bytes()).unwrap().u32(8);
    assert_eq!(state(&mut guest), 3);
    assert_eq!([guest.modify(pair.handle, 1, 1), guest.modify(pair.handle, 1, 9)], [Err(5); 2]);
    assert_eq!(guest.modify(pair.handle, 1, 6), Ok(()));
    assert_eq!(guest.modify(pair.handle, 1, 3), Err(5));
    // The command names another state than the current one.
    assert_eq!(guest.modify(pair.handle, 3, 0), Err(5));
    assert_eq!((guest.modify(pair.handle, 1, 0), state(&mut guest)), (Ok(()), 0));
    assert_eq!(guest.modify(pair.handle, 1 << 9, 0), Err(5));
}

#[test]
fn there_are_no_more_objects_than_there_may_be() {
    let limits = Limits { max_pd: 1, max_ah: 1, max_mr: 1, max_cq: 1, max_qp: 1, ..Limits::default() };
    let mut guest = Guest::with(limits, "0.3", 1);
    let pair = guest.qp(true);
    guest.region(1, 1);
    let mut region = [0; 60];
    region.put_u16(0, guest.pd);
    region.put_u64(36, 8);
    region.put_u8(44, 12);
    let (cq, qp) = (guest.cq_payload(OBJECTS, [0, 4]), guest.qp_payload(pair.cq, OBJECTS, true, 0));
    assert!(guest.address(Gid([1; 16])).is_ok());
    assert_eq!(guest.address(Gid([2; 16])), Err(1));
    assert_eq!(
        [guest.run(14, &[]), guest.run(7, &region), guest.run(9, &cq), guest.run(1, &qp)],
        [Err(1); 4]
    );
}

#[test]
fn commands_fail_as_often_as_a_test_wants() {
    let mut guest = Guest::new();
    guest.device.faults.fail(14, super::Fault { status: 1, times: 2, after: 1 });
    let statuses: Vec<_> = (0..4).map(|_| guest.run(14, &[]).map(drop)).collect();
    assert_eq!(statuses, [Ok(()), Err(1), Err(1), Ok(())]);
}
