//! Our side of `benches/compare`'s counts of instructions: reads, and everything up to the first one, between marks that
//! the plugin `peer/count.c` sees. `peer/peer.c` does the same through libibverbs.
//!
//! usage: path marks DEVICE MODE READS | path first DEVICE

use std::hint::black_box;

use uverbs::{
    Context, Counters, Eth, Flow, FlowRule, Point, QueuePair, RawPacket, ReadCountersFlags, Result,
};

/// An instruction with this number in it is a mark; as in `peer/mark.h`.
const MARK: u64 = 0x7576_626d_6172_6b00;

/// Marks. A function, so that the number stands where it is called.
#[inline(never)]
fn mark<const NUMBER: u64>() {
    black_box(MARK | NUMBER);
}

/// One counters object that a flow counts into.
struct Rig {
    flow: Flow,
    counters: Counters,
    _qp: QueuePair<RawPacket>,
}

impl Rig {
    fn new(device: &str) -> Result<Self> {
        let context: Context = uverbs::devices()?.named(device)?.open()?;
        let cq = context.create_cq(1)?;
        let qp = context.alloc_pd()?.raw_packet(&cq).send_depth(1).receive_depth(1).connect(1)?;
        let counters = context.create_counters()?;
        counters.attach(Point::Packets, 0)?;
        counters.attach(Point::Bytes, 1)?;
        let rule = FlowRule::normal(1).eth(Eth::any().dst([0x02, 0xfe, 0, 0, 0, 0]));
        let flow = qp.create_flow(&rule.count(&counters))?;
        Ok(Self { flow, counters, _qp: qp })
    }
}

/// Does `read` so many times between marks.
fn marks<T>(reads: u32, mut read: impl FnMut() -> Result<T>) -> Result<()> {
    for _ in 0..reads {
        // What the marks cost.
        mark::<5>();
        mark::<6>();
        mark::<1>();
        let done = read();
        mark::<2>();
        done?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut values = [0; 2];
    match args.as_slice() {
        ["first", device] => {
            mark::<3>();
            let rig = Rig::new(device)?;
            rig.counters.read(&mut values)?;
            mark::<4>();
            Ok(())
        }
        ["marks", device, mode, reads] => {
            let rig = Rig::new(device)?;
            let reads = reads.parse().unwrap_or(1);
            let mut reader = match *mode {
                "driver-cached" => rig.flow.reader_with(ReadCountersFlags::PREFER_CACHED)?,
                _ => rig.flow.reader()?,
            };
            match *mode {
                "volatile" => marks(reads, || rig.counters.read(&mut values)),
                "prepared" | "driver-cached" => marks(reads, || reader.read().map(|_| ())),
                _ => {
                    eprintln!("no such mode: {mode}");
                    Ok(())
                }
            }
        }
        // `cargo bench` and `cargo test` start it too.
        _ => {
            println!("usage: path marks DEVICE MODE READS | path first DEVICE");
            Ok(())
        }
    }
}
