//! Durations, rates, addresses and processors, as people write them.

use std::fmt::{self, Display};
use std::num::NonZeroU64;
use std::time::Duration;

/// Longer intervals are of no use, and with this limit no clock can overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Splits `1.5ms` into the number and the unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| "it does not begin with a number".to_owned())?;
    Ok((number, unit))
}

/// `1s`, `500ms`, `100us`, `2m`, `1h`; a number alone is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be ns, us, ms, s, m or h".to_owned()),
    };
    let duration = Duration::try_from_secs_f64(number * seconds).unwrap_or(Duration::MAX);
    match duration {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        _ if duration > LONGEST => Err("it must be at most a year".to_owned()),
        _ => Ok(duration),
    }
}

/// Packets per second: `1000`, `10k`, `1.5M`; none for `unlimited`.
pub(crate) fn rate(text: &str) -> Result<Option<NonZeroU64>, String> {
    if text == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err("the unit must be k, M or G (packets per second)".to_owned()),
    };
    // Out of range, the conversion saturates.
    let rate = NonZeroU64::new((number * factor).round() as u64);
    rate.map(Some).ok_or_else(|| "it must be at least one packet per second, or `unlimited`".to_owned())
}

/// `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], String> {
    let mut mac = [0; 6];
    let mut groups = text.split(':');
    for byte in &mut mac {
        let digits = groups.next().filter(|group| matches!(group.len(), 1 | 2) && !group.starts_with('+'));
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        *byte = value.ok_or("a MAC address is six pairs of hexadecimal digits with colons between")?;
    }
    match groups.next() {
        None => Ok(mac),
        Some(_) => Err("a MAC address has six parts, not more".to_owned()),
    }
}

/// Numbers of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// `0`, `2-5`, `0,2-3`: as in the kernel's lists of processors.
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let number = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+')).map(usize::from);
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => cpus.extend(first..=last),
            _ => {
                return Err(format!(
                    "`{}` is no number of a CPU and no range such as 2-5",
                    part.escape_debug()
                ));
            }
        }
    }
    Ok(Cpus(cpus))
}

/// A rate with a unit: `480.0 kbit/s`.
pub(crate) struct Scaled(pub(crate) f64, pub(crate) &'static str);

impl Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, unit) = self;
        let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
        let (factor, prefix) = steps.into_iter().find(|(factor, _)| value >= factor).unwrap_or((1.0, ""));
        write!(f, "{:.1} {prefix}{unit}", value / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, nanoseconds) in [
            ("1s", 1_000_000_000),
            ("0.5", 500_000_000),
            ("100us", 100_000),
            ("2m", 120_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(duration(text).map(|d| d.as_nanos()), Ok(nanoseconds), "{text}");
        }
        for text in ["", "s", "0s", "1 s", "-1s", "1e3s", "1..2s", "9999999999999999999999h", "1y"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_have_units() {
        for (text, wanted) in [("1", 1), ("10k", 10_000), ("1.5M", 1_500_000)] {
            assert_eq!(rate(text), Ok(NonZeroU64::new(wanted)), "{text}");
        }
        assert_eq!(rate("unlimited"), Ok(None));
        for text in ["", "0", "k", "1K", "-1", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_have_six_parts() {
        assert_eq!(mac("02:0:0:0:0:ff"), Ok([2, 0, 0, 0, 0, 255]));
        for text in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "02:00:00:00:00:+1", "02:00:00:00:00:100"]
        {
            assert!(mac(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_listed() {
        assert_eq!(cpus("0,2-4,3"), Ok(Cpus(vec![0, 2, 3, 4, 3])));
        for text in ["", "a", "1-", "2-1", "+1", "1,,2", "70000"] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_scaled() {
        assert_eq!(Scaled(480_000.0, "bit/s").to_string(), "480.0 kbit/s");
        assert_eq!(Scaled(0.0, "packets/s").to_string(), "0.0 packets/s");
    }
}
