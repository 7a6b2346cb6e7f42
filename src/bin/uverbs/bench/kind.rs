//! What kind of device was measured.

use std::fmt;

use serde::Serialize;
use uverbs::Device;
use uverbs::abi::types::driver_id;

/// The name that the virtual ConnectX of `tests/vhca` gives its board.
const VIRTUAL_BOARD: &str = "UVERBS_VHCA";

/// What kind of device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The device inside this program.
    Soft,
    /// A driver without hardware, such as rxe.
    Software,
    /// The virtual ConnectX.
    Virtual,
    Hardware,
}

impl Kind {
    pub(crate) fn of(device: &Device) -> Self {
        if device.node().is_none() {
            return Self::Soft;
        }
        if [driver_id::RXE, driver_id::SIW].contains(&device.driver_id()) {
            return Self::Software;
        }
        let board = device.sysfs().and_then(|path| std::fs::read_to_string(path.join("board_id")).ok());
        match board {
            Some(board) if board.trim() == VIRTUAL_BOARD => Self::Virtual,
            _ => Self::Hardware,
        }
    }

    /// What every figure must be read with.
    pub(super) fn remark(self) -> Option<&'static str> {
        match self {
            Self::Soft => Some("soft device: no hardware involved"),
            Self::Software => Some("software device: no hardware involved"),
            Self::Virtual => Some("virtual device: no hardware involved"),
            Self::Hardware => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Soft => "soft device",
            Self::Software => "software device",
            Self::Virtual => "virtual device",
            Self::Hardware => "device",
        })
    }
}
