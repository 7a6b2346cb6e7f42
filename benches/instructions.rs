//! The crate's own instructions of one read, counted by callgrind: `cargo bench --bench instructions`. The count does not depend on the
//! load of the machine.
//!
//! The program runs itself under `valgrind --tool=callgrind` twice, with few and with many reads, on a transport that does everything
//! that the real one does except the ioctl. The difference, divided by the number of reads, is the cost of one. The function in the
//! kernel's place is subtracted, and so is the loop with the use of the result.
//!
//! The counts are stored in `benches/instructions.txt`. The run fails if a count has grown by more than 2 %, or is above its limit;
//! `UVERBS_BENCH_KEEP=1` writes the file again.

use std::fmt::Write;
use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use uverbs::transport::Null;
use uverbs::{
    Context, Counters, Eth, Flow, FlowRule, Point, QueuePair, RawPacket, Sampler, Snapshot, SoftDevice,
};

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;

/// Old enough for every read of the bench, and known to the compiler, as in most programs.
const HOUR: Duration = Duration::from_secs(3600);

/// A measurement: its name, the limit of instructions, and the function for a number of reads.
struct Path {
    name: &'static str,
    promise: Option<f64>,
    run: fn(&Rig, u64),
    /// What is subtracted: the same loop, with the use of the result, without a read.
    empty: fn(&Rig, u64),
    /// And this function, with everything that it calls.
    inner: &'static str,
}

/// The function in the kernel's place.
const KERNEL: &str = "null_kernel";

/// The read of the device, and the publication of its values.
const READ: &str = "uverbs::counters::refresh::Source>::refresh";

/// Counters, the values of one read, a flow that counts into them, and the objects from which more are created. As in most programs,
/// loops read through a reference: the code for a snapshot on the stack would depend on the rest of its function.
struct Rig {
    flow: Flow,
    snapshot: Snapshot,
    counters: Counters,
    qp: QueuePair<RawPacket>,
    context: Context,
}

const PATHS: &[Path] = &[
    Path { name: "Reader::read", promise: Some(25.0), run: reader, empty: use_one, inner: KERNEL },
    Path { name: "Counters::read", promise: None, run: volatile, empty: use_one, inner: KERNEL },
    Path { name: "Snapshot::read_cached", promise: Some(30.0), run: cached, empty: use_three, inner: KERNEL },
    Path {
        name: "Snapshot::read_cached, a limit that varies",
        promise: None,
        run: cached_by,
        empty: use_three_by,
        inner: KERNEL,
    },
    Path {
        name: "Snapshot::read_cached_into",
        promise: None,
        run: cached_into,
        empty: use_one,
        inner: KERNEL,
    },
    Path { name: "Snapshot::read_at", promise: Some(30.0), run: at, empty: use_three_by, inner: KERNEL },
    Path { name: "Snapshot::latest", promise: Some(30.0), run: latest, empty: use_three, inner: KERNEL },
    // For each snapshot, in a round of `N`: in small rounds the cost of the round itself shows, some 290. The read of the device, with
    // its publication, is subtracted.
    Path { name: "Sampler::tick, 1 snapshot", promise: None, run: ticks::<1>, empty: nothing, inner: READ },
    Path {
        name: "Sampler::tick, 16 snapshots",
        promise: None,
        run: ticks::<16>,
        empty: nothing,
        inner: READ,
    },
    Path {
        name: "Sampler::tick, 250 snapshots",
        promise: Some(100.0),
        run: ticks::<250>,
        empty: nothing,
        inner: READ,
    },
];

/// The factor by which a count may grow.
const TOLERANCE: f64 = 1.02;

#[inline(never)]
fn reader(rig: &Rig, reads: u64) {
    let mut reader = rig.flow.reader().expect("reader");
    for _ in 0..reads {
        black_box(reader.read().is_ok());
    }
}

#[inline(never)]
fn volatile(rig: &Rig, reads: u64) {
    let mut values = [0; 2];
    for _ in 0..reads {
        black_box(rig.counters.read(black_box(&mut values)).is_ok());
    }
}

#[inline(never)]
fn cached(rig: &Rig, reads: u64) {
    for _ in 0..reads {
        let Ok(seen) = rig.snapshot.read_cached::<2>(HOUR) else { return };
        black_box(seen[0]);
        black_box(seen[1]);
        black_box(seen.age_ns());
    }
}

#[inline(never)]
fn cached_by(rig: &Rig, reads: u64) {
    for _ in 0..reads {
        let Ok(seen) = rig.snapshot.read_cached::<2>(black_box(HOUR)) else { return };
        black_box(seen[0]);
        black_box(seen[1]);
        black_box(seen.age_ns());
    }
}

#[inline(never)]
fn cached_into(rig: &Rig, reads: u64) {
    let mut values = [0; 2];
    for _ in 0..reads {
        let Ok(seen) = rig.snapshot.read_cached_into(HOUR, black_box(&mut values)) else { return };
        black_box(seen.age_ns());
    }
}

#[inline(never)]
fn at(rig: &Rig, reads: u64) {
    let (_, stamp) = rig.snapshot.latest::<2>().expect("filled");
    for _ in 0..reads {
        let Ok(seen) = rig.snapshot.read_at::<2>(black_box(stamp.taken_ns()), HOUR) else { return };
        black_box(seen[0]);
        black_box(seen[1]);
        black_box(seen.age_ns());
    }
}

#[inline(never)]
fn latest(rig: &Rig, reads: u64) {
    for _ in 0..reads {
        let Ok((values, stamp)) = rig.snapshot.latest::<2>() else { return };
        black_box(values[0]);
        black_box(values[1]);
        black_box(stamp.taken_ns());
    }
}

/// The loop around a tick is one of its costs.
#[inline(never)]
fn nothing(_: &Rig, _: u64) {}

#[inline(never)]
fn use_one(_: &Rig, reads: u64) {
    for i in 0..reads {
        black_box(black_box(i) == 7);
    }
}

#[inline(never)]
fn use_three(_: &Rig, reads: u64) {
    for i in 0..reads {
        black_box(i);
        black_box(i);
        black_box(i);
    }
}

#[inline(never)]
fn use_three_by(_: &Rig, reads: u64) {
    for _ in 0..reads {
        let i = black_box(7_u64);
        black_box(i);
        black_box(i);
        black_box(i);
    }
}

/// Ticks of a sampler with `N` snapshots, each a round.
#[inline(never)]
fn ticks<const N: u8>(rig: &Rig, reads: u64) {
    let all: Vec<_> = (0..N).map(|last| counted(&rig.context, &rig.qp, last)).collect();
    let mut sampler = Sampler::new(Duration::ZERO).at_most(N.into());
    let snapshots: Vec<_> = all.iter().map(|(counters, _)| counters.snapshot().expect("snapshot")).collect();
    snapshots.iter().for_each(|snapshot| sampler.add(snapshot));
    for _ in 0..reads / u64::from(N) {
        black_box(sampler.tick());
    }
}

/// Counters of packets and bytes to an address.
fn counted(context: &Context, qp: &QueuePair<RawPacket>, last: u8) -> (Counters, Flow) {
    let counters = context.create_counters().expect("counters");
    counters.attach(Point::Packets, 0).expect("attach");
    counters.attach(Point::Bytes, 1).expect("attach");
    let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 1, last])).count(&counters);
    let flow = qp.create_flow(&rule).expect("flow");
    (counters, flow)
}

fn work(name: &str, reads: u64, is_empty: bool) {
    let path = PATHS.iter().find(|path| path.name == name).expect("a path");
    let device = SoftDevice::default().device();
    let context = device.open_through(|inner| Box::new(Null::new(inner))).expect("open");
    let cq = context.create_cq(16).expect("cq");
    let qp = context.alloc_pd().expect("pd").raw_packet(&cq).connect(1).expect("qp");
    let (counters, flow) = counted(&context, &qp, u8::MAX);
    let snapshot = counters.snapshot().expect("snapshot");
    snapshot.refresh().expect("refresh");
    let rig = Rig { flow, snapshot, counters, qp, context };
    if is_empty { (path.empty)(&rig, reads) } else { (path.run)(&rig, reads) }
}

/// All instructions of a run, and those of the function `inner` with all that it calls.
fn count(what: &str, name: &str, inner: &str, reads: u64) -> (u64, u64) {
    let program = std::env::current_exe().expect("own path");
    let out = std::env::temp_dir().join(format!("uverbs-callgrind-{}", std::process::id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([what, name, &reads.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let annotate =
        Command::new("callgrind_annotate").args(["--threshold=100", "--inclusive=yes"]).arg(&out).output();
    let text = String::from_utf8(annotate.expect("callgrind_annotate runs").stdout).expect("text");
    std::fs::remove_file(out).expect("the profile was written");
    let number = |wanted: &str| {
        let line = text.lines().find(|line| line.contains(wanted))?;
        line.split_whitespace().next()?.replace(',', "").parse().ok()
    };
    (number("PROGRAM TOTALS").expect("totals"), number(inner).unwrap_or(0))
}

/// Instructions of one iteration, and of the function `inner` in it.
fn each(what: &str, name: &str, inner: &str) -> (f64, f64) {
    let (few, many) = (count(what, name, inner, FEW), count(what, name, inner, MANY));
    let reads = (MANY - FEW) as f64;
    ((many.0 as f64 - few.0 as f64) / reads, (many.1 as f64 - few.1 as f64) / reads)
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    if let [_, what, name, reads] = args.as_slice()
        && ["run", "empty"].contains(&what.as_str())
    {
        return work(name, reads.parse().expect("a number"), what == "empty");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    // The sections after it are those of `benches/path`.
    let (kept, others) = kept.split_at(kept.find("\n[").unwrap_or(kept.len()));
    let kept = |name| {
        let line = kept.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        line.trim().parse::<f64>().ok()
    };
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for Path { name, promise, inner, .. } in PATHS {
        let place = if *inner == KERNEL { "in the kernel's place" } else { "of the read" };
        let ((total, kernel), (empty, _)) = (each("run", name, inner), each("empty", name, inner));
        // The rest of the run differs by a few instructions: some thousandths per iteration.
        let own = ((total - kernel - empty) * 10.0).round() / 10.0;
        writeln!(table, "{name}: {own:.1}").expect("a string takes it");
        println!("{name}: {own:.1} instructions (and {empty:.1} of the loop, {kernel:.1} {place})");
        if promise.is_some_and(|promise| own > promise) {
            wrong.push(format!("{name}: more than was promised, {}", promise.unwrap_or_default()));
        }
        match kept(name) {
            Some(kept) if own <= kept * TOLERANCE => {}
            Some(kept) => wrong.push(format!("{name}: grown from {kept}")),
            None => wrong.push(format!("{name}: not in {file}")),
        }
    }
    if std::env::var_os("UVERBS_BENCH_KEEP").is_some() {
        return std::fs::write(file, table + others).expect("the file can be written");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
