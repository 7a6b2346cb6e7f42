//! Messages between queue pairs, as a program sees them: posted requests, received messages, and the completions of both sides.

use std::time::{Duration, Instant};

use super::*;
use crate::admin::tests::{Guest, Pair, SLOTS, slot};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::limits::Limits;
use crate::queue::status;

mod hostile;

const ALL: u8 = 7;

/// The status of the only completion of each side; `None` if there is none.
type Statuses = (Option<u8>, Option<u8>);

/// Two queue pairs of one device that know each other's address, and memory for both.
struct Both {
    guest: Guest,
    a: Pair,
    b: Pair,
    address: u16,
    start: u64,
    key: u32,
    remote: u32,
}

impl Both {
    fn new(is_reliable: bool) -> Self {
        Self::with(is_reliable, Limits::default(), 0)
    }

    fn with(is_reliable: bool, limits: Limits, flags: u8) -> Self {
        let mut guest = Guest::with(limits, "0.3", 1);
        let (a, b) = (guest.qp_with(is_reliable, flags), guest.qp_with(is_reliable, flags));
        let address = guest.address(guest.device.gid).unwrap();
        let (start, key, remote) = guest.region(16, ALL);
        Self { guest, a, b, address, start, key, remote }
    }

    fn request(&self, operation: u8, id: u16, offset: u64, length: u32) -> [u8; 128] {
        let mut bytes = slot(operation, id, self.b.number, self.address);
        bytes.put_u16(6, 1);
        let at = if operation == 0 { 32 } else { 48 };
        bytes.put_u32(at, length);
        bytes.put_u32(at + 4, self.key);
        bytes.put_u64(at + 8, self.start + offset);
        if operation != 0 {
            bytes.put_u32(32, length);
            bytes.put_u32(36, self.remote);
            bytes.put_u64(40, self.start + 0x8000);
        }
        bytes
    }

    fn post(&mut self, request: [u8; 128]) {
        self.guest.fill_slot(&mut self.a, request);
        self.guest.ring_sends(&self.a);
    }

    fn receive(&mut self, id: u16, length: u16) {
        self.guest.post_receive(&mut self.b, id, self.start + 0x4000, length, self.key);
    }

    fn ends(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        (self.guest.poll(&mut self.a), self.guest.poll(&mut self.b))
    }

    fn statuses(&mut self) -> Statuses {
        let (a, b) = self.ends();
        assert!(a.len() <= 1 && b.len() <= 1, "{a:?} {b:?}");
        (a.first().map(|entry| entry.u8(2)), b.first().map(|entry| entry.u8(2)))
    }
}

#[test]
fn a_message_with_immediate_data_arrives_and_both_are_told() {
    let mut both = Both::new(true);
    both.guest.put(both.start, b"hello");
    both.receive(7, 100);
    let mut request = both.request(0, 0x400, 0, 5);
    request[2] |= 0x10;
    request.put_u32(8, 1234);
    request.put(26, &[1, 2, 3, 4, 5, 6]);
    both.post(request);
    let (sent, received) = both.ends();
    assert_eq!(both.guest.bytes(both.start + 0x4000, 5), b"hello");
    let mut expected = [0; 32];
    expected.put(0, &[0, 4, 0, 0x03]);
    expected.put_u16(4, both.a.number);
    expected.put(6, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(sent, [expected]);
    let mut expected = [0; 32];
    expected.put(0, &[7, 0, 0, 0x0d]);
    expected.put_u16(4, both.b.number);
    expected.put_u16(6, 5);
    expected.put_u16(8, both.address);
    expected.put_u16(10, both.a.number);
    expected.put_u32(12, 1234);
    assert_eq!(received, [expected]);
}

#[test]
fn inline_data_arrives_and_pieces_are_filled_in_their_order() {
    let mut both = Both::new(true);
    let mut descriptors = [0; 32];
    for (i, (address, length, control)) in
        [(0x4000, 3, 1_u32 << 30), (0x5000, 9, 1 << 31)].into_iter().enumerate()
    {
        let descriptor = &mut descriptors[i * 16..];
        descriptor.put_u64(0, both.start + address);
        descriptor.put_u16(8, 5);
        descriptor.put_u16(10, length);
        descriptor.put_u32(12, both.key | control);
    }
    // The place of the ring is known from a receive that is posted in the usual way.
    both.receive(1, 100);
    let base = both.guest.device.qps.get(both.b.handle).unwrap().receive.base;
    both.guest.put(base + 16, &descriptors);
    both.b.received += 2;
    both.guest.ring(both.b.doorbells[1], both.b.received.into());
    for text in [b"first!", b"second"] {
        let mut request = slot(0, 1, both.b.number, both.address);
        request[2] |= 0x20;
        request.put_u16(6, 6);
        request.put(32, text);
        both.post(request);
    }
    let (sent, received) = both.ends();
    assert_eq!((sent.len(), received.len(), received[1].u16(0)), (2, 2, 5));
    assert_eq!(
        (both.guest.bytes(both.start + 0x4000, 3), both.guest.bytes(both.start + 0x5000, 3)),
        (b"sec".to_vec(), b"ond".to_vec())
    );
}

#[test]
fn a_datagram_lies_behind_forty_bytes_and_the_sender_ends_at_once() {
    let mut both = Both::new(false);
    both.guest.put(both.start, b"hello");
    // The first one has no receive.
    both.post(both.request(0, 1, 0, 5));
    assert_eq!((both.statuses(), both.guest.device.statistics.rx_drops), ((Some(0), None), 1));
    both.receive(7, 45);
    both.post(both.request(0, 2, 0, 5));
    let (sent, received) = both.ends();
    assert_eq!((sent[0].u16(0), received[0].u16(6)), (2, 45));
    let data = both.guest.bytes(both.start + 0x4000, 45);
    assert_eq!(
        (&data[..1], &data[8..24], &data[40..]),
        (&[0x60][..], &both.guest.device.gid.0[..], &b"hello"[..])
    );
    // A message that is too long consumes its receive.
    both.receive(8, 44);
    both.post(both.request(0, 3, 0, 5));
    assert_eq!(both.statuses(), (Some(0), Some(status::BAD_LENGTH)));
}

#[test]
fn reads_and_writes_of_many_packets_move_all_bytes() {
    for hold in [0, 8] {
        let mut both = Both::new(true);
        both.guest.device.fabric.hold = hold;
        let data: Vec<u8> = (0..0x8000_u32).map(|i| (i * 7 % 253) as u8).collect();
        both.guest.put(both.start, &data);
        both.post(both.request(2, 1, 0, 0x8000));
        both.guest.device.tick(Instant::now());
        assert_eq!(both.statuses(), (Some(0), None));
        assert_eq!(both.guest.bytes(both.start + 0x8000, 0x8000), data);
        both.guest.put(both.start, &vec![0; 0x8000]);
        both.post(both.request(1, 2, 0, 0x8000));
        both.guest.device.tick(Instant::now());
        let (sent, _) = both.ends();
        assert_eq!((sent.len(), sent[0].u8(2), sent[0].u8(3) >> 4 & 7), (1, 0, 1));
        assert_eq!(both.guest.bytes(both.start, 0x8000), data);
        let statistics = &both.guest.device.statistics;
        assert_eq!((statistics.write_receive_bytes, statistics.read_response_bytes), (0x8000, 0x8000));
    }
}

#[test]
fn a_write_with_immediate_data_takes_a_receive_unless_none_is_wanted() {
    let mut both = Both::new(true);
    let mut request = both.request(2, 1, 0, 0x8000);
    request[2] |= 0x10;
    request.put_u32(8, 9);
    both.receive(7, 0);
    both.post(request);
    let (sent, received) = both.ends();
    assert_eq!(
        (sent[0].u8(2), received[0].u16(0), received[0].u8(3), received[0].u16(6)),
        (0, 7, 0x2d, 0x8000)
    );
    both.post(request);
    assert_eq!(both.statuses(), (Some(status::NO_RECEIVE), None));
    let mut both = Both::with(true, Limits::default(), 1 << 2);
    let mut request = both.request(2, 1, 0, 0x8000);
    request[2] |= 0x10;
    both.post(request);
    let (sent, received) = both.ends();
    assert_eq!((sent[0].u8(2), received[0].u16(0), received[0].u8(3)), (0, 0, 0xad));
}

#[test]
fn requests_overtake_each_other_and_none_is_lost() {
    let order = |seed, hold| {
        let mut both = Both::new(true);
        both.guest.device.fabric.hold = hold;
        both.guest.device.fabric.seed(seed);
        for id in 0..12 {
            both.receive(id, 100);
        }
        for id in 0..12 {
            let request = both.request(0, id, 0, 4);
            both.guest.fill_slot(&mut both.a, request);
            // The maximum that may be written before a doorbell.
            if id % 6 == 5 {
                both.guest.ring_sends(&both.a);
            }
        }
        both.guest.device.tick(Instant::now());
        let (sent, received) = both.ends();
        assert_eq!((sent.len(), received.len()), (12, 12));
        let ids: Vec<_> = sent.iter().map(|entry| entry.u16(0)).collect();
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>());
        ids
    };
    assert_eq!(order(1, 0), (0..12).collect::<Vec<_>>());
    assert_ne!(order(1, 8), order(1, 0));
    assert_eq!(order(1, 8), order(1, 8));
    assert_ne!(order(1, 8), order(2, 8));
}

#[test]
fn what_goes_wrong_has_its_status() {
    let mut both = Both::new(true);
    let send = both.request(0, 1, 0, 5);
    let mut outcome = |request: [u8; 128], receive: Option<u16>| {
        if let Some(length) = receive {
            both.receive(1, length);
        }
        both.post(request);
        both.statuses()
    };
    let with = |mut request: [u8; 128], at: usize, value: u32| {
        request.put_u32(at, value);
        request
    };
    assert_eq!(outcome(send, None), (Some(status::NO_RECEIVE), None));
    assert_eq!(outcome(send, Some(4)), (Some(status::REMOTE_LENGTH), Some(status::BAD_LENGTH)));
    assert_eq!(outcome(with(send, 36, 0x999), None), (Some(status::BAD_LOCAL_KEY), None));
    assert_eq!(outcome(with(send, 12, 99), None), (Some(status::BAD_ADDRESS_HANDLE), None));
    assert_eq!(outcome(with(send, 16, 5), None), (Some(status::BAD_DESTINATION), None));
    assert_eq!(outcome(with(send, 4, 0x1_7777), None), (Some(status::BAD_DESTINATION), None));
    assert_eq!(outcome(with(send, 32, 8929), None), (Some(status::BAD_LENGTH), None));
    for operation in [1, 2] {
        let (request, key) = (both.request(operation, 1, 0, 64), both.key);
        let mut outcome = |request| {
            both.post(request);
            both.statuses()
        };
        assert_eq!(outcome(with(request, 36, key)), (Some(status::REMOTE_ADDRESS), None));
        assert_eq!(outcome(with(request, 44, 1)), (Some(status::REMOTE_ADDRESS), None));
        assert_eq!(outcome(with(request, 32, 65)), (Some(status::BAD_LENGTH), None));
        assert_eq!(outcome(with(request, 52, 0x999)), (Some(status::BAD_LOCAL_KEY), None));
    }
    assert_eq!(both.guest.device.qps.get(both.a.handle).unwrap().send.under_way, 0);
}

#[test]
fn who_is_not_known_may_not_read() {
    let mut both = Both::new(true);
    let request = both.request(1, 1, 0, 64);
    let mut own = [0; 4];
    own.put_u16(0, both.address);
    own.put_u16(2, both.guest.pd);
    // The address, which is the destination of the request, now belongs only to the other domain.
    let old = both.guest.pd;
    both.guest.pd = both.guest.run(14, &[]).unwrap().u16(8);
    let c = both.guest.qp(true);
    both.guest.pd = old;
    let mut request = request;
    request.put_u16(4, c.number);
    both.post(request);
    assert_eq!(both.statuses(), (Some(status::UNKNOWN_PEER), None));
}

#[test]
fn without_a_receive_it_is_tried_again_as_often_as_was_said() {
    let mut both = Both::new(true);
    both.guest.modify(both.a.handle, 1 << 5, 0).unwrap();
    let later = Instant::now() + Duration::from_secs(1);
    both.post(both.request(0, 1, 0, 5));
    assert_eq!(both.statuses(), (None, None));
    both.receive(1, 100);
    both.guest.device.tick(later);
    assert_eq!(both.statuses(), (Some(0), Some(0)));
    both.post(both.request(0, 2, 0, 5));
    both.guest.device.tick(later);
    assert_eq!(
        (both.statuses(), both.guest.device.statistics.retries),
        ((Some(status::NO_RECEIVE), None), 2)
    );
}

#[test]
fn in_error_everything_ends_and_what_comes_later_too() {
    let mut both = Both::new(true);
    both.guest.device.fabric.hold = 64;
    both.receive(1, 100);
    both.receive(2, 100);
    both.guest.modify(both.b.handle, 1, 6).unwrap();
    let (_, received) = both.ends();
    assert_eq!(
        received.iter().map(|entry| (entry.u16(0), entry.u8(2))).collect::<Vec<_>>(),
        [(1, 1), (2, 1)]
    );
    both.receive(3, 100);
    assert_eq!(both.statuses(), (None, Some(status::FLUSHED)));
    both.guest.modify(both.a.handle, 1, 6).unwrap();
    both.post(both.request(0, 1, 0, 5));
    assert_eq!(both.statuses(), (Some(status::FLUSHED), None));
}

#[test]
fn who_rings_for_more_than_may_be_written_breaks_the_queue() {
    let complaint = |sends: u16, limits: Limits| {
        let mut both = Both::with(true, limits, 0);
        for id in 0..sends {
            let request = both.request(0, id, 0, 5);
            both.guest.fill_slot(&mut both.a, request);
        }
        both.guest.ring_sends(&both.a);
        let state = both.guest.device.qps.get(both.a.handle).unwrap().state;
        (both.guest.device.complaints.len(), state)
    };
    let wide = Limits { max_tx_batch: 0, ..Limits::default() };
    // 16 units of 64 bytes are 8 slots of 128.
    assert_eq!((complaint(8, Limits::default()), complaint(9, Limits::default())), ((0, 3), (1, 6)));
    assert_eq!((complaint(SLOTS - 1, wide.clone()), complaint(SLOTS, wide.clone())), ((0, 3), (1, 6)));
    assert_eq!(complaint(SLOTS, Limits { min_sq_depth: 0, ..wide.clone() }), (0, 3));
    assert_eq!(complaint(SLOTS + 1, Limits { min_sq_depth: 0, ..wide }), (1, 6));
    // A slot that was never written.
    let mut both = Both::new(true);
    both.guest.ring(both.a.doorbells[0], 1);
    assert_eq!(both.guest.device.complaints.len(), 1);
}

#[test]
fn a_queue_that_is_armed_tells_once() {
    let mut both = Both::new(true);
    for id in 0..3 {
        both.receive(id, 100);
    }
    let events = |both: &Both| both.guest.device.statistics.completion_events;
    let arm = |both: &mut Both, taken: u32, events: u32| {
        both.guest.ring(both.b.doorbells[2], taken | events << 29 | 1 << 31)
    };
    both.post(both.request(0, 1, 0, 5));
    assert_eq!(events(&both), 0);
    // A completion was not taken: its event is made immediately.
    arm(&mut both, 0, 0);
    assert_eq!(events(&both), 1);
    // An event that was not taken is sufficient; after it is taken, the queue is armed again.
    arm(&mut both, 1, 0);
    both.post(both.request(0, 2, 0, 5));
    assert_eq!(events(&both), 1);
    arm(&mut both, 2, 1);
    assert_eq!(events(&both), 1);
    both.post(both.request(0, 3, 0, 5));
    assert_eq!(events(&both), 2);
}

#[test]
fn counters_count_what_they_are_attached_for() {
    let mut both = Both::new(true);
    let page = both.guest.pages(1);
    let mut payload = [0; 12];
    payload.put_u16(0, both.guest.uar);
    let mut counter = |at: u64| {
        payload.put_u64(4, page + at);
        both.guest.run(25, &payload).unwrap().u32(8)
    };
    let (good, bad) = (counter(0), counter(8));
    payload.put_u64(4, page + 4);
    assert_eq!(both.guest.run(25, &payload), Err(5));
    let attach = |both: &mut Both, opcode, counter: u32, handle: u32, events: u32| {
        let mut payload = [0; 16];
        payload.put_u32(0, counter);
        payload.put_u32(8, handle);
        payload.put_u32(12, events);
        both.guest.run(opcode, &payload).map(drop)
    };
    let (a, b) = (both.a.handle, both.b.handle);
    assert_eq!(attach(&mut both, 27, good, a, 0b0101), Ok(()));
    assert_eq!(attach(&mut both, 27, bad, a, 0b1010), Ok(()));
    assert_eq!([attach(&mut both, 27, bad, a, 1), attach(&mut both, 27, bad, a, 1 << 20)], [Err(5); 2]);
    assert_eq!(attach(&mut both, 27, good, b, 1 << 9), Ok(()));
    both.receive(1, 100);
    for id in 0..2 {
        both.post(both.request(0, id, 0, 5));
    }
    both.post(both.request(2, 3, 0, 5));
    let value = |both: &Both, at| both.guest.bytes(page + at, 8).u64(0);
    assert_eq!((value(&both, 0), value(&both, 8)), (2, 1));
    let modify = |both: &mut Both, operation: u8, number: u64| {
        let mut payload = [0; 20];
        payload.put_u32(0, good);
        payload.put_u8(4, operation);
        payload.put_u64(12, number);
        both.guest.run(28, &payload).map(drop)
    };
    let end = both.guest.device.limits.max_counter_value;
    assert_eq!((modify(&mut both, 0, end), value(&both, 0)), (Ok(()), end));
    assert_eq!((modify(&mut both, 1, 3), value(&both, 0)), (Ok(()), 2));
    assert_eq!([modify(&mut both, 0, end + 1), modify(&mut both, 2, 1)], [Err(5); 2]);
    assert_eq!(both.guest.run(26, &good.to_le_bytes()), Err(7));
    assert_eq!(attach(&mut both, 29, good, b, 1 << 9), Ok(()));
    assert_eq!(attach(&mut both, 29, good, b, 1 << 9), Err(5));
    // Destroying a queue pair releases its counters.
    assert!(both.guest.run(4, &a.to_le_bytes()).is_ok());
    assert!(
        both.guest.run(26, &good.to_le_bytes()).is_ok() && both.guest.run(26, &bad.to_le_bytes()).is_ok()
    );
}

#[test]
fn another_device_answers_or_time_runs_out() {
    let mut both = Both::new(true);
    let mut other = Guest::with(Limits::default(), "0.3", 2);
    let mut peer = other.qp(true);
    let (start, key, _) = other.region(1, ALL);
    // The first request may still find the queue pair.
    for _ in 0..2 {
        other.post_receive(&mut peer, 9, start, 100, key);
    }
    both.address = both.guest.address(other.device.gid).unwrap();
    let mut request = both.request(0, 1, 0, 5);
    request.put_u16(4, peer.number);
    // There is no wire.
    both.post(request);
    assert_eq!(both.statuses(), (Some(status::UNREACHABLE), None));

    let home = std::env::temp_dir().join(format!("vefa-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let paths = ["a", "b"].map(|name| home.join(name).display().to_string());
    both.guest.put(both.start, b"hello");
    let (mut near, far) = (both, std::sync::Arc::new(std::sync::Mutex::new(other.device)));
    let device = std::mem::replace(
        &mut near.guest.device,
        Device::new(Limits::default(), "0.3".parse().unwrap(), Gid::default()),
    );
    let here = std::sync::Arc::new(std::sync::Mutex::new(device));
    connect(&format!("{},{}", paths[0], paths[1]).parse().unwrap(), &here).unwrap();
    // Frames wait as long as the device exists on this side.
    let with = |near: &mut Both, act: &dyn Fn(&mut Both) -> Statuses| {
        let mut device = lock(&here);
        std::mem::swap(&mut *device, &mut near.guest.device);
        let result = act(near);
        std::mem::swap(&mut *device, &mut near.guest.device);
        result
    };
    let post = |near: &mut Both| {
        with(near, &|near| {
            near.post(request);
            (None, None)
        })
    };
    let statuses = |near: &mut Both| with(near, &|near| near.statuses());
    // There is no device at the other end.
    post(&mut near);
    lock(&here).tick(Instant::now() + Duration::from_secs(4));
    assert_eq!(statuses(&mut near), (Some(status::UNREACHABLE), None));
    connect(&format!("{},{}", paths[1], paths[0]).parse().unwrap(), &far).unwrap();
    post(&mut near);
    let begun = Instant::now();
    while lock(&here).fabric.under_way() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(statuses(&mut near), (Some(0), None));
    other.device = std::mem::replace(
        &mut *lock(&far),
        Device::new(Limits::default(), "0.3".parse().unwrap(), Gid::default()),
    );
    let received = other.poll(&mut peer);
    assert_eq!(
        (received[0].u16(0), received[0].u16(8), &received[0][16..18]),
        (9, 0xffff, &[0xfe, 0x80][..])
    );
    assert_eq!(other.bytes(start, 5), b"hello");
    std::fs::remove_dir_all(&home).unwrap();
}
