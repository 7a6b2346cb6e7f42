//! Two queue pairs that are connected to each other, with requests in memory with the driver's layout.

mod counters;

use super::*;
use crate::bits::{BitsMut, Field};
use crate::command::Capabilities;
use crate::ifc::command::{create_cq_in, create_mkey_in, create_qp_in};
use crate::ifc::context::{ads, cqc, mkc};
use crate::port::LinkLayer;
use uverbs::raw::roce::Operation;
use vpci::Memory;

const PD: u32 = 3;
const KEY: u32 = 0x1055;
const LID: u16 = 7;
const ALL_MEMORY: u64 = 0x10_0000;
/// The end of receive requests and the beginning of send requests.
const SENDS: u64 = 256;

/// Page by page: the ring of a queue pair, its doorbell, the ring of its completions, their doorbell.
fn place(qpn: u32, page: u64) -> u64 {
    0x1_0000 * u64::from(qpn) + 0x1000 * page
}

/// Two queue pairs. The port has the lower numbers.
const A: u32 = 2;
const B: u32 = 3;

/// Both queue pairs, ready to send to each other in packets of 256 bytes.
fn pair() -> Device {
    let mut device = Device::new(Capabilities::default());
    device.port = Port::new(LinkLayer::InfiniBand, LID, 1);
    device.memory = Memory::zeroed(&[(0, ALL_MEMORY as usize)]);
    let mut key = vec![0; 272];
    let context = key.part_mut(create_mkey_in::memory_key_mkey_entry);
    for field in [mkc::lr, mkc::lw, mkc::rr, mkc::rw, mkc::a, mkc::length64] {
        context.set(field, 1_u32);
    }
    for (field, value) in [(mkc::pd, PD), (mkc::qpn, 0xff_ffff), (mkc::mkey_7_0, KEY & 0xff)] {
        context.set(field, value);
    }
    device.mkeys.insert(KEY >> 8, &key).unwrap();
    for (number, peer) in [(A, B), (B, A)] {
        let mut cq = vec![0; 280];
        let context = cq.part_mut(create_cq_in::cq_context);
        context.set(cqc::log_cq_size, 5_u32);
        context.set(cqc::dbr_addr, place(number, 3));
        cq.part_mut(create_cq_in::pas).copy_from_slice(&place(number, 2).to_be_bytes());
        device.cqs.insert(number, Cq::new(&cq).unwrap());

        let mut input = vec![0; 280];
        input.part_mut(create_qp_in::pas).copy_from_slice(&place(number, 0).to_be_bytes());
        let context = input.part_mut(create_qp_in::qpc);
        for (field, value) in [
            (qpc::pd, PD),
            (qpc::log_rq_size, 4),
            (qpc::log_sq_size, 5),
            (qpc::mtu, 1),
            (qpc::log_msg_max, 30),
            (qpc::remote_qpn, peer),
            (qpc::cqn_snd, number),
            (qpc::cqn_rcv, number),
            (qpc::log_sra_max, 2),
            (qpc::rnr_retry, 7),
            (qpc::min_rnr_nak, 1),
            (qpc::rre, 1),
        ] {
            context.set(field, value);
        }
        context.set(qpc::dbr_addr, place(number, 1));
        context.part_mut(qpc::primary_address_path).set(ads::rlid, u32::from(LID));
        let mut qp = Qp::new(&input).unwrap();
        qp.number = number;
        qp.set_state(qp::state::READY_TO_SEND);
        device.transport.qps.insert(number, qp);
    }
    device
}

fn segment(len: u32, address: u64) -> Vec<u8> {
    [&len.to_be_bytes()[..], &KEY.to_be_bytes(), &address.to_be_bytes()].concat()
}

/// Writes a request of one block to the queue, and updates only the doorbell record.
fn post(device: &Device, qpn: u32, counter: u16, opcode: u8, segments: &[Vec<u8>]) {
    let mut wqe = vec![0, 0, 0, opcode, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0];
    wqe[1..3].copy_from_slice(&counter.to_be_bytes());
    wqe[4..8].copy_from_slice(&(qpn << 8 | (1 + segments.len() as u32)).to_be_bytes());
    wqe.extend(segments.concat());
    device.memory.write(place(qpn, 0) + SENDS + 64 * u64::from(counter), &wqe).unwrap();
    device.memory.write(place(qpn, 1) + 4, &u32::from(counter + 1).to_be_bytes()).unwrap();
}

/// The kinds of completions, in order.
fn completions(device: &Device, number: u32) -> Vec<u8> {
    let count = device.cqs[&number].context.num(cqc::producer_counter);
    let kind = |index: u32| {
        let mut entry = [0; 64];
        device.memory.read(place(number, 2) + 64 * u64::from(index), &mut entry).unwrap();
        entry[63] >> 4
    };
    (0..count).map(kind).collect()
}

const SEND: u8 = 0x0a;
const READ: u8 = 0x10;
const REQUESTER: u8 = 0;
const RESPONDER: u8 = 2;
const REQUESTER_ERROR: u8 = 13;

#[test]
fn a_sender_that_finds_no_receive_waits() {
    let mut device = pair();
    device.memory.write(0x8000, b"one and two").unwrap();
    post(&device, A, 0, SEND, &[segment(3, 0x8000)]);
    post(&device, A, 1, SEND, &[segment(3, 0x8008)]);
    device.ring_qp(A);
    assert_eq!((completions(&device, A), completions(&device, B)), (vec![], vec![]));
    let requester = &device.transport.qps[&A].requester;
    assert!(requester.resume.is_some() && requester.flights.len() == 2);

    device.memory.write(place(B, 0), &[segment(8, 0x9000), segment(8, 0x9008)].concat()).unwrap();
    device.memory.write(place(B, 1), &2_u32.to_be_bytes()).unwrap();
    device.tick(TICK);
    assert!(completions(&device, A).is_empty());
    device.tick(TICK);
    assert_eq!(completions(&device, A), [REQUESTER; 2]);
    assert_eq!(completions(&device, B), [RESPONDER; 2]);
    let mut received = [0; 11];
    device.memory.read(0x9000, &mut received).unwrap();
    assert_eq!(&received, b"one\0\0\0\0\0two");
}

#[test]
fn what_is_missing_of_an_answer_is_asked_for_once() {
    let mut device = pair();
    let bytes: Vec<_> = (0..1200_u32).map(|i| (i / 7) as u8).collect();
    device.memory.write(0x8000, &bytes).unwrap();
    let remote = [&0x8000_u64.to_be_bytes()[..], &KEY.to_be_bytes(), &[0; 4]].concat();
    post(&device, A, 0, READ, &[remote, segment(1200, 0xa000)]);
    device.with_qp(A, Qp::advance);
    let (route, request) = device.transport.transit.pop_front().unwrap();
    assert_eq!((request.operation, request.psn), (Operation::ReadRequest, 0));
    device.arrive(&route, &request);
    let answers = std::mem::take(&mut device.transport.transit);
    assert_eq!(answers.len(), 5);
    // The second one is lost.
    for (_, (route, answer)) in answers.iter().enumerate().filter(|(index, _)| *index != 1) {
        device.arrive(route, answer);
    }
    let asked: Vec<_> = device.transport.transit.iter().map(|(_, packet)| packet).collect();
    let [again] = asked[..] else { panic!("{asked:?}") };
    let rest = (again.psn, again.remote.address, again.remote.len);
    assert_eq!((again.operation, rest), (Operation::ReadRequest, (1, 0x8100, 1200 - 256)));
    device.carry();
    assert_eq!(completions(&device, A), [REQUESTER]);
    let mut read = vec![0; 1200];
    device.memory.read(0xa000, &mut read).unwrap();
    assert_eq!(read, bytes);
}

/// An operation that a queue pair does not support is an invalid request; a key that does not allow the access is another error
/// (InfiniBand, 11.6.2).
#[test]
fn an_operation_that_is_not_allowed_is_an_invalid_request() {
    let (invalid, access) = (0x12, 0x13);
    for (is_allowed, key, syndrome) in [(false, KEY, invalid), (true, KEY + 1, access)] {
        let mut device = pair();
        device.transport.qps.get_mut(&B).unwrap().context.set(qpc::rre, u32::from(is_allowed));
        let remote = [&0x8000_u64.to_be_bytes()[..], &key.to_be_bytes(), &[0; 4]].concat();
        post(&device, A, 0, READ, &[remote, segment(8, 0xa000)]);
        device.ring_qp(A);
        assert_eq!(completions(&device, A), [REQUESTER_ERROR]);
        let mut entry = [0; 64];
        device.memory.read(place(A, 2), &mut entry).unwrap();
        assert_eq!(entry[0x37], syndrome);
    }
}

#[test]
fn a_request_waits_until_less_is_under_way() {
    let mut device = pair();
    // Packets of 256 bytes: two requests reach the limit of packets in flight, and the third waits.
    for counter in 0..3 {
        post(&device, A, counter, SEND, &[segment(64 * 256, 0x8000)]);
    }
    device.with_qp(A, Qp::advance);
    assert_eq!(device.transport.transit.len(), 128);
    let receive = segment(64 * 256, 0xc000);
    device.memory.write(place(B, 0), &[&receive[..], &receive, &receive].concat()).unwrap();
    device.memory.write(place(B, 1), &3_u32.to_be_bytes()).unwrap();
    device.carry();
    assert_eq!(completions(&device, A), [REQUESTER; 3]);
    assert_eq!(completions(&device, B), [RESPONDER; 3]);
}
