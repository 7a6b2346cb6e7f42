//! Prints the counters of devices: rates of all counters that change, and the owners of queue pairs.
//!
//! `cargo run --example statistics [DEVICE]`: of the named device, or of a soft device with traffic.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::statistics::Statistic;
use uverbs::{Device, ErrorKind, Result, SoftDevice};

const INTERVAL: Duration = Duration::from_millis(200);
const READINGS: usize = 3;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("statistics: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let soft = SoftDevice::default();
    let name = std::env::args().nth(1).filter(|name| name != "soft0");
    let device = match &name {
        Some(name) => uverbs::devices()?.named(name)?.clone(),
        None => soft.device(),
    };

    let mut statistics = device.statistics()?;
    let mut before: Vec<Statistic> = statistics.read()?.to_vec();
    for _ in 0..READINGS {
        let start = Instant::now();
        if name.is_none() {
            (0..1000).for_each(|_| soft.inject(&[0; 100]));
        }
        thread::sleep(INTERVAL);
        // The same counters in the same order, unless one appears or disappears.
        for (now, earlier) in statistics.read()?.iter().zip(&before) {
            let Some(growth @ 1..) = now.growth(earlier) else { continue };
            let rate = growth as f64 / start.elapsed().as_secs_f64();
            println!("{}: {} {}, {rate:.0} a second", now.name(), now.value(), now.unit().as_str());
        }
        before.clear();
        before.extend_from_slice(statistics.latest());
    }
    for missing in statistics.missing() {
        println!("{:?} cannot be read: {}", missing.name, missing.error);
    }
    owners(&device)
}

/// Who has queue pairs.
fn owners(device: &Device) -> Result<()> {
    let mut resources = device.resources()?;
    for count in resources.summary()? {
        println!("{} of kind {}", count.number, count.kind);
    }
    match resources.queue_pairs() {
        Ok(rows) => rows.iter().for_each(|row| println!("queue pair {} of {}", row.number, row.owner)),
        // A soft device has only the counts.
        Err(error) if error.kind() == ErrorKind::Unsupported => println!("{error}"),
        Err(error) => return Err(error),
    }
    Ok(())
}
