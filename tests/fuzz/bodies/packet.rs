//! Any bytes are a packet or are refused. A packet has one form as bytes, and the state machines take it at any time.

use std::time::{Duration, Instant};

use uverbs::raw::roce::requester::{Meaning, Request, Requester, Settings, Work};
use uverbs::raw::roce::responder::{Refusal, Responder, Step};
use uverbs::raw::roce::{Operation, Packet, Remote, Service};

const MTU: u32 = 256;

pub(crate) fn run(data: &[u8]) {
    let settings = Settings {
        service: Service::Rc,
        to: 9,
        mtu: MTU,
        timeout: Some(Duration::from_millis(1)),
        retries: 1,
        unready: 1,
        reads: 1,
        window: 4096,
    };
    let (mut requester, mut responder) = (Requester::default(), Responder::default());
    requester.begin(0);
    responder.begin(0);
    let mut now = Instant::now();
    for len in [10, 1000] {
        let remote = Remote { address: u64::MAX - 100, key: 1, len };
        for work in [Work::Send(Some(1)), Work::Read(remote), Work::Write(remote, None)] {
            requester.add(Request { work, len, solicited: true, fence: false, srq: 0 }, &settings);
        }
    }
    // The first byte of each part is its length.
    let mut rest = data;
    while let Some((len, more)) = rest.split_first() {
        let (bytes, after) = more.split_at(more.len().min(usize::from(*len)));
        rest = after;
        let sent = requester.packet(&settings, now);
        assert!(sent.is_none_or(|sent| sent.len <= MTU));
        let Ok((packet, payload)) = Packet::split(bytes) else { continue };
        let whole = Packet { payload: payload.to_vec(), ..packet.clone() };
        assert_eq!(whole.size(), whole.to_bytes().len());
        assert_eq!(Packet::from_bytes(&whole.to_bytes()).as_ref(), Ok(&whole));
        match responder.arrive(&packet, payload.len(), MTU) {
            Step::Part(part) => {
                assert!(payload.len() <= MTU as usize && (part.begins || part.offset > 0));
                responder.taken(&packet, payload.len(), 1);
            }
            Step::Read { is_new: true } => {
                let count = packet.remote.len.div_ceil(MTU).max(1);
                responder.taken(&packet, 0, count);
                assert_eq!(responder.read_response(&packet, 0, count).syndrome, 0x1f);
            }
            Step::Atomic => {
                assert_eq!(responder.executed(&packet, 5).operation, Operation::AtomicAcknowledge)
            }
            Step::Invalid => assert_eq!(responder.refuse(&packet, Refusal::InvalidRequest).psn, packet.psn),
            _ => {}
        }
        match requester.answer(&packet, payload.len(), &settings, now) {
            Meaning::Data { request, offset } => assert!(request < requester.len() && offset < 1000),
            Meaning::Fault(request, _) => assert!(request < requester.len()),
            Meaning::Nothing => {}
        }
        while requester.take_done() {}
        now += Duration::from_millis(7);
        requester.tick(&settings, now);
    }
}
