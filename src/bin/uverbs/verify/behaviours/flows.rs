//! Flow counters: what the manual pages of libibverbs specify, and what the kernel adds. The rules match an address that no host has.

use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, CompletionQueue, Context, Counters, ErrorKind, Eth, FlowRule, MemoryRegion, Point,
    ProtectionDomain, QueuePair, RawPacket, ReadCountersFlags, ReceiveRequest,
};

use super::{Destroyed, EBUSY, EINVAL, Frames, Ground, Held, Optional, Stopped, busy, holds, refused, same};

/// An address of the frames, which is administered locally.
const MAC: [u8; 6] = [0x02, 0xfc, 0, 0, 0, 0x01];
const OTHER: [u8; 6] = [0x02, 0xfc, 0, 0, 0, 0x02];
/// Room for a frame.
const SLOT: usize = 2048;

/// A raw packet queue pair with everything that belongs to it.
struct Raw {
    qp: QueuePair<RawPacket>,
    _cq: CompletionQueue,
    _memory: MemoryRegion,
    _pd: ProtectionDomain,
    context: Context,
}

impl Raw {
    fn new(ground: &Ground<'_>) -> Held<Self> {
        let context = ground.open()?;
        context.create_counters().optional()?.destroy().destroyed()?;
        if ground.is_infiniband(&context)? {
            return Err(Stopped::Skipped("a port of InfiniBand has no flows of frames".to_owned()));
        }
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        let builder = pd.raw_packet(&cq).send_depth(16).receive_depth(16);
        let mut qp = builder.connect(ground.port).optional()?;
        let memory = pd.register(SLOT, AccessFlags::LOCAL_WRITE)?;
        qp.post_receive(&[ReceiveRequest::new(0, &[memory.segment(0..SLOT)?])])?;
        Ok(Self { qp, _cq: cq, _memory: memory, _pd: pd, context })
    }
}

/// Frames that do arrive.
struct Arriving<'a> {
    frames: &'a dyn Frames,
    source: [u8; 6],
}

impl Arriving<'_> {
    /// An Ethernet frame of `len` bytes to `dst`, with an Ethertype for experiments (IEEE 802).
    fn frame(&self, dst: [u8; 6], len: usize) -> Vec<u8> {
        let mut frame = vec![0; len];
        let head = dst.into_iter().chain(self.source).chain([0x88, 0xb5]);
        frame.iter_mut().zip(head).for_each(|(place, byte)| *place = byte);
        frame
    }

    fn send(&self, dst: [u8; 6], len: usize) -> Held {
        self.frames.send(&self.frame(dst, len))
    }
}

fn to(ground: &Ground<'_>, mac: [u8; 6]) -> FlowRule {
    FlowRule::normal(ground.port).eth(Eth::any().dst(mac))
}

/// Counters with packets at 0 and bytes at 1.
fn packets_and_bytes(context: &Context) -> Held<Counters> {
    let counters = context.create_counters().optional()?;
    counters.attach(Point::Packets, 0)?;
    counters.attach(Point::Bytes, 1)?;
    Ok(counters)
}

/// Waits until a reading is this, as long as the source of frames says. A reading that is higher is wrong at once.
fn counts(
    ground: &Ground<'_>,
    step: &str,
    expected: &[u64],
    mut read: impl FnMut() -> uverbs::Result<Vec<u64>>,
) -> Held {
    let (start, late) = (Instant::now(), ground.frames.map_or(Duration::ZERO, Frames::late));
    loop {
        let seen = read()?;
        let is_less = seen.iter().zip(expected).all(|(seen, expected)| seen <= expected);
        if seen == expected || !is_less || start.elapsed() >= late {
            return same(step, seen, expected.to_vec());
        }
        ground.go_on()?;
        std::thread::yield_now();
    }
}

/// Waits until packets and bytes of counters are these.
fn counted(ground: &Ground<'_>, step: &str, counters: &Counters, expected: [u64; 2]) -> Held {
    counts(ground, step, &expected, || {
        let mut values = [0; 2];
        counters.read(&mut values)?;
        Ok(values.to_vec())
    })
}

fn read2(counters: &Counters) -> Held<[u64; 2]> {
    let mut values = [0; 2];
    counters.read(&mut values)?;
    Ok(values)
}

/// Whether frames come back to the device: otherwise those that are lost would look like a fault of a counter. Only the first behaviour waits
/// in vain for them.
fn arriving<'a>(ground: &'a Ground<'_>, raw: &Raw) -> Held<Arriving<'a>> {
    let frames = ground.frames()?;
    let arriving = Arriving { frames, source: frames.source()? };
    let silent =
        || Err(Stopped::Skipped("frames that are sent do not come back: loop the port back".to_owned()));
    if ground.is_silent.get().is_some() {
        return silent();
    }
    let counters = packets_and_bytes(&raw.context)?;
    let probe = [0x02, 0xfc, 0, 0, 0, 0x03];
    let _flow = raw.qp.create_flow(&to(ground, probe).count(&counters))?;
    // The guide says how many frames are sent at most.
    for _ in 0..100 {
        arriving.send(probe, 60)?;
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(10) {
            if read2(&counters)? != [0, 0] {
                return Ok(arriving);
            }
            ground.go_on()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    ground.is_silent.get_or_init(|| ());
    silent()
}

pub(crate) fn read_before_a_flow_is_invalid(ground: &Ground<'_>) -> Held {
    let counters = packets_and_bytes(&ground.open()?)?;
    let hint = "no flow uses these counters: create a flow that counts into them first";
    refused("read", counters.read(&mut [0; 2]), ErrorKind::InvalidInput, EINVAL, hint)
}

pub(crate) fn the_highest_index_is_the_last_that_a_read_returns(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let counters = raw.context.create_counters()?;
    for index in [8191, 0x8000_0000, u32::MAX] {
        let answer = counters.attach(Point::Packets, index);
        let step = format!("attach at {index}");
        refused(&step, answer, ErrorKind::InvalidInput, EINVAL, "at most 8190 allowed")?;
    }
    counters.attach(Point::Packets, 8190)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let mut values = vec![1; 8191];
    counters.read(&mut values)?;
    holds("read 8191 values", values.iter().all(|value| *value == 0), "zeros", "others")?;
    same("values of a reader", flow.reader()?.read()?.len(), 8191_usize)
}

pub(crate) fn a_buffer_without_room_for_the_highest_index_is_invalid(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let counters = raw.context.create_counters()?;
    counters.attach(Point::Packets, 5)?;
    let _flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let (kind, hint) = (ErrorKind::InvalidInput, "at least 6 allowed");
    refused("read 5 values", counters.read(&mut [0; 5]), kind, EINVAL, hint)?;
    refused("read no value", counters.read(&mut []), kind, EINVAL, hint)?;
    counters.read(&mut [0; 6])?;
    Ok(counters.read(&mut vec![0; 100_000])?)
}

pub(crate) fn attach_while_bound_is_busy_and_allowed_again_after(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let counters = packets_and_bytes(&raw.context)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    for index in [2, 8191] {
        let answer = counters.attach(Point::Bytes, index);
        refused(&format!("attach at {index}"), answer, ErrorKind::Busy, EBUSY, "a flow uses")?;
    }
    flow.destroy().destroyed()?;
    Ok(counters.attach(Point::Bytes, 2)?)
}

pub(crate) fn counters_in_use_are_busy_and_given_back(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let counters = packets_and_bytes(&raw.context)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let counters = busy("destroy counters that a flow uses", counters.destroy())?;
    same("their values", read2(&counters)?, [0, 0])?;
    flow.destroy().destroyed()?;
    counters.destroy().destroyed()
}

pub(crate) fn a_reader_reads_without_a_guard_and_keeps_its_flow(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    // Without frames the values stay zero.
    let frames = match arriving(ground, &raw) {
        Err(Stopped::Skipped(_)) => None,
        frames => Some(frames?),
    };
    let per_round = u64::from(frames.is_some());
    let arrive = || frames.as_ref().map_or(Ok(()), |frames| frames.send(MAC, 60));
    let counters = packets_and_bytes(&raw.context)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let mut reader = flow.reader_with(ReadCountersFlags::PREFER_CACHED)?;
    same("values before a read", reader.values().to_vec(), [0, 0])?;
    arrive()?;
    let once = [per_round, 60 * per_round];
    counts(ground, "a reader", &once, || reader.read().map(<[u64]>::to_vec))?;
    counted(ground, "the counters", &counters, once)?;
    let flow = busy("destroy a flow that a reader keeps", flow.destroy())?;
    drop(flow);
    arrive()?;
    let twice = once.map(|value| 2 * value);
    counts(ground, "a reader whose flow was dropped", &twice, || reader.read().map(<[u64]>::to_vec))?;
    counted(ground, "the counters whose flow was dropped", &counters, twice)?;
    drop(reader);
    let answer = counters.read(&mut [0; 2]);
    refused("read after the last flow", answer, ErrorKind::InvalidInput, EINVAL, "no flow")?;
    let plain = raw.qp.create_flow(&to(ground, MAC))?;
    let answer = plain.reader().map(drop);
    refused("a reader without counters", answer, ErrorKind::InvalidInput, EINVAL, "no count action")
}

pub(crate) fn a_snapshot_is_read_again_when_it_is_too_old(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let counters = packets_and_bytes(&raw.context)?;
    let _flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let snapshot = counters.snapshot()?;
    let ns = Duration::from_nanos;
    for (now, limit, epoch) in [(1000, 10, 1), (1009, 10, 1), (1010, 10, 2), (1500, 491, 2), (1500, 490, 3)] {
        let seen = snapshot.read_at::<2>(now, ns(limit))?;
        same(&format!("values at {now} ns, at most {limit} ns old"), seen.stamp().epoch(), epoch)?;
        same("values", *seen, [0, 0])?;
    }
    Ok(())
}

pub(crate) fn the_example_of_the_manual_runs(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let frames = arriving(ground, &raw)?;
    let counters = packets_and_bytes(&raw.context)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    for round in 1..=3 {
        frames.send(MAC, 60)?;
        frames.send([2, 0xfc, 0, 0, 0, 9], 60)?;
        counts(ground, "packets of the rule", &[round, round * 60], || {
            let mut values = [0; 2];
            counters.read_with(&mut values, ReadCountersFlags::PREFER_CACHED)?;
            Ok(values.to_vec())
        })?;
    }
    flow.destroy().destroyed()?;
    counters.destroy().destroyed()
}

pub(crate) fn points_at_one_index_are_summed_and_gaps_are_zero(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let frames = arriving(ground, &raw)?;
    let counters = raw.context.create_counters()?;
    for (point, index) in [(Point::Packets, 3), (Point::Packets, 3), (Point::Bytes, 3), (Point::Bytes, 1)] {
        counters.attach(point, index)?;
    }
    let _flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    frames.send(MAC, 64)?;
    counts(ground, "values", &[0, 64, 0, 66, 0, 0], || {
        let mut values = [u64::MAX; 6];
        counters.read(&mut values)?;
        Ok(values.to_vec())
    })
}

pub(crate) fn flows_on_one_object_accumulate(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let frames = arriving(ground, &raw)?;
    let counters = packets_and_bytes(&raw.context)?;
    let one = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let two = raw.qp.create_flow(&to(ground, OTHER).count(&counters))?;
    frames.send(MAC, 60)?;
    frames.send(OTHER, 100)?;
    counted(ground, "both flows", &counters, [2, 160])?;
    drop(one);
    frames.send(MAC, 60)?;
    frames.send(OTHER, 100)?;
    counted(ground, "one flow", &counters, [3, 260])?;
    drop(two);
    Ok(())
}

pub(crate) fn values_never_go_down(ground: &Ground<'_>) -> Held {
    let raw = Raw::new(ground)?;
    let frames = arriving(ground, &raw)?;
    let counters = packets_and_bytes(&raw.context)?;
    let flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    let mut reader = flow.reader()?;
    let mut last = [0, 0];
    for len in [60, 61, 1000, 1514, 9000].into_iter().filter(|len| *len <= frames.frames.longest()) {
        frames.send(MAC, len)?;
        let next = [last[0] + 1, last[1] + len as u64];
        counts(ground, "a frame more", &next, || reader.read().map(<[u64]>::to_vec))?;
        last = next;
    }
    Ok(())
}

/// More than a counter could miss one of unnoticed.
pub(crate) fn thousands_of_packets_are_counted_without_exception(ground: &Ground<'_>) -> Held {
    const COUNT: u64 = 2500;
    let raw = Raw::new(ground)?;
    let frames = arriving(ground, &raw)?;
    let counters = packets_and_bytes(&raw.context)?;
    let _flow = raw.qp.create_flow(&to(ground, MAC).count(&counters))?;
    frames.frames.many(&frames.frame(MAC, 64), COUNT)?;
    counted(ground, "packets and bytes", &counters, [COUNT, 64 * COUNT])
}
