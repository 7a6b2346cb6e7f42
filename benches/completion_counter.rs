//! Instructions of the calls of a completion counter, counted by callgrind, and the time of a wake-up: `cargo bench --bench
//! completion_counter`. `benches/peer-libfabric/run` compares it with libfabric.
//!
//! The program runs itself under `valgrind --tool=callgrind` with few and with many calls. The difference, divided by the number of
//! calls, is the cost of one; the cost of an empty loop is subtracted. A peer in `UVERBS_LIBFABRIC_PEER` is measured in the same way, in
//! turns with ours.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use uverbs::soft::{Profile, SoftDevice};
use uverbs::{CompletionCounter, CounterSource, WaitObject};

/// The calls, with their limits of instructions: for a counter of the process, and for one that the device writes.
const PROMISES: [(&str, Option<f64>); 4] =
    [("read", Some(4.0)), ("readerr", Some(4.0)), ("add", Some(12.0)), ("wait", Some(15.0))];
const DEVICE_PROMISES: [(&str, f64); 3] = [("read", 4.0), ("readerr", 4.0), ("wait", 15.0)];

const FEW: u64 = 1_000;
const MANY: u64 = 11_000;
/// Number of wake-ups of a run, and number of runs, of which the median is printed.
const WAKES: u64 = 20_000;
const RUNS: usize = 7;

fn counter() -> CompletionCounter {
    CompletionCounter::new(WaitObject::Unspecified).expect("a counter")
}

/// A counter whose values the device writes to memory. They are read in the same way on every device.
fn counter_of_device() -> CompletionCounter {
    let context = SoftDevice::new(Profile::default().with_completion_counters(1)).open().expect("a device");
    let builder = CompletionCounter::builder().wait_object(WaitObject::Unspecified);
    let counter = builder.create_on(&context).expect("a counter of the device's");
    assert_eq!(counter.source(), CounterSource::DeviceInMemory);
    counter
}

fn work(call: &str, calls: u64) {
    let (counter, call) = match call.strip_prefix("device-") {
        Some(call) => (counter_of_device(), call),
        None => (counter(), call),
    };
    match call {
        "read" => repeat(calls, || black_box(&counter).read()),
        "readerr" => repeat(calls, || black_box(&counter).read_err()),
        "add" => repeat(calls, || black_box(&counter).add(1).is_ok()),
        "wait" => repeat(calls, || black_box(&counter).wait(0, None).is_ok()),
        _ => repeat(calls, || black_box(&counter)),
    }
}

/// The compiler must not know the counter or the use of the result.
#[inline(always)]
fn repeat<T>(calls: u64, call: impl Fn() -> T) {
    for _ in 0..calls {
        black_box(call());
    }
}

/// Nanoseconds from a change in one thread to the end of a wait in another.
fn wake(wakes: u64) -> f64 {
    let (ping, pong) = (counter(), counter());
    let wait = |counter: &CompletionCounter, round| counter.wait(round, None).expect("a wait");
    let add = |counter: &CompletionCounter| counter.add(1).expect("an add");
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=wakes {
                wait(&ping, round);
                add(&pong);
            }
        });
        for round in 1..=wakes {
            add(&ping);
            wait(&pong, round);
        }
    });
    start.elapsed().as_nanos() as f64 / (2 * wakes) as f64
}

/// All instructions of a run.
fn count(program: &[String], call: &str, calls: u64) -> f64 {
    let out = std::env::temp_dir().join(format!("uverbs-counter-{}", std::process::id()));
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(program)
        .args(["work", call, &calls.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let text = std::fs::read_to_string(&out).expect("the profile was written");
    std::fs::remove_file(out).expect("it can go");
    let totals = text.lines().find_map(|line| line.strip_prefix("totals:").or(line.strip_prefix("summary:")));
    totals.and_then(|sum| sum.trim().parse().ok()).expect("a sum")
}

/// Instructions of one call.
fn cost(program: &[String], call: &str, empty: &str) -> f64 {
    let each = |call| (count(program, call, MANY) - count(program, call, FEW)) / (MANY - FEW) as f64;
    each(call) - each(empty)
}

fn wake_of(program: &[String]) -> f64 {
    let run = Command::new(&program[0]).args(&program[1..]).args(["wake", &WAKES.to_string()]).output();
    let run = run.expect("it runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).trim().parse().expect("a number")
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "work", call, calls] => return work(call, calls.parse().expect("a number")),
        [_, "wake", wakes] => return println!("{:.0}", wake(wakes.parse().expect("a number"))),
        _ => {}
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return println!("skipped: valgrind is not installed");
    }
    let ours = vec![std::env::current_exe().expect("own path").display().to_string()];
    let peers: Vec<_> = std::env::var("UVERBS_LIBFABRIC_PEER").map_or_else(
        |_| Vec::new(),
        |peer| {
            let providers = std::env::var("UVERBS_LIBFABRIC_PROVIDERS").unwrap_or_else(|_| "tcp".into());
            providers.split_whitespace().map(|provider| vec![peer.clone(), provider.to_owned()]).collect()
        },
    );
    let names = peers.iter().map(|peer| format!(" libfabric, {} |", peer[1])).collect::<String>();
    println!("| call | uverbs |{names}\n| --- | ---: |{}", " ---: |".repeat(peers.len()));
    for (call, limit) in PROMISES {
        let own = cost(&ours, call, "loop");
        let theirs =
            peers.iter().map(|peer| format!(" {:.1} |", cost(peer, call, "loop"))).collect::<String>();
        println!("| {call}, instructions | {own:.1} |{theirs}");
        if let Some(limit) = limit {
            assert!(own < limit + 0.5, "{call}: more than {limit} instructions");
        }
    }
    for (call, limit) in DEVICE_PROMISES {
        let own = cost(&ours, &format!("device-{call}"), "device-loop");
        println!(
            "| {call} of a counter of the device's, instructions | {own:.1} |{}",
            " |".repeat(peers.len())
        );
        assert!(own < limit + 0.5, "{call} of a counter of the device's: more than {limit} instructions");
    }
    let programs: Vec<_> = std::iter::once(&ours).chain(&peers).collect();
    let mut times = vec![Vec::new(); programs.len()];
    for _ in 0..RUNS {
        for (program, times) in programs.iter().zip(&mut times) {
            times.push(wake_of(program));
        }
    }
    let own = median(times.remove(0));
    let theirs =
        times.into_iter().map(median).map(|time| format!(" {time:.0} ({:.2} of ours) |", time / own));
    println!("| wake-up, ns | {own:.0} |{}", theirs.collect::<String>());
}
