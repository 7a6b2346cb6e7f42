//! Completion counters of raw packet queue pairs, beside the flow counters of the same frames.
#![cfg(feature = "soft")]

mod common;

use common::counting::{LONG, values};
use common::*;
use uverbs::{
    CompletionCounter, Counted, CounterEvents, Eth, FlowRule, Frame, QpState, SendRequest, WaitObject,
};

fn counter(events: CounterEvents) -> CompletionCounter {
    CompletionCounter::builder().events(events).wait_object(WaitObject::None).create().unwrap()
}

/// Queue pairs that are not up yet.
fn down(target: &Target) -> Raw {
    let context = target.open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let qp = pd.raw_packet(&cq).send_depth(16).receive_depth(16).inline(64).create().unwrap();
    let memory = pd.register(32 * SLOT, uverbs::AccessFlags::LOCAL_WRITE).unwrap();
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
        // What is flushed has arrived nowhere: each is a failure.
        raw.qp.to_error().unwrap();
        while frames.read_err() < 5 {
            raw.cq.progress();
        }
        assert_eq!((values(&frames), values(&bytes)), ((3, 5), (60 + 333 + 1514, 5)));
    });
}

#[test]
fn sends_without_a_completion_of_their_own_count() {
    on_every_wire(|target, _, _| {
        let mut raw = down(target);
        let sent = counter(CounterEvents::Completions);
        raw.qp.bind_counter(&sent, Counted::SEND).unwrap();
        raw.qp.bring_up(1).unwrap();
        let frame = frame(MAC, 60);
        let request = |wr_id| SendRequest::inline(wr_id, Frame::Whole, &frame);
        // More than the queue has slots.
        for round in 1..=10 {
            let requests = [request(1), request(2), request(3).signaled()];
            raw.qp.post_send(&requests).unwrap();
            raw.cq.progress_until(&sent, 3 * round, LONG).unwrap();
        }
        assert_eq!(values(&sent), (30, 0));
        assert_eq!(raw.qp.state().unwrap(), QpState::ReadyToSend);
    });
}
