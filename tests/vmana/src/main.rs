//! A virtual MANA: a PCI device over vfio-user, which the kernel's unmodified mana and mana_ib drivers use like a real one.
//!
//! It allows `uverbs`, and libibverbs for comparison, to be tested with the drivers' own code and without hardware. README.md says what
//! it does, and what it does not prove.

mod command;
mod control;
mod device;
mod hwc;
mod limits;
mod net;
mod queue;
mod rdma;
mod region;
mod trace;

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;
use vpci::lock;
use vpci::pci::PciId;
use vpci::wire::Ends;

use crate::device::{Device, LAYOUT};
use crate::limits::Limits;

/// A virtual MANA over vfio-user.
#[derive(Debug, Parser)]
struct Arguments {
    /// The socket that QEMU's vfio-user-pci connects to.
    #[arg(long)]
    socket: PathBuf,
    /// The socket of the control line.
    #[arg(long)]
    control: PathBuf,
    /// Vendor and device: 1414:00ba is a virtual function, the only kind that is modelled.
    #[arg(long, default_value = "1414:00ba")]
    pci_id: PciId,
    /// The hardware address, as in 52:54:00:ca:fe:01.
    #[arg(long, default_value = "00:0d:3a:00:00:01", value_parser = vpci::mac)]
    mac: [u8; 6],
    /// Connects the device to another: a socket of its own, and that of the other.
    #[arg(long, value_name = "PATH[,PEER]")]
    wire: Option<Ends>,
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
    let device = Arc::new(Mutex::new(Device::new(limits, arguments.mac)));
    if let Some(ends) = &arguments.wire {
        net::connect(ends, &device)?;
    }

    let listener = vpci::control::listen(&arguments.control)?;
    let controlled = Arc::clone(&device);
    thread::spawn(move || vpci::control::serve(&listener, &controlled, control::answer));
    let timed = Arc::clone(&device);
    thread::spawn(move || vpci::timers::keep_time(&timed));

    // It serves one machine, and ends with it.
    let served = vpci::serve(&arguments.socket, Arc::clone(&device), arguments.pci_id, &LAYOUT);
    if let Some(path) = arguments.trace {
        let lines: String = lock(&device).trace.lines().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, lines)?;
    }
    Ok(served?)
}
