//! A virtual eRDMA: a PCI device over vfio-user, which the kernel's unmodified erdma driver uses like a real one, in RoCE mode.
//!
//! It allows `uverbs`, and libibverbs for comparison, to be tested with the driver's own code and without hardware. README.md says what
//! it does, and what it does not prove.

mod command;
mod control;
mod cq;
mod device;
mod event;
mod memory;
mod network;
mod object;
mod qp;
mod region;
mod step;
#[cfg(test)]
mod tests;
mod work;

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use clap::Parser;
use vpci::pci::PciId;
use vpci::wire::Ends;
use vpci::{bytes, lock};

use crate::device::{Device, LAYOUT};

/// A virtual eRDMA over vfio-user.
#[derive(Debug, Parser)]
struct Arguments {
    /// The socket that QEMU's vfio-user-pci connects to.
    #[arg(long)]
    socket: PathBuf,
    /// The socket of the control line.
    #[arg(long)]
    control: PathBuf,
    /// Vendor and device.
    #[arg(long, default_value = "1ded:107f")]
    pci_id: PciId,
    /// The hardware address of the network interface that the driver looks for.
    #[arg(long, default_value = "52:54:00:ca:fe:01", value_parser = vpci::mac)]
    mac: [u8; 6],
    /// Connects the device to another: a socket of its own, and that of the other.
    #[arg(long, value_name = "PATH[,PEER]")]
    wire: Option<Ends>,
    /// Bits of the device's capabilities: 0x80 atomic operations, 0x08 pages of doorbells for each process.
    #[arg(long, default_value = "0x88", value_parser = flags)]
    flags: u8,
    /// Loses one in so many packets; 0 for none.
    #[arg(long, default_value_t = 0)]
    lose: u32,
    /// A file for the last commands, written when the machine is gone.
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn flags(word: &str) -> Result<u8, String> {
    let number = vpci::control::number(word).and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| format!("{word} is no number of eight bits"))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut device = Device::new(arguments.mac, arguments.flags);
    device.network.lose = arguments.lose;
    let device = Arc::new(Mutex::new(device));
    if let Some(ends) = &arguments.wire {
        network::connect(ends, &device)?;
    }
    let listener = vpci::control::listen(&arguments.control)?;
    let controlled = Arc::clone(&device);
    thread::spawn(move || vpci::control::serve(&listener, &controlled, control::answer));
    let timed = Arc::clone(&device);
    thread::spawn(move || vpci::timers::keep_time(&timed));

    // It serves one machine, and ends with it.
    let served = vpci::serve(&arguments.socket, Arc::clone(&device), arguments.pci_id, &LAYOUT);
    if let Some(path) = arguments.trace {
        let lines: String = lock(&device).trace.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, lines)?;
    }
    Ok(served?)
}
