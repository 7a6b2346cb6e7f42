//! A virtual EFA: a PCI device over vfio-user, which the kernel's unmodified efa driver uses like a real one.
//!
//! It allows `uverbs`, and libibverbs for comparison, to be tested with the driver's own code and without hardware. README.md says what
//! it does, and what it does not prove.

mod admin;
mod control;
mod counter;
mod device;
mod event;
mod fabric;
mod limits;
mod object;
mod queue;
mod random;
mod region;
mod registers;
mod statistics;

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Parser;
use vpci::pci::PciId;
use vpci::wire::Ends;
use vpci::{bytes, lock};

use crate::device::{Api, Device, LAYOUT};
use crate::fabric::Gid;
use crate::limits::Limits;

/// A virtual EFA over vfio-user.
#[derive(Debug, Parser)]
struct Arguments {
    /// The socket that QEMU's vfio-user-pci connects to.
    #[arg(long)]
    socket: PathBuf,
    /// The socket of the control line.
    #[arg(long)]
    control: PathBuf,
    /// Vendor and device: 1d0f:efa0 to 1d0f:efa2, with Linux 7.2 efa3, with 7.3 efa4.
    #[arg(long, default_value = "1d0f:efa2")]
    pci_id: PciId,
    /// The version of the interface: 0.1, 0.2 with checksums, 0.3 with long admin entries too.
    #[arg(long, default_value = "0.3")]
    api: Api,
    /// The hardware address that the device's own address is made of, as in 52:54:00:ca:fe:01.
    #[arg(long, default_value = "00:11:22:33:44:55", value_parser = vpci::mac)]
    mac: [u8; 6],
    /// Connects the device to another: a socket of its own, and that of the other.
    #[arg(long, value_name = "PATH[,PEER]")]
    wire: Option<Ends>,
    /// What chance is made of.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packets that are held back at most, for others to overtake them; 0 for none, and all in their order.
    #[arg(long, default_value_t = 4)]
    hold: u16,
    /// How long another device may take to answer, in milliseconds.
    #[arg(long, default_value_t = 3000)]
    patience: u32,
    /// A file for the last commands in full, written when the machine is gone.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Sets a limit, as in `max_qp=4`; the control line's `limits` lists them. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    cap: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut limits = Limits::default();
    arguments.cap.iter().try_for_each(|setting| limits.set_by_text(setting))?;
    let mut device = Device::new(limits, arguments.api, Gid::of_mac(arguments.mac));
    device.fabric.seed(arguments.seed);
    device.fabric.hold = arguments.hold.into();
    device.fabric.patience = Duration::from_millis(arguments.patience.into());
    let device = Arc::new(Mutex::new(device));
    if let Some(ends) = &arguments.wire {
        fabric::connect(ends, &device)?;
    }

    let listener = vpci::control::listen(&arguments.control)?;
    let controlled = Arc::clone(&device);
    thread::spawn(move || vpci::control::serve(&listener, &controlled, control::answer));
    let timed = Arc::clone(&device);
    thread::spawn(move || fabric::keep_time(&timed));

    // It serves one machine, and ends with it.
    let served = vpci::serve(&arguments.socket, Arc::clone(&device), arguments.pci_id, &LAYOUT);
    if let Some(path) = arguments.trace {
        let lines: String = lock(&device).trace.lines().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, lines)?;
    }
    Ok(served?)
}
