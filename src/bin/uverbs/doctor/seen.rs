//! What is known of the machine before the checks look at it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use nix::sys::socket::SockaddrStorage;
use uverbs::abi::types::node_type;
use uverbs::resources::Owner;
use uverbs::statistics::{Change, Statistics};
use uverbs::{Context, Device, ErrorKind};

use super::machine::Machine;
use super::routes::{self, Route};
use crate::info::words;

/// All that checks look at.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) machine: Machine,
    pub(super) devices: Vec<SeenDevice>,
    /// The addresses of network interfaces, with their names.
    pub(super) addresses: Vec<(String, IpAddr)>,
    /// Addresses of interfaces of devices whose packets leave by other interfaces.
    pub(super) astray: Vec<Astray>,
    /// Counters that have grown.
    pub(super) grown: Vec<Grown>,
    /// Objects of which a device has a limited number.
    pub(super) used: Vec<Used>,
    /// Devices, and the programs that have objects there, such as `ib_send_bw[4711]`.
    pub(super) users: Vec<(String, Vec<String>)>,
    /// What could not be seen, and why.
    pub(super) unseen: Vec<String>,
}

/// An address whose packets to its own network leave by an interface that does not have it.
#[derive(Clone, Debug)]
pub(super) struct Astray {
    pub(super) interface: String,
    pub(super) address: Ipv4Addr,
    /// Bits of the network's number.
    pub(super) bits: u32,
    pub(super) leaves_by: String,
}

/// A counter that has grown.
#[derive(Clone, Debug)]
pub(super) struct Grown {
    pub(super) device: String,
    pub(super) port: Option<u32>,
    pub(super) name: String,
    pub(super) amount: u64,
}

/// Objects of a kind.
#[derive(Clone, Debug)]
pub(super) struct Used {
    pub(super) device: String,
    pub(super) what: &'static str,
    pub(super) count: u64,
    pub(super) most: u64,
}

/// A device, as sysfs shows it, and what it has answered.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenDevice {
    pub(super) name: String,
    /// The driver's name; empty if it is not known.
    pub(super) driver: String,
    /// Whether it is a channel adapter: over Ethernet its protocol is RoCE. Others are iWARP's, or have their own.
    pub(super) is_adapter: bool,
    /// `/dev/infiniband/uverbs0`.
    pub(super) node: Option<String>,
    pub(super) ports: Vec<SeenPort>,
    /// Why it could not be opened.
    pub(super) refused: Option<(ErrorKind, String)>,
}

/// A port.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenPort {
    pub(super) number: u32,
    /// Its folder in sysfs: `sys/class/infiniband/mlx5_0/ports/1`.
    pub(super) folder: String,
    /// Network interfaces.
    pub(super) interfaces: Vec<String>,
    /// Bytes of payload in a packet: what is used, and the most that the device can.
    pub(super) mtu: Option<(u32, u32)>,
}

impl Seen {
    /// This machine. Devices are opened to ask for what sysfs does not have, which takes nothing from others.
    pub(super) fn here(devices: &[Device]) -> Self {
        let mut seen = Self::of(Machine::here());
        let mut networks = Vec::new();
        for entry in nix::ifaddrs::getifaddrs().into_iter().flatten() {
            let v4 = |address: Option<SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
            let v6 = |address: Option<SockaddrStorage>| Some(address?.as_sockaddr_in6()?.ip());
            if let Some((address, mask)) = v4(entry.address).zip(v4(entry.netmask)) {
                networks.push((entry.interface_name.clone(), address, u32::from(mask).count_ones()));
            }
            let address = v4(entry.address).map(IpAddr::V4).or(v6(entry.address).map(IpAddr::V6));
            seen.addresses.extend(address.map(|address| (entry.interface_name, address)));
        }
        for device in devices {
            seen.ask_kernel(device);
            seen.ask(device);
        }
        let (interfaces, own) = (seen.interfaces(), networks.iter().map(|of| of.1).collect::<Vec<_>>());
        networks.retain(|(interface, ..)| interfaces.contains(interface));
        seen.astray = networks.into_iter().filter_map(|network| Astray::ask(network, &own)).collect();
        seen
    }

    /// The files of a machine alone.
    pub(super) fn of(machine: Machine) -> Self {
        Self {
            machine,
            devices: Vec::new(),
            addresses: Vec::new(),
            astray: Vec::new(),
            grown: Vec::new(),
            used: Vec::new(),
            users: Vec::new(),
            unseen: Vec::new(),
        }
    }

    /// The existing objects, and the programs that have them.
    fn ask_kernel(&mut self, device: &Device) {
        let name = device.name();
        let asked = device.resources().and_then(|mut resources| {
            let counts = resources.summary()?;
            let queue_pairs = resources.queue_pairs()?.into_iter().map(|row| row.owner);
            let regions = resources.memory_regions()?.into_iter().map(|row| row.owner);
            // Programs that have opened the device, and created nothing.
            let contexts = resources.contexts().unwrap_or_default().into_iter().map(|row| row.owner);
            Ok((counts, queue_pairs.chain(regions).chain(contexts).collect::<Vec<_>>()))
        });
        let (counts, owners) = match asked {
            Ok(answer) => answer,
            Err(error) => return self.unseen.push(format!("the objects on {name}: {error}")),
        };
        for count in counts {
            let what = KINDS.iter().find(|(kind, _)| *kind == count.kind);
            if let Some(((_, what), most)) = what.zip(count.limit.filter(|limit| *limit > 0)) {
                self.used.push(Used { device: name.to_owned(), what, count: count.number, most });
            }
        }
        let mut programs: Vec<_> = owners
            .iter()
            .filter(|owner| matches!(owner, Owner::Process { .. }) && owner.pid() != Some(std::process::id()))
            .map(ToString::to_string)
            .collect();
        programs.sort_unstable();
        programs.dedup();
        if !programs.is_empty() {
            self.users.push((name.to_owned(), programs));
        }
    }

    /// What the device itself says.
    fn ask(&mut self, device: &Device) {
        let mut found = SeenDevice::of(device);
        let asked = device.open().and_then(|context| found.ask(&context));
        found.refused = asked.err().map(|error| (error.kind(), error.to_string()));
        self.devices.push(found);
    }

    /// Reads all counters twice, with the time between them.
    pub(super) fn watch(&mut self, devices: &[Device], time: Duration) {
        let mut readers = Vec::new();
        for device in devices {
            match device.statistics().and_then(|mut reader| Ok((reader.read()?.to_vec(), reader))) {
                Ok((before, reader)) => readers.push((device.name(), before, reader)),
                Err(error) => self.unseen.push(format!("the counters of {}: {error}", device.name())),
            }
        }
        if readers.is_empty() {
            return;
        }
        std::thread::sleep(time);
        for (name, before, mut reader) in readers {
            let after = Statistics::read(&mut reader).unwrap_or_default();
            for (row, earlier) in after.iter().filter_map(|row| {
                let is_it = |earlier: &&uverbs::statistics::Statistic| {
                    (earlier.port(), earlier.source(), earlier.name())
                        == (row.port(), row.source(), row.name())
                };
                Some((row, before.iter().find(is_it)?))
            }) {
                if let Change::Grown(amount) = row.change(earlier)
                    && amount > 0
                {
                    let (device, name) = (name.to_owned(), row.name().to_owned());
                    self.grown.push(Grown { device, port: row.port(), name, amount });
                }
            }
        }
    }

    /// The interfaces of all ports, and those that stand on them and have an address in their tables, as VLANs do.
    pub(super) fn interfaces(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for (_, port) in self.ports() {
            all.extend(port.interfaces.iter().cloned());
            let folder = format!("{}/gid_attrs/ndevs", port.folder);
            let names = self.machine.names(&folder);
            all.extend(names.iter().filter_map(|index| self.machine.text(&format!("{folder}/{index}"))));
        }
        all
    }

    /// Each port, with its device.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&SeenDevice, &SeenPort)> {
        self.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)))
    }
}

/// Kinds of objects, as the kernel names them and as people do.
const KINDS: [(&str, &str); 5] = [
    ("pd", "protection domains"),
    ("cq", "completion queues"),
    ("qp", "queue pairs"),
    ("mr", "memory regions"),
    ("srq", "shared receive queues"),
];

impl Astray {
    /// Asks the kernel. `None` if the packets leave by the interface that has the address.
    fn ask((interface, address, bits): (String, Ipv4Addr, u32), own: &[Ipv4Addr]) -> Option<Self> {
        let to = routes::neighbour(address, bits, own)?;
        let Route::By(leaves_by) = routes::route(address.into(), to.into())? else { return None };
        // A network may be this host's as a whole (`ip route add local`).
        (leaves_by != interface && leaves_by != "lo").then_some(Self { interface, address, bits, leaves_by })
    }
}

impl SeenDevice {
    /// Whether packets of the port are RoCE's.
    pub(super) fn is_roce(&self, machine: &Machine, port: &SeenPort) -> bool {
        self.is_adapter && machine.text(&format!("{}/link_layer", port.folder)).as_deref() == Some("Ethernet")
    }

    /// Whether it could not be opened because a limit is reached.
    pub(super) fn is_exhausted(&self) -> bool {
        matches!(self.refused, Some((ErrorKind::Exhausted, _)))
    }

    /// What is known without opening it.
    fn of(device: &Device) -> Self {
        let name = device.name();
        let interfaces = |number| {
            let of_port = device.interfaces().iter().filter(move |interface| interface.port == number);
            of_port.map(|interface| interface.name.clone()).collect()
        };
        let port = |number| {
            let folder = format!("sys/class/infiniband/{name}/ports/{number}");
            SeenPort { number, folder, interfaces: interfaces(number), mtu: None }
        };
        Self {
            name: name.to_owned(),
            driver: device.driver().to_owned(),
            is_adapter: device.node_type() == node_type::IB_CA,
            node: device.node().map(|path| path.display().to_string()),
            ports: (1..=device.ports()).map(port).collect(),
            refused: None,
        }
    }

    fn ask(&mut self, context: &Context) -> uverbs::Result<()> {
        for port in &mut self.ports {
            let Ok(number) = u8::try_from(port.number) else { continue };
            let answer = context.query_port(number)?.legacy_resp;
            port.mtu = words::mtu(answer.active_mtu).zip(words::mtu(answer.max_mtu));
        }
        Ok(())
    }
}
