//! The modes of reading.

use serde::Serialize;

/// How counters are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// Ask the device, with a command that is built each time.
    Volatile,
    /// Ask the device, with a command prepared once.
    Prepared,
    /// As prepared, but request cached values from the driver. Up to Linux 7.2 no driver has a cache.
    DriverCached,
    /// Values cached in user space; the device is asked when they are older than --max-age.
    Snapshot,
    /// Ask the device for up to 4092 counters with one command (mlx5 with DEVX).
    Bulk,
    /// All other modes that the device supports.
    All,
}

impl Mode {
    /// The modes for which `all` stands.
    const EACH: [Self; 5] = [Self::Volatile, Self::Prepared, Self::DriverCached, Self::Snapshot, Self::Bulk];

    /// The selected modes, each once, and whether a mode that the device does not support may be left out.
    pub(super) fn meant(modes: &[Self]) -> (Vec<Self>, bool) {
        let all = modes.contains(&Self::All);
        (Self::EACH.into_iter().filter(|mode| all || modes.contains(mode)).collect(), all)
    }

    /// The name, as on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Volatile => "volatile",
            Self::Prepared => "prepared",
            Self::DriverCached => "driver-cached",
            Self::Snapshot => "snapshot",
            Self::Bulk => "bulk",
            Self::All => "all",
        }
    }

    /// A remark about the figures of this mode.
    pub(super) fn remark(self) -> Option<&'static str> {
        match self {
            Self::DriverCached => {
                Some("up to Linux 7.2 no driver has a cache: as prepared, and no age is known")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn all_is_each_of_the_others_once() {
        let others: Vec<_> =
            Mode::value_variants().iter().copied().filter(|mode| *mode != Mode::All).collect();
        assert_eq!(Mode::meant(&[Mode::All]), (others, true));
        let (meant, lenient) = Mode::meant(&[Mode::Prepared, Mode::Volatile, Mode::Prepared]);
        assert_eq!((meant, lenient), (vec![Mode::Volatile, Mode::Prepared], false));
    }

    #[test]
    fn names_are_those_of_the_command_line_and_of_json() {
        for mode in Mode::value_variants() {
            assert_eq!(mode.to_possible_value().unwrap().get_name(), mode.name());
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
    }
}
