//! Completions and their ownership, and requests to receive and to send, in memory with the driver's layout.

mod compressed;

use super::*;
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::command::{create_cq_in, create_mkey_in, modify_cq_in};
use crate::ifc::context::{cqc, mkc, rqc, sqc, wq};
use crate::mkey::Mkeys;
use crate::packet::Large;
use vpci::Memory;

const RING: u64 = 0x1000;
const DOORBELL: u64 = 0x2000;
const DATA: u64 = 0x4000;
const PD: u32 = 7;
const KEY: u32 = 0x1042;

fn guest() -> Memory {
    Memory::zeroed(&[(RING, 4096), (DOORBELL, 4096), (DATA, 8192)])
}

fn keys() -> Mkeys {
    let mut input = vec![0; 272 + 16];
    let context = input.part_mut(create_mkey_in::memory_key_mkey_entry);
    let values =
        [(mkc::pd, PD), (mkc::qpn, 0xff_ffff), (mkc::lr, 1), (mkc::lw, 1), (mkc::mkey_7_0, KEY & 0xff)];
    for (field, value) in values {
        context.set(field, value);
    }
    context.set(mkc::start_addr, DATA);
    context.set(mkc::len, 8192_u32);
    let mut keys = Mkeys::default();
    keys.insert(KEY >> 8, &input).unwrap();
    keys
}

/// CREATE_CQ of a queue at [`RING`].
fn create(log_size: u32, entry: u32) -> Vec<u8> {
    let mut input = vec![0; 272 + 8];
    let context = input.part_mut(create_cq_in::cq_context);
    context.set(cqc::log_cq_size, log_size);
    context.set(cqc::cqe_sz, entry);
    context.set(cqc::dbr_addr, DOORBELL);
    input.part_mut(create_cq_in::pas).copy_from_slice(&RING.to_be_bytes());
    input
}

fn cq(log_size: u32, entry: u32) -> Cq {
    Cq::new(&create(log_size, entry)).unwrap()
}

/// MODIFY_CQ to a ring at [`DATA`].
fn other_ring(log_size: u32, entry: u32) -> Vec<u8> {
    let mut input = vec![0; 272 + 8];
    let context = input.part_mut(modify_cq_in::cq_context);
    context.set(cqc::log_cq_size, log_size);
    context.set(cqc::cqe_sz, entry);
    input.part_mut(modify_cq_in::pas).copy_from_slice(&DATA.to_be_bytes());
    input
}

#[test]
fn a_resized_queue_goes_on_in_the_new_ring_behind_the_place_of_its_own_entry() {
    let memory = guest();
    let mut cq = cq(1, 0);
    assert_eq!(cq.post(&memory, completion(0), false), Ok(Posted::Silently));
    // One completion is left: with the special entry of the resize the ring is full.
    assert_eq!(cq.resize(&memory, &other_ring(3, 1)), Err(Status::BadParameter));
    assert_eq!(cq.resize(&memory, &other_ring(0, 0)), Err(Status::BadSize));
    assert_eq!(cq.arm(1), Posted::Silently);
    assert_eq!(cq.resize(&memory, &other_ring(3, 0)), Ok(()));
    let kind = |at: u64| {
        let mut entry = [0; 64];
        memory.read(at, &mut entry).unwrap();
        entry[63]
    };
    assert_eq!((kind(RING + 64), kind(DATA), kind(DATA + 64)), (5 << 4, 0, 0));
    // Still armed, and with the new size: eight entries, of which two are used.
    assert_eq!(cq.post(&memory, completion(1), false), Ok(Posted::Event));
    assert_eq!(kind(DATA + 2 * 64), 2 << 4);
    for counter in 2..7 {
        assert_eq!(cq.post(&memory, completion(counter), false), Ok(Posted::Silently));
    }
    assert_eq!(cq.post(&memory, completion(7), false), Ok(Posted::Overrun));
}

fn completion(counter: u16) -> CompletionEntry {
    CompletionEntry::new(Opcode::Responder, 0x1234, counter)
}

#[test]
fn a_completion_says_when_unless_it_says_what_failed() {
    let time = 0x0102_0304_0506_0708_u64;
    assert_eq!(completion(1).at(time).bytes[48..56], time.to_be_bytes());
    let failed = CompletionEntry::new(Opcode::ResponderError, 1, 1).error(Syndrome::Length).at(time);
    assert_eq!(failed.bytes[48..56], [0, 0, 0, 0, 0, 0, 0, Syndrome::Length as u8]);
}

fn consumed(memory: &Memory, count: u32) {
    memory.write(DOORBELL, &count.to_be_bytes()).unwrap();
}

#[test]
fn the_owner_of_completions_turns_with_each_round() {
    for (kind, size, at) in [(0, 64, 0), (1, 128, 64)] {
        let memory = guest();
        let mut cq = cq(2, kind);
        for i in 0..12_u32 {
            consumed(&memory, i);
            assert_eq!(cq.post(&memory, completion(i as u16), false), Ok(Posted::Silently));
            let mut entry = [0; 64];
            memory.read(RING + u64::from(i % 4) * size + at, &mut entry).unwrap();
            assert_eq!(entry[63], 2 << 4 | (i / 4 % 2) as u8);
            assert_eq!((entry[32..36].to_vec(), entry[61]), (vec![0, 0, 0x12, 0x34], i as u8));
        }
    }
}

#[test]
fn a_full_queue_is_lost() {
    let memory = guest();
    let mut cq = cq(1, 0);
    let posted: Vec<_> = (0..4).map(|i| cq.post(&memory, completion(i), false).unwrap()).collect();
    assert_eq!(posted, [Posted::Silently, Posted::Silently, Posted::Overrun, Posted::Silently]);
    consumed(&memory, 2);
    assert_eq!(cq.post(&memory, completion(9), false), Ok(Posted::Silently));
    assert_eq!(cq.context.num(cqc::producer_counter), 2, "nothing is written any more");
}

#[test]
fn an_event_comes_once_for_each_arming() {
    const SOLICITED: u32 = 1 << 24;
    let memory = guest();
    let mut cq = cq(4, 0);
    assert_eq!(cq.arm(0), Posted::Silently);
    assert_eq!(cq.post(&memory, completion(0), false), Ok(Posted::Event));
    assert_eq!(cq.post(&memory, completion(1), false), Ok(Posted::Silently));
    assert_eq!(cq.arm(1), Posted::Event, "one has not been seen");
    assert_eq!(cq.arm(1), Posted::Silently, "that has been told");
    assert_eq!(cq.arm(2), Posted::Silently);
    assert_eq!(cq.arm(SOLICITED | 2), Posted::Silently);
    assert_eq!(cq.post(&memory, completion(2), false), Ok(Posted::Silently));
    let error = CompletionEntry::new(Opcode::ResponderError, 0, 3).error(Syndrome::Protection);
    assert_eq!(cq.post(&memory, error, false), Ok(Posted::Event));
    assert_eq!(cq.arm(SOLICITED | 3), Posted::Silently, "it has been told");
    let error = CompletionEntry::new(Opcode::ResponderError, 0, 4).error(Syndrome::Protection);
    assert_eq!(cq.post(&memory, error, false), Ok(Posted::Event));
    let error = CompletionEntry::new(Opcode::ResponderError, 0, 5).error(Syndrome::Protection);
    assert_eq!(cq.post(&memory, error, false), Ok(Posted::Silently));
    assert_eq!(cq.arm(SOLICITED | 3), Posted::Event);
    assert_eq!(cq.arm(SOLICITED | 6), Posted::Silently);
}

/// The context of a send or receive queue with 4 entries, with the ring's part behind it.
fn queue(ring: crate::bits::Field, log_stride: u32) -> Vec<u8> {
    let mut context = vec![0; 240 + 8];
    let mut set = |field: crate::bits::Field, value: u64| context.set(field.within(ring), value);
    for (field, value) in
        [(wq::wq_type, 1), (wq::pd, u64::from(PD)), (wq::dbr_addr, DOORBELL), (wq::log_wq_sz, 2)]
    {
        set(field, value);
    }
    set(wq::log_wq_stride, log_stride.into());
    context[240..].copy_from_slice(&RING.to_be_bytes());
    context
}

fn segment(len: u32, key: u32, address: u64) -> Vec<u8> {
    [&len.to_be_bytes()[..], &key.to_be_bytes(), &address.to_be_bytes()].concat()
}

fn received<'a>(bytes: &'a [u8]) -> Receive<'a> {
    Receive { bytes, tag: 0x1_2345, hash: 0xaabb_ccdd, headers: [7, 8], sum: [9, 10] }
}

/// Receives a packet into two pieces of memory, of 16 bytes with one key and 48 with another.
fn receive(context: &[u8], keys: [u32; 2], packet: &[u8]) -> ([u8; 64], Vec<u8>) {
    let memory = guest();
    let mut rq = Rq::new(context).unwrap();
    memory.write(RING, &[segment(16, keys[0], DATA), segment(48, keys[1], DATA + 0x1000)].concat()).unwrap();
    consumed(&memory, 1);
    let request = rq.ring.as_mut().unwrap().take(&memory).unwrap().unwrap();
    let entry = rq.fill(&memory, &self::keys(), PD, request, &received(packet));
    assert_eq!(rq.ring.as_mut().unwrap().take(&memory), Ok(None));
    let mut bytes = vec![0; 64];
    memory.read(DATA, &mut bytes[..16]).unwrap();
    memory.read(DATA + 0x1000, &mut bytes[16..]).unwrap();
    (entry.bytes, bytes)
}

#[test]
fn a_packet_fills_the_pieces_of_a_request() {
    let mut context = queue(rqc::wq, 5);
    context.set(rqc::vsd, 1_u32);
    let packet: Vec<u8> = (0..60).collect();
    let (entry, bytes) = receive(&context, [KEY, KEY], &packet);
    assert_eq!(bytes[..60], packet);
    assert_eq!((entry[63], entry[47]), (2 << 4, 60));
    assert_eq!((&entry[12..16], &entry[28..30]), (&[0xaa, 0xbb, 0xcc, 0xdd][..], &[7, 8][..]));
    assert_eq!((&entry[20..22], &entry[56..60]), (&[9, 10][..], &[0, 1, 0x23, 0x45][..]));
    // With the frame check sequence it is four bytes longer, and then one byte too long for the request.
    context.set(rqc::scatter_fcs, 1_u32);
    let (entry, bytes) = receive(&context, [KEY, KEY], &packet);
    assert_eq!((entry[47], &bytes[60..]), (64, &crate::packet::fcs(&packet)[..]));
    let (entry, _) = receive(&context, [KEY, KEY], &[0; 61]);
    assert_eq!((entry[63], entry[55]), (14 << 4, Syndrome::Length as u8));
}

#[test]
fn a_tag_is_taken_out_unless_it_stays() {
    let mut context = queue(rqc::wq, 5);
    let packet = [&[2; 12][..], &[0x81, 0, 0x60, 0x05, 8, 0], &[9; 20]].concat();
    let (entry, bytes) = receive(&context, [KEY, KEY], &packet);
    assert_eq!((entry[29] & 1, &entry[30..32], entry[47]), (1, &[0x60, 0x05][..], 34));
    assert_eq!(bytes[10..16], [2, 2, 8, 0, 9, 9]);
    context.set(rqc::vsd, 1_u32);
    let (entry, bytes) = receive(&context, [KEY, KEY], &packet);
    assert_eq!((entry[29] & 1, entry[47], &bytes[..38]), (0, 38, &packet[..]));
}

#[test]
fn a_request_with_a_bad_key_fails_and_a_list_may_end_early() {
    let context = queue(rqc::wq, 5);
    for key in [KEY ^ 1, KEY ^ 0x100] {
        let (entry, _) = receive(&context, [KEY, key], &[1; 60]);
        assert_eq!((entry[63], entry[55]), (14 << 4, Syndrome::Protection as u8));
    }
    let (entry, _) = receive(&context, [KEY, 0x100], &[1; 17]);
    assert_eq!(entry[55], Syndrome::Length as u8);
    let (entry, _) = receive(&context, [KEY, 0x100], &[1; 16]);
    assert_eq!(entry[63], 2 << 4);
}

fn work_request(opcode: u8, counter: u16, rest: &[u8]) -> Vec<u8> {
    let mut request = vec![0; 16];
    request[1..3].copy_from_slice(&counter.to_be_bytes());
    request[3] = opcode;
    request.extend(rest);
    request[7] = (request.len() / 16) as u8;
    request[11] = 8;
    request.resize(request.len().next_multiple_of(64), 0);
    request
}

/// The result of a request, and the kind of its completion.
type Sent = (Result<Option<Vec<u8>>, Syndrome>, Option<u8>);

fn sent(context: &[u8], requests: &[Vec<u8>]) -> Vec<Sent> {
    let memory = guest();
    let (mut sq, keys) = (Sq::new(context).unwrap(), keys());
    sq.set_state(state::READY);
    let mut ring = requests.concat();
    ring.truncate(256);
    memory.write(RING, &ring).unwrap();
    memory.write(DATA, &(0..64).collect::<Vec<u8>>()).unwrap();
    memory.write(DOORBELL + 4, &((requests.concat().len() / 64) as u32).to_be_bytes()).unwrap();
    let mut all = Vec::new();
    while let Some(work) = sq.take(&memory, &keys, 64).unwrap() {
        let opcode = sq.completion(5, &work).map(|entry| entry.bytes[63] >> 4);
        if work.result.is_err() {
            sq.set_state(state::ERROR);
        }
        all.push((work.result.map(|send| send.map(|send| send.bytes)), opcode));
    }
    all
}

#[test]
fn packets_are_gathered_from_headers_and_memory() {
    let context = queue(sqc::wq, 6);
    // 18 bytes of headers in the request, and a piece of memory.
    let mut ethernet = vec![0; 32];
    ethernet[13] = 18;
    ethernet[14..32].fill(0xcc);
    let inline = [ethernet, segment(10, KEY, DATA + 2)].concat();
    // A VLAN tag to insert.
    let mut ethernet = vec![0; 16];
    ethernet[12..16].copy_from_slice(&[0x80, 0, 0x60, 0x07]);
    let tagged = [ethernet, segment(20, KEY, DATA)].concat();
    let out = sent(
        &context,
        &[work_request(0x0a, 0, &inline), work_request(0, 2, &[]), work_request(0x0a, 3, &tagged)],
    );
    assert_eq!(out[0], (Ok(Some([&[0xcc; 18][..], &[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]].concat())), Some(0)));
    assert_eq!(out[1], (Ok(None), Some(0)));
    let tagged =
        [&(0..12).collect::<Vec<u8>>()[..], &[0x81, 0, 0x60, 7], &(12..20).collect::<Vec<u8>>()].concat();
    assert_eq!(out[2], (Ok(Some(tagged)), Some(0)));
}

/// The Ethernet segment of a large send with a header of 14 bytes, or none.
fn large(header: u8, mss: u8) -> Vec<u8> {
    let mut ethernet = vec![0; 16];
    (ethernet[7], ethernet[13]) = (mss, header);
    ethernet[14..].fill(0xcc);
    ethernet.resize(if header > 0 { 32 } else { 16 }, 0xcc);
    ethernet
}

#[test]
fn a_large_send_is_gathered_with_the_way_to_cut_it() {
    let request = [large(14, 4), segment(64, KEY, DATA)].concat();
    let (memory, keys, mut sq) = (guest(), keys(), Sq::new(&queue(sqc::wq, 6)).unwrap());
    sq.set_state(state::READY);
    memory.write(RING, &work_request(0x0e, 0, &request)).unwrap();
    memory.write(DOORBELL + 4, &1_u32.to_be_bytes()).unwrap();
    let work = sq.take(&memory, &keys, 64).unwrap().unwrap();
    let send = work.result.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((send.large, send.bytes.len()), (Some(Large { header: 14, mss: 4 }), 78));
    // The completion names the opcode.
    assert_eq!(sq.completion(5, &work).unwrap().bytes[56..60], [0x0e, 0, 0, 5]);
}

#[test]
fn a_request_that_fails_ends_the_queue() {
    let context = queue(sqc::wq, 6);
    let good = work_request(0x0a, 0, &[vec![0; 16], segment(20, KEY, DATA)].concat());
    let cases = [
        (work_request(0x0a, 0, &[vec![0; 16], segment(20, KEY ^ 1, DATA)].concat()), Syndrome::Protection),
        (work_request(0x0a, 0, &[vec![0; 16], segment(20, KEY, DATA + 8190)].concat()), Syndrome::Protection),
        (work_request(0x0a, 0, &[vec![0; 16], segment(20_000, KEY, DATA)].concat()), Syndrome::Length),
        (work_request(0x25, 0, &[0; 16]), Syndrome::Operation),
        // Large sends: without a segment size, without a header, and too large.
        (work_request(0x0e, 0, &[large(14, 0), segment(20, KEY, DATA)].concat()), Syndrome::Operation),
        (work_request(0x0e, 0, &[large(0, 4), segment(20, KEY, DATA)].concat()), Syndrome::Operation),
        (work_request(0x0e, 0, &[large(14, 4), segment(65, KEY, DATA)].concat()), Syndrome::Length),
        (work_request(0x0a, 0, &[]), Syndrome::Operation),
    ];
    for (bad, syndrome) in cases {
        let out = sent(&context, &[bad, good.clone()]);
        assert_eq!(out, [(Err(syndrome), Some(13)), (Err(Syndrome::Flushed), Some(13))]);
    }
}

#[test]
fn a_request_that_is_longer_than_what_was_rung_for_fails() {
    let context = queue(sqc::wq, 6);
    let long = work_request(0, 0, &[0; 64]);
    assert_eq!(sent(&context, std::slice::from_ref(&long)), [(Ok(None), Some(0))]);
    assert_eq!(sent(&context, &[long[..64].to_vec()]), [(Err(Syndrome::Operation), Some(13))]);
}
