//! Axes. Both kinds are logarithmic; positions on them are powers of ten.

/// What an axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bench) enum Scale {
    /// Times in ns.
    Time,
    /// How many.
    Number,
    /// Percentiles, the further apart the nearer to 100: by how many are above, one in ten, one in a hundred.
    Percentile,
}

impl Scale {
    /// Where a value is.
    pub(super) fn position(self, value: f64) -> f64 {
        match self {
            Self::Time | Self::Number => value.max(1.0).log10(),
            Self::Percentile => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        }
    }

    /// The text at a whole power.
    pub(super) fn label(self, power: i32) -> String {
        match self {
            Self::Time => {
                let (unit, first) = match power {
                    ..3 => ("ns", 0),
                    3..6 => ("µs", 3),
                    6..9 => ("ms", 6),
                    9.. => ("s", 9),
                };
                format!("{} {unit}", 10_u64.pow((power - first).clamp(0, 18) as u32))
            }
            Self::Number => {
                let number = |power: i32| 10_u64.pow(power.clamp(0, 18) as u32);
                match power {
                    ..3 => number(power).to_string(),
                    3..6 => format!("{},000", number(power - 3)),
                    6.. => format!("{},000,000", number(power - 6)),
                }
            }
            Self::Percentile => match power {
                ..=0 => "0".to_owned(),
                1 => "90".to_owned(),
                2 => "99".to_owned(),
                _ => format!("99.{}", "9".repeat(power as usize - 2)),
            },
        }
    }
}

/// The whole powers that enclose these positions: of nothing, the first two.
pub(super) fn range(positions: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for position in positions {
        low = low.min(position.floor());
        high = high.max(position.ceil());
    }
    if low > high { (0.0, 1.0) } else { (low, high.max(low + 1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_units() {
        let times: Vec<_> = (0..11).map(|power| Scale::Time.label(power)).collect();
        let wanted =
            ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];
        assert_eq!(times, wanted);
        assert_eq!(
            [0, 3, 4, 7].map(|power| Scale::Number.label(power)),
            ["1", "1,000", "10,000", "10,000,000"]
        );
        assert_eq!([0, 1, 2, 4].map(|power| Scale::Percentile.label(power)), ["0", "90", "99", "99.99"]);
    }

    #[test]
    fn positions_are_powers_of_ten() {
        assert_eq!([0.0, 1.0, 1000.0].map(|time| Scale::Time.position(time)), [0.0, 0.0, 3.0]);
        assert_eq!(Scale::Percentile.position(0.0), 0.0);
        assert!((Scale::Percentile.position(0.999) - 3.0).abs() < 1e-9);
        assert!(Scale::Percentile.position(1.0).is_finite());
    }

    #[test]
    fn a_range_encloses_everything() {
        assert_eq!(range([1.5, 3.2].into_iter()), (1.0, 4.0));
        assert_eq!(range([2.0].into_iter()), (2.0, 3.0));
        assert_eq!(range(std::iter::empty()), (0.0, 1.0));
    }
}
