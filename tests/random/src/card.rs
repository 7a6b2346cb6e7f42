//! The control line of a virtual device (`tests/vhca`).

#[path = "../../common/control.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with tests, which use other parts")]
mod shared;

pub use shared::Control;

/// Opens the line, if there is one. Sent frames return, as on the soft device.
pub fn open() -> Option<Control> {
    let line = Control::open()?;
    plug(&line);
    Some(line)
}

/// Ends all faults.
pub fn heal(line: &Control) {
    line.heal();
    plug(line);
}

fn plug(line: &Control) {
    line.ask("loop on");
}
