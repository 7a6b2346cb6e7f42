//! Instructions of the crate's own around the system call of one read, counted by callgrind:
//! `cargo bench --bench instructions`. The count does not depend on the machine's load.
//!
//! The program runs itself under `valgrind --tool=callgrind` twice, with few and with many reads on a
//! transport that does all that the real one does but for the ioctl; the difference, divided by the number of
//! reads, is the cost of one. What stands in for the kernel is taken off, and so is the loop.

use std::hint::black_box;
use std::process::Command;

use uverbs::transport::Null;
use uverbs::{Eth, FlowRule, Point, SoftDevice};

/// The promise of the `Reader`.
const READER_LIMIT: f64 = 25.0;

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;

fn work(path: &str, reads: u64) {
    let device = SoftDevice::default().device();
    let context = device.open_with(|inner| Box::new(Null::new(inner))).expect("open");
    let cq = context.create_cq(16).expect("cq");
    let qp = context.alloc_pd().expect("pd").raw_packet(&cq).connect(1).expect("qp");
    let counters = context.create_counters().expect("counters");
    counters.attach(Point::Packets, 0).expect("attach");
    counters.attach(Point::Bytes, 1).expect("attach");
    let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, 1])).count(&counters);
    let flow = qp.create_flow(&rule).expect("flow");
    match path {
        "Reader::read" => {
            let mut reader = flow.reader().expect("reader");
            for _ in 0..reads {
                black_box(reader.read().is_ok());
            }
        }
        "Snapshot::read_cached" | "Snapshot::read_cached, any limit" | "Snapshot::latest" => {
            let snapshot = counters.snapshot().expect("snapshot");
            snapshot.refresh().expect("refresh");
            let hour = std::time::Duration::from_secs(3600);
            if path == "Snapshot::latest" {
                for _ in 0..reads {
                    black_box(black_box(&snapshot).latest::<2>().ok());
                }
            } else if path == "Snapshot::read_cached" {
                for _ in 0..reads {
                    let seen = black_box(&snapshot).read_cached::<2>(hour).expect("cached");
                    black_box(seen[0]);
                    black_box(seen[1]);
                    black_box(seen.age_ns());
                }
            } else {
                for _ in 0..reads {
                    let seen = black_box(&snapshot).read_cached::<2>(black_box(hour)).expect("cached");
                    black_box(seen[0]);
                    black_box(seen[1]);
                    black_box(seen.age_ns());
                }
            }
        }
        "the loop itself" => {
            for i in 0..reads {
                black_box(black_box(i) == 7);
            }
        }
        _ => {
            let mut values = [0; 2];
            for _ in 0..reads {
                black_box(counters.read(black_box(&mut values)).is_ok());
            }
        }
    }
}

/// All instructions of a run, and those of the stand-in for the kernel.
fn count(path: &str, reads: u64) -> (u64, u64) {
    let program = std::env::current_exe().expect("own path");
    let out = std::env::temp_dir().join(format!("uverbs-callgrind-{}", std::process::id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["work", path, &reads.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let annotate = Command::new("callgrind_annotate").args(["--threshold=100"]).arg(&out).output();
    let text = String::from_utf8(annotate.expect("callgrind_annotate runs").stdout).expect("text");
    std::fs::remove_file(out).expect("the profile was written");
    let number = |wanted: &str| {
        let line = text.lines().find(|line| line.contains(wanted))?;
        line.split_whitespace().next()?.replace(',', "").parse().ok()
    };
    (number("PROGRAM TOTALS").expect("totals"), number("null_kernel").unwrap_or(0))
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    if let [_, work_arg, path, reads] = args.as_slice()
        && work_arg == "work"
    {
        return work(path, reads.parse().expect("a number"));
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let each = |path| {
        let (few, many) = (count(path, FEW), count(path, MANY));
        let reads = (MANY - FEW) as f64;
        ((many.0 - few.0) as f64 / reads, (many.1 - few.1) as f64 / reads)
    };
    let (empty, _) = each("the loop itself");
    for path in [
        "Reader::read",
        "Counters::read",
        "Snapshot::read_cached",
        "Snapshot::read_cached, any limit",
        "Snapshot::latest",
    ] {
        let (total, kernel) = each(path);
        let own = total - kernel - empty;
        println!(
            "{path}: {own:.1} instructions (and {empty:.1} of the loop, {kernel:.1} in the kernel's place)"
        );
        assert!(path != "Reader::read" || own <= READER_LIMIT, "more than {READER_LIMIT}");
    }
}
