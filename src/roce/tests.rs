//! A requester and a responder with a channel between them that loses, repeats and delays packets, in a time of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::requester::{Fault, Meaning, Request, Requester, Settings, Work};
use super::responder::{Message, Refusal, Responder, Step};
use super::*;

const MTU: u32 = 4;

fn settings() -> Settings {
    Settings {
        service: Service::Rc,
        to: 7,
        mtu: MTU,
        timeout: Some(Duration::from_millis(30)),
        retries: 20,
        unready: 7,
        reads: 2,
        window: 128 << 10,
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn percent(&mut self, share: u64) -> bool {
        self.number() % 100 < share
    }
}

/// Packets under way, by the time of their arrival; true for those to the responder.
struct Channel {
    chance: Chance,
    faults: u64,
    packets: BTreeMap<(Instant, u64), (bool, Vec<u8>)>,
    count: u64,
}

impl Channel {
    fn send(&mut self, now: Instant, is_request: bool, packet: &Packet) {
        if self.chance.percent(self.faults) {
            return;
        }
        for _ in 0..1 + u64::from(self.chance.percent(self.faults)) {
            let late = if self.chance.percent(self.faults) { self.chance.number() % 500 } else { 0 };
            self.count += 1;
            let arrival = (now + Duration::from_micros(10 + late), self.count);
            self.packets.insert(arrival, (is_request, packet.to_bytes()));
        }
    }
}

/// The two halves, and what they did.
struct World {
    now: Instant,
    channel: Channel,
    requester: Requester,
    responder: Responder,
    /// Received messages, and the one in progress.
    received: Vec<Vec<u8>>,
    current: Vec<u8>,
    sum: u64,
    /// Receives that are posted; none for a while now and then.
    ready: bool,
    sent: Vec<Vec<u8>>,
    /// Data of reads, by request.
    answers: BTreeMap<usize, Vec<u8>>,
    ended: usize,
}

/// What is read: each byte is its address.
fn memory(address: u64, len: u32) -> Vec<u8> {
    (address..address + u64::from(len)).map(|at| at as u8).collect()
}

impl World {
    fn new(faults: u64, seed: u64) -> Self {
        let (mut requester, mut responder) = (Requester::default(), Responder::default());
        requester.begin(0xff_fffa);
        responder.begin(0xff_fffa);
        Self {
            now: Instant::now(),
            channel: Channel { chance: Chance(seed), faults, packets: BTreeMap::new(), count: 0 },
            requester,
            responder,
            received: Vec::new(),
            current: Vec::new(),
            sum: 0,
            ready: true,
            sent: Vec::new(),
            answers: BTreeMap::new(),
            ended: 0,
        }
    }

    fn respond(&mut self, packet: &Packet) {
        self.channel.send(self.now, false, packet);
    }

    fn request_arrives(&mut self, packet: &Packet, payload: &[u8]) {
        match self.responder.arrive(packet, payload.len(), MTU) {
            Step::Drop => {}
            Step::Invalid => panic!("the requester sends nothing that is wrong: {packet:?}"),
            Step::Acknowledge => {
                let answer = self.responder.acknowledgement(Service::Rc);
                self.respond(&answer);
            }
            Step::Missing => {
                let answer = self.responder.missing(Service::Rc);
                self.respond(&answer);
            }
            Step::Part(part) => {
                assert_eq!(part.message, Message::Send);
                if part.begins && !self.ready {
                    let answer = self.responder.refuse(packet, Refusal::NotReady(1));
                    return self.respond(&answer);
                }
                assert_eq!(part.offset as usize, self.current.len());
                self.current.extend(payload);
                self.responder.taken(packet, payload.len(), 1);
                if part.ends {
                    self.received.push(std::mem::take(&mut self.current));
                }
                if packet.asks {
                    let answer = self.responder.acknowledgement(Service::Rc);
                    self.respond(&answer);
                }
            }
            Step::Read { is_new } => {
                let Remote { address, len, .. } = packet.remote;
                let count = len.div_ceil(MTU).max(1);
                if is_new {
                    self.responder.taken(packet, 0, count);
                }
                for index in 0..count {
                    let at = address + u64::from(index * MTU);
                    let payload = memory(at, MTU.min(len - index * MTU));
                    let answer = Packet { payload, ..self.responder.read_response(packet, index, count) };
                    self.respond(&answer);
                }
            }
            Step::Atomic => {
                let answer = self.responder.executed(packet, self.sum);
                self.sum += packet.atomic.operand;
                self.respond(&answer);
            }
            Step::AtomicAgain(original) => {
                let answer = self.responder.result(packet, original);
                self.respond(&answer);
            }
        }
    }

    fn response_arrives(&mut self, packet: &Packet, payload: &[u8]) {
        match self.requester.answer(packet, payload.len(), &settings(), self.now) {
            Meaning::Nothing => {}
            Meaning::Data { request, offset } => {
                let answer = self.answers.entry(self.ended + request).or_default();
                assert_eq!(answer.len(), offset as usize, "in order");
                match packet.operation {
                    Operation::AtomicAcknowledge => answer.extend(packet.original.to_be_bytes()),
                    _ => answer.extend(payload),
                }
            }
            Meaning::Fault(..) => panic!("nothing is refused: {packet:?}"),
        }
    }

    /// Does everything until all requests have ended.
    fn run(&mut self, requests: &[(Request, Vec<u8>)]) {
        let (mut added, settings) = (0, settings());
        for step in 0_u64.. {
            assert!(step < 10_000_000, "it makes no progress");
            while self.requester.take_done() {
                self.ended += 1;
            }
            if self.ended == requests.len() {
                return;
            }
            if step % 97 == 0 {
                self.ready = !self.channel.chance.percent(self.channel.faults);
            }
            if let Some(emission) = self.requester.packet(&settings, self.now) {
                let (_, data) = &requests[self.ended + emission.request];
                let (from, len) = (emission.offset as usize, emission.len as usize);
                let packet = Packet { payload: data[from..from + len].to_vec(), ..emission.packet };
                self.channel.send(self.now, true, &packet);
                continue;
            }
            if added < requests.len() && self.requester.wants_more() {
                self.requester.add(requests[added].0, &settings);
                added += 1;
                continue;
            }
            let arrival = self.channel.packets.first_key_value().map(|((time, _), _)| *time);
            match (arrival, self.requester.due()) {
                (Some(arrival), due) if due.is_none_or(|due| arrival <= due) => {
                    self.now = self.now.max(arrival);
                    let Some((_, (is_request, bytes))) = self.channel.packets.pop_first() else { continue };
                    let (packet, payload) = Packet::split(&bytes).unwrap();
                    if is_request {
                        self.request_arrives(&packet, payload);
                    } else {
                        self.response_arrives(&packet, payload);
                    }
                }
                (_, Some(due)) => {
                    self.now = self.now.max(due);
                    let fault = self.requester.tick(&settings, self.now);
                    assert_eq!(fault, None, "{} % faults: retries suffice", self.channel.faults);
                }
                (_, None) => panic!("nothing would ever happen"),
            }
        }
    }
}

fn request(work: Work, len: u32) -> Request {
    Request { work, len, solicited: false, fence: false, srq: 0 }
}

#[test]
fn everything_happens_once_and_in_order_on_any_channel() {
    for (faults, seed) in [(0, 0), (1, 1), (1, 2), (5, 3), (5, 4), (10, 5), (20, 6)] {
        let mut world = World::new(faults, seed);
        let mut chance = Chance(seed ^ 0x55);
        let mut requests = Vec::new();
        for number in 0..2000_u32 {
            // Some take several windows.
            let len = if number % 50 == 49 { 1300 } else { (chance.number() % 40) as u32 };
            requests.push(match chance.number() % 4 {
                0 => {
                    let remote = Remote { address: number.into(), key: 1, len };
                    (Request { fence: number % 3 == 0, ..request(Work::Read(remote), len) }, Vec::new())
                }
                1 => {
                    let atomic = Atomic { address: 0, key: 1, operand: 1, compare: 0 };
                    (request(Work::FetchAdd(atomic), 8), Vec::new())
                }
                _ => {
                    let data: Vec<u8> = (0..len).map(|at| (number + at) as u8).collect();
                    world.sent.push(data.clone());
                    (request(Work::Send(None), len), data)
                }
            });
        }
        world.run(&requests);
        assert!(world.received == world.sent, "{faults} % faults");
        let mut additions = 0_u64;
        for (index, (request, _)) in requests.iter().enumerate() {
            match request.work {
                Work::Read(remote) => assert_eq!(world.answers[&index], memory(remote.address, remote.len)),
                Work::FetchAdd(_) => {
                    assert_eq!(world.answers[&index], additions.to_be_bytes());
                    additions += 1;
                }
                _ => {}
            }
        }
        assert_eq!(world.sum, additions);
    }
}

#[test]
fn without_a_response_the_retries_end() {
    let (settings, mut now) = (Settings { retries: 2, ..settings() }, Instant::now());
    let mut requester = Requester::default();
    requester.begin(0);
    requester.add(request(Work::Send(None), 10), &settings);
    let mut sent = 0;
    loop {
        while requester.packet(&settings, now).is_some() {
            sent += 1;
        }
        now = requester.due().expect("it waits");
        match requester.tick(&settings, now) {
            None => {}
            fault => {
                assert_eq!(fault, Some(Fault::Retries));
                break;
            }
        }
    }
    assert_eq!(sent, 9, "three packets, three times");
}

#[test]
fn responses_to_what_was_not_sent_mean_nothing() {
    let (settings, now) = (settings(), Instant::now());
    let mut requester = Requester::default();
    requester.begin(100);
    requester.add(request(Work::Send(None), 4), &settings);
    let response =
        |operation, psn, syndrome| Packet { psn, syndrome, ..Packet::new(Service::Rc, operation, 0) };
    let all = || {
        let syndromes = [0x1f, 0x21, 0x60, 0x61, 0x62, 0x63, 0x7f, 0xff];
        let operations = [Operation::Acknowledge, Operation::ReadOnly, Operation::AtomicAcknowledge];
        operations.into_iter().flat_map(move |operation| syndromes.map(|syndrome| (operation, syndrome)))
    };
    for psn in [99, 100, 101, 5000, 0x80_0000] {
        for (operation, syndrome) in all() {
            let meaning = requester.answer(&response(operation, psn, syndrome), 4, &settings, now);
            assert_eq!(meaning, Meaning::Nothing, "{operation:?} {psn} {syndrome:#x}");
        }
    }
    assert!(requester.packet(&settings, now).is_some());
    for (operation, syndrome) in all() {
        for psn in [99, 101, 0x80_0000] {
            let meaning = requester.answer(&response(operation, psn, syndrome), 4, &settings, now);
            assert_eq!(meaning, Meaning::Nothing, "{operation:?} {psn} {syndrome:#x}");
        }
    }
    assert!(!requester.take_done());
    requester.answer(&response(Operation::Acknowledge, 100, 0x1f), 0, &settings, now);
    assert!(requester.take_done());
}
