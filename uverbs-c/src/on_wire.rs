//! Devices of the environment variable `UVERBS_SOFT`, which the kernel does not have: soft devices on IP addresses of this host.
//!
//! `UVERBS_SOFT=127.0.0.2,127.0.0.3` adds `soft0` and `soft1` to the list, after the kernel's devices. A device takes its address while it is
//! open, so that programs with the same variable can list the devices and open one each. An entry that is not an address is reported to
//! stderr once, as libibverbs reports what it cannot use, and there is no device for it; the numbers of the others are those of their places.
//! As libibverbs ignores its variables then, the variable has no effect in a program that runs as another user than the one who started it.

mod faults;

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use nix::unistd::{Gid, Uid};
use uverbs::raw::Local;
use uverbs::soft::{DeviceOnWire, Faults, Profile};

use crate::device::Device;

const VARIABLE: &str = "UVERBS_SOFT";
const FAULTS: &str = "UVERBS_SOFT_FAULTS";

/// Why there is no device for an entry.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    NoAddress(String),
    /// An address of all interfaces or of a group, not of this host alone.
    NotOne(IpAddr),
    Twice(IpAddr),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(text) => write!(f, "`{}` is not an IP address", text.escape_debug()),
            Self::NotOne(address) => write!(f, "{address} is not the address of one interface"),
            Self::Twice(address) => write!(f, "{address} is there twice"),
        }
    }
}

/// The addresses in the variable's value, with their places.
fn parsed(value: &str) -> (Vec<(usize, IpAddr)>, Vec<Wrong>) {
    let (mut addresses, mut wrong) = (Vec::new(), Vec::new());
    let entries = value.split(',').map(str::trim).enumerate();
    for (place, entry) in entries.filter(|(_, entry)| !entry.is_empty()) {
        match entry.parse::<IpAddr>() {
            Err(_) => wrong.push(Wrong::NoAddress(entry.to_owned())),
            Ok(address) if address.is_unspecified() || address.is_multicast() => {
                wrong.push(Wrong::NotOne(address))
            }
            Ok(address) if addresses.iter().any(|(_, known)| *known == address) => {
                wrong.push(Wrong::Twice(address))
            }
            Ok(address) => addresses.push((place, address)),
        }
    }
    (addresses, wrong)
}

/// What a small card has, and as many objects as large programs create.
fn profile(place: usize, faults: Faults) -> Profile {
    const MANY: u32 = 1 << 16;
    let profile = Profile::default().with_max_qp(MANY).with_max_cq(MANY).with_max_pd(MANY);
    profile.with_moves_regions(true).with_name(format!("soft{place}")).with_faults(faults)
}

fn read() -> Vec<Arc<Device>> {
    let is_own = Uid::current() == Uid::effective() && Gid::current() == Gid::effective();
    let Some(value) = std::env::var_os(VARIABLE).filter(|_| is_own) else { return Vec::new() };
    let (addresses, wrong) = parsed(&value.to_string_lossy());
    for wrong in wrong {
        warn(VARIABLE, format_args!("{wrong}; there is no device for it"));
    }
    let value = std::env::var_os(FAULTS).unwrap_or_default();
    let value = value.to_string_lossy();
    let (faults, wrong) = faults::parsed(&value);
    for wrong in wrong {
        warn(FAULTS, format_args!("`{}` is not a fault with its amount", wrong.escape_debug()));
    }
    let device = |(place, address)| DeviceOnWire::new(address, profile(place, faults));
    addresses.into_iter().map(device).map(|on_wire| Arc::new(Device::on_wire(on_wire))).collect()
}

fn warn(variable: &str, what: fmt::Arguments<'_>) {
    // Nothing can be done if it cannot be written.
    let _ = writeln!(std::io::stderr(), "libibverbs: Warning: {variable}: {what}");
}

/// The devices, which are the same in every list. The variable is read once.
pub(crate) fn devices() -> Vec<Arc<Device>> {
    static KNOWN: Local<Option<Vec<Arc<Device>>>> = Local::new(Option::clone);
    KNOWN.lock().get_or_insert_with(read).clone()
}

#[cfg(test)]
mod tests;
