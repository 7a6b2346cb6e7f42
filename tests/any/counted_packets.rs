//! Completion counters of raw packet queue pairs, together with the flow counters of the same frames.

use crate::common::counting::{LONG, values};
use crate::common::*;
use uverbs::{
    AccessFlags, CompletionCounter, Counted, CounterEvents, ErrorKind, Eth, FlowRule, Frame, SendRequest,
    WaitObject,
};

fn counter(events: CounterEvents) -> CompletionCounter {
    CompletionCounter::builder().events(events).wait_object(WaitObject::None).create().unwrap()
}

/// With a queue pair that is not ready yet.
fn down(target: &Target) -> Raw {
    let context = target.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let qp = pd.raw_packet(&cq).send_depth(16).receive_depth(16).inline(64).create().unwrap();
    let memory = pd.register(32 * SLOT, AccessFlags::LOCAL_WRITE).unwrap();
    Raw { qp, cq, memory, pd, context }
}

#[test]
fn what_a_flow_counts_on_its_way_in_the_completions_count_too() {
    on_every_wire(|target, wire, _| {
        let mut raw = down(target);
        let [frames, bytes] = [CounterEvents::Completions, CounterEvents::Bytes].map(counter);
        raw.qp.bind_counter(&frames, Counted::RECEIVE).unwrap();
        raw.qp.bind_counter(&bytes, Counted::RECEIVE).unwrap();
        raw.qp.bring_up(1).unwrap();
        let counted = packets_and_bytes(&raw.context);
        let rule = FlowRule::normal(1).eth(Eth::any().dst(MAC)).count(&counted);
        let _flow = raw.qp.create_flow(&rule).unwrap();
        raw.post_receives(8);
        for len in [60, 333, 1514] {
            wire.inject(&frame(MAC, len));
        }
        raw.cq.progress_until(&frames, 3, LONG).unwrap();
        assert_eq!([frames.read(), bytes.read()], read2(&counted));
        assert_eq!([frames.read(), bytes.read()], [3, 60 + 333 + 1514]);
        // A flushed receive has received nothing: each is a failure.
        raw.qp.to_error().unwrap();
        while frames.read_err() < 5 {
            raw.cq.progress();
        }
        assert_eq!((values(&frames), values(&bytes)), ((3, 5), (60 + 333 + 1514, 5)));
    });
}

#[test]
fn frames_of_raw_packet_queue_pairs_count() {
    on_every_wire(|target, _, _| {
        let mut raw = down(target);
        let [sent, received] = [CounterEvents::Completions; 2].map(counter);
        raw.qp.bind_counter(&sent, Counted::SEND).unwrap();
        raw.qp.bind_counter(&received, Counted::RECEIVE).unwrap();
        let refused = raw.qp.bind_counter(&sent, Counted::WRITE);
        refuses(refused, ErrorKind::Unsupported, EOPNOTSUPP, "no such operations");
        raw.qp.bring_up(1).unwrap();
        let frame = frame(MAC, 60);
        let request = |wr_id| SendRequest::inline(wr_id, Frame::Whole, &frame);
        // More than the queue has slots.
        for round in 1..=20 {
            raw.qp.post_send(&[request(1), request(2), request(3).signaled()]).unwrap();
            raw.cq.progress_until(&sent, 3 * round, LONG).unwrap();
        }
        raw.post_receives(2);
        raw.qp.drain(&mut [&mut raw.cq], LONG.unwrap(), drop).unwrap();
        assert_eq!((values(&sent), values(&received)), ((60, 0), (0, 2)));
    });
}
