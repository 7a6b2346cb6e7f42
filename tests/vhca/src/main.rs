//! A virtual ConnectX: a PCI device over vfio-user, which the kernel's unmodified mlx5 drivers use like a real one.
//!
//! It allows `uverbs`, and libibverbs for comparison, to be tested with the drivers' own code and without hardware. README.md says what
//! it does, and what it does not prove.

mod bits;
mod command;
mod control;
mod counter;
mod device;
mod ifc;
mod lies;
mod mkey;
mod object;
mod packet;
mod port;
mod port_counter;
mod queue;
mod queue_counter;
mod registers;
mod rss;
mod server;
mod steering;
mod traffic;
mod transport;
mod umem;
mod wire;

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use clap::Parser;
use vpci::pci::PciId;
use vpci::wire::Ends;

use crate::command::Capabilities;
use crate::device::Device;
use crate::port::{LinkLayer, Port};

/// A virtual ConnectX over vfio-user.
#[derive(Debug, Parser)]
struct Arguments {
    /// The socket that QEMU's vfio-user-pci connects to.
    #[arg(long)]
    socket: PathBuf,
    /// The socket of the control line.
    #[arg(long)]
    control: PathBuf,
    /// Vendor and device: 15b3:1018 is a virtual function of a ConnectX-5, 15b3:1017 a physical one.
    #[arg(long, default_value = "15b3:1018")]
    pci_id: PciId,
    /// What the port is connected by.
    #[arg(long, value_enum, default_value_t)]
    port: LinkLayer,
    /// The local identifier of a port of InfiniBand.
    #[arg(long, default_value_t = 7)]
    lid: u16,
    /// The hardware address, as in 52:54:00:ca:fe:01.
    #[arg(long, default_value = "52:54:00:ca:fe:01", value_parser = vpci::mac)]
    mac: [u8; 6],
    /// Connects the port to that of another device: a socket of its own, and that of the other.
    #[arg(long, value_name = "PATH[,PEER]")]
    wire: Option<Ends>,
    /// A file for the last commands in full, written when the machine is gone.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Sets a capability, as in `cmd_hca_cap.log_max_uctx=20`. May be repeated.
    #[arg(long, value_name = "STRUCTURE.FIELD=VALUE")]
    cap: Vec<String>,
}

fn capabilities(arguments: &Arguments) -> Result<Capabilities, String> {
    let mut capabilities = Capabilities::default();
    capabilities.set_link(arguments.port);
    for setting in &arguments.cap {
        capabilities.set_by_text(setting)?;
    }
    Ok(capabilities)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut device = Device::new(capabilities(&arguments)?);
    let (rung, commands) = mpsc::channel();
    device.rung = Some(rung);
    device.mac = arguments.mac;
    device.port = Port::new(arguments.port, arguments.lid, device.guid());
    let device = Arc::new(Mutex::new(device));
    if let Some(ends) = &arguments.wire {
        wire::connect(ends, &device)?;
    }

    let listener = vpci::control::listen(&arguments.control)?;
    let controlled = Arc::clone(&device);
    thread::spawn(move || vpci::control::serve(&listener, &controlled, control::answer));
    let worked = Arc::clone(&device);
    thread::spawn(move || command::work(&worked, &commands));

    let timed = Arc::clone(&device);
    thread::spawn(move || transport::keep_time(&timed));

    // It serves one machine, and ends with it.
    let served = vpci::serve(&arguments.socket, Arc::clone(&device), arguments.pci_id, &server::LAYOUT);
    if let Some(path) = arguments.trace {
        let lines: String = vpci::lock(&device).trace.lines().map(|line| format!("{line}\n")).collect();
        std::fs::write(path, lines)?;
    }
    Ok(served?)
}
