//! Counts the packets that a rule matches and prints them, with their rate, once a second.
//!
//! `cargo run --example counter_watch [DEVICE [RULE [SECONDS]]]`: `soft0`, for which this program generates frames, or a device such as `mlx5_0`, which
//! needs CAP_NET_RAW.

use std::process::ExitCode;
use std::time::Duration;

use uverbs::{AnyRule, Point, Rates, SoftDevice};

/// A frame that the default rule takes: to this address, from nobody, 60 bytes.
const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counter_watch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "soft0".into());
    let text = args.next().unwrap_or_else(|| "ether dst 02:00:00:00:00:01".into());
    let seconds: u64 = args.next().map_or(Ok(3), |word| word.parse())?;

    let soft = SoftDevice::default();
    let is_soft = name == soft.name();
    let context = if is_soft { soft.open()? } else { uverbs::devices()?.named(&name)?.open()? };
    let cq = context.create_cq(64)?;
    let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;

    let counters = context.create_counters()?;
    counters.attach(Point::Packets, 0)?;
    counters.attach(Point::Bytes, 1)?;
    let AnyRule::Normal(rule) = AnyRule::parse(&text, 1)? else {
        return Err("`all-default`, `mc-default` and `sniffer` rules cannot count".into());
    };
    let flow = qp.create_flow(&rule.count(&counters))?;

    // Any number of threads can read the snapshot. It asks the device only if its values are too old.
    let snapshot = flow.snapshot()?;
    let mut rates = Rates::new(Duration::from_secs(1));
    for _ in 0..seconds {
        let cached = snapshot.read_cached::<2>(Duration::from_millis(5))?;
        rates.update(cached.stamp(), cached.values());
        let [packets, bytes] = cached.values();
        match rates.per_second() {
            Some([per_second, _]) => println!("{packets} packets, {bytes} bytes, {per_second:.0} packets/s"),
            None => println!("{packets} packets, {bytes} bytes"),
        }
        if is_soft {
            arrive(&soft, 100);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut values = [0; 2];
    counters.read(&mut values)?; // asks the device
    println!("{} packets, {} bytes at the end", values[0], values[1]);
    if is_soft && seconds > 0 && text.contains("02:00:00:00:00:01") {
        assert_eq!(values[0], 100 * seconds);
    }
    Ok(())
}

/// Frames arrive at the soft device.
fn arrive(soft: &SoftDevice, count: usize) {
    let frame = [&DESTINATION[..], &[0; 54]].concat();
    (0..count).for_each(|_| soft.inject(&frame));
}
