//! Wall time of reads, flows and commands on the soft device: `cargo bench --bench counters`.
//!
//! No hardware is involved: the figures are the crate's and the soft device's own.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use uverbs::transport::Null;
use uverbs::{
    CompletionQueue, Context, Counters, Eth, FlowRule, Ipv4, Point, QueuePair, RawPacket, SoftDevice, Udp,
};

struct Setup {
    qp: QueuePair<RawPacket>,
    counters: Counters,
    _cq: CompletionQueue,
    _context: Context,
}

fn setup(null: bool) -> Setup {
    let device = SoftDevice::default().device();
    let context = if null { device.open_through(|inner| Box::new(Null::new(inner))) } else { device.open() };
    let context = context.expect("the soft device opens");
    let cq = context.create_cq(64).expect("cq");
    let qp = context.alloc_pd().expect("pd").raw_packet(&cq).connect(1).expect("qp");
    let counters = context.create_counters().expect("counters");
    counters.attach(Point::Packets, 0).expect("attach");
    counters.attach(Point::Bytes, 1).expect("attach");
    Setup { qp, counters, _cq: cq, _context: context }
}

fn rule(counters: &Counters) -> FlowRule {
    FlowRule::normal(1)
        .eth(Eth::any().dst([2, 0, 0, 0, 0, 1]))
        .ipv4(Ipv4::any().dst([10, 0, 0, 1].into()))
        .udp(Udp::any().dst_port(4791))
        .count(counters)
}

fn reads(c: &mut Criterion) {
    for (device, null) in [("null transport", true), ("soft device", false)] {
        let setup = setup(null);
        let flow = setup.qp.create_flow(&rule(&setup.counters)).expect("flow");
        let mut group = c.benchmark_group(format!("read, {device}"));
        group.bench_function("Counters::read", |b| {
            let mut values = [0; 2];
            b.iter(|| setup.counters.read(black_box(&mut values)).expect("read"));
        });
        group.bench_function("Reader::read", |b| {
            let mut reader = flow.reader().expect("reader");
            b.iter(|| black_box(reader.read().expect("read")[0]));
        });
        group.finish();
    }
}

fn flows(c: &mut Criterion) {
    let setup = setup(false);
    let ready = rule(&setup.counters);
    c.bench_function("rule: build", |b| b.iter(|| rule(black_box(&setup.counters))));
    c.bench_function("flow: create and destroy, soft device", |b| {
        b.iter(|| setup.qp.create_flow(black_box(&ready)).expect("flow"));
    });
}

criterion_group!(benches, reads, flows);
criterion_main!(benches);
