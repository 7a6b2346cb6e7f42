//! Faults of the wire, which the environment variable `UVERBS_SOFT_FAULTS` asks for: `loss=1%,duplicates=0.5%,reordering=1%,delay=300us,seed=7`.

use std::time::Duration;

use uverbs::soft::Faults;

/// The faults in the variable's value, and the entries that are none.
pub(super) fn parsed(value: &str) -> (Faults, Vec<&str>) {
    let (mut faults, mut wrong) = (Faults::default(), Vec::new());
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let with = |(name, value): (&str, &str)| {
            Some(match name {
                "loss" => faults.with_loss(share(value)?),
                "duplicates" => faults.with_duplicates(share(value)?),
                "reordering" => faults.with_reordering(share(value)?),
                "delay" => faults.with_delay(time(value)?),
                "seed" => faults.with_seed(value.parse().ok()?),
                _ => return None,
            })
        };
        match entry.split_once('=').and_then(with) {
            Some(more) => faults = more,
            None => wrong.push(entry),
        }
    }
    (faults, wrong)
}

/// Parts per million, from percent.
fn share(value: &str) -> Option<u32> {
    let percent: f64 = value.strip_suffix('%')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then(|| (percent * 1e4).round() as u32)
}

/// At most a minute.
fn time(value: &str) -> Option<Duration> {
    let (number, micros) = [("us", 1), ("ms", 1_000), ("s", 1_000_000)]
        .into_iter()
        .find_map(|(unit, micros)| Some((value.strip_suffix(unit)?.parse::<u64>().ok()?, micros)))?;
    let time = number.checked_mul(micros).map(Duration::from_micros)?;
    (time <= Duration::from_secs(60)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_fault_or_is_reported() {
        let (faults, wrong) = parsed("loss=1%, duplicates=0.5%,reordering=100%,delay=300us,seed=7,");
        let wanted = Faults::seeded(7).with_loss(10_000).with_duplicates(5_000).with_reordering(1_000_000);
        assert_eq!((faults, wrong), (wanted.with_delay(Duration::from_micros(300)), Vec::new()));
        assert_eq!(parsed("delay=2ms").0.delay, Duration::from_millis(2));
        assert_eq!(parsed("delay=60s").0.delay, Duration::from_secs(60));
        let bad = [
            "loss",
            "loss=1",
            "loss=101%",
            "loss=-1%",
            "loss=NaN%",
            "gain=1%",
            "delay=1",
            "delay=61s",
            "seed=x",
        ];
        assert_eq!(parsed(&bad.join(",")), (Faults::default(), bad.to_vec()));
        assert_eq!(parsed(&format!("delay={}s", u64::MAX)).1.len(), 1);
    }
}
