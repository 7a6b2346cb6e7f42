//! `uverbs devices`: what there is.

mod gids;
mod port;

use std::fs;
use std::path::Path;

use serde::Serialize;
use uverbs::{Device, SoftDevice};

use self::port::Port;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::table::{Cell, Colours, Table};
use crate::target::Target;

/// Options of `uverbs devices`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these devices. Default: all of the machine, and the embedded one.
    #[arg(value_name = "DEV")]
    words: Vec<String>,
    /// Only this device; may be repeated.
    #[arg(short, long, value_name = "DEV")]
    device: Vec<String>,
    /// List the addresses (GIDs) of the ports, as `show_gids` does.
    #[arg(long)]
    gids: bool,
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn wanted(&self) -> Outcome<Vec<Device>> {
        let names: Vec<_> = self.words.iter().chain(&self.device).collect();
        if !names.is_empty() {
            return names.into_iter().map(|name| Ok(Target::find(name, false)?.device)).collect();
        }
        let mut devices: Vec<Device> = uverbs::devices()?.into_iter().collect();
        devices.push(SoftDevice::default().device());
        Ok(devices)
    }
}

pub(crate) fn run(args: &Args) -> Outcome {
    let devices = args.wanted()?;
    let mut output = Output::new();
    if args.gids {
        return addresses(&devices, args.json, &mut output);
    }
    let mut rows = Vec::new();
    for device in &devices {
        let (ports, unseen) = port::all(device);
        if let Some(error) = unseen {
            let name = device.name().escape_debug();
            failure::remark(format_args!(
                "{name}: some of its ports could not be seen, such as the MTU: {error}"
            ));
        }
        rows.push(Row::of(device, ports));
    }
    if args.json { output.json(&rows) } else { output.text(text(&table(&rows))) }
}

/// The addresses of devices. One that cannot be read does not hide those of others.
fn addresses(devices: &[Device], json: bool, output: &mut Output) -> Outcome {
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for device in devices {
        match gids::all(device) {
            Ok(found) => rows.extend(found),
            Err(error) => refused.push(Err(Failure::from(error).said_of(device.name().escape_debug()))),
        }
    }
    let printed = if json { output.json(&rows) } else { output.text(text(&gids::table(&rows))) };
    failure::first([printed].into_iter().chain(refused))
}

/// A device, as `--json` shows it.
#[derive(Serialize)]
struct Row {
    name: String,
    /// The kernel's number of the device; none without RDMA netlink.
    index: Option<u32>,
    driver: &'static str,
    node: Option<String>,
    embedded: bool,
    protocol: Option<String>,
    ports: u32,
    node_guid: String,
    sys_image_guid: String,
    firmware: String,
    net_devices: Vec<NetDevice>,
    /// Its address on the PCI bus, if it is a card.
    pci: Option<String>,
    /// The memory that is near to it, on machines that have several kinds.
    numa_node: Option<u32>,
    port_states: Vec<Port>,
}

/// A network interface of a port.
#[derive(Serialize)]
pub(crate) struct NetDevice {
    pub(crate) port: u32,
    pub(crate) name: String,
}

impl NetDevice {
    pub(crate) fn all(device: &Device) -> Vec<Self> {
        let interfaces = device.interfaces().iter();
        interfaces.map(|interface| Self { port: interface.port, name: interface.name.clone() }).collect()
    }
}

impl Row {
    fn of(device: &Device, port_states: Vec<Port>) -> Self {
        Self {
            name: device.name().to_owned(),
            index: device.index(),
            driver: device.driver(),
            node: device.node().map(|path| path.display().to_string()),
            embedded: device.node().is_none(),
            protocol: device.protocol().map(str::to_owned),
            ports: device.ports(),
            node_guid: device.node_guid().to_string(),
            sys_image_guid: device.sys_image_guid().to_string(),
            firmware: device.firmware().to_owned(),
            net_devices: NetDevice::all(device),
            pci: pci(device),
            numa_node: device.sysfs().and_then(numa_node),
            port_states,
        }
    }

    /// A line for each port; one for a device without any.
    fn lines(&self) -> impl Iterator<Item = Vec<Cell>> {
        let none = self.port_states.is_empty().then(Port::default);
        let or_dash =
            |text: &str| if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() };
        self.port_states.iter().cloned().chain(none).map(move |port| {
            let nets = self.net_devices.iter().filter(|net| net.port == port.port);
            let nets: Vec<_> = nets.map(|net| net.name.as_str()).collect();
            vec![
                or_dash(&self.name).into(),
                self.driver.into(),
                self.node.clone().unwrap_or_else(|| "(embedded)".to_owned()).into(),
                Cell::number(port.port),
                or_dash(port.state.as_deref().unwrap_or_default()).into(),
                Cell::number(port.speed()),
                Cell::or_dash(port.mtu),
                or_dash(&nets.join(",")).into(),
                self.node_guid.as_str().into(),
                or_dash(&self.firmware).into(),
                or_dash(self.pci.as_deref().unwrap_or_default()).into(),
                Cell::or_dash(self.numa_node),
                Cell::or_dash(port.lid),
            ]
        })
    }
}

/// The device behind the link in sysfs, if its name is an address of PCI.
fn pci(device: &Device) -> Option<String> {
    let target = fs::read_link(device.sysfs()?.join("device")).ok()?;
    let name = target.file_name()?.to_str()?;
    is_pci(name).then(|| name.to_owned())
}

/// `0000:3b:00.0`; domains of bridges that are not the firmware's have five digits and more.
fn is_pci(name: &str) -> bool {
    let parts: Vec<_> = name.split([':', '.']).collect();
    let [domain, bus, device, function] = parts[..] else { return false };
    let are_digits = parts.iter().all(|part| part.chars().all(|c| c.is_ascii_hexdigit()));
    are_digits && domain.len() >= 4 && [bus, device, function].map(str::len) == [2, 2, 1]
}

/// The number in sysfs; -1 is none.
fn numa_node(sysfs: &Path) -> Option<u32> {
    fs::read_to_string(sysfs.join("device/numa_node")).ok()?.trim().parse().ok()
}

fn table(rows: &[Row]) -> Table {
    let head = [
        "NAME",
        "DRIVER",
        "NODE",
        "PORT",
        "STATE",
        "SPEED",
        "MTU",
        "NET DEVICES",
        "NODE GUID",
        "FIRMWARE",
        "PCI",
        "NUMA",
        "LID",
    ];
    let mut table = Table::with_head(&head);
    rows.iter().flat_map(Row::lines).for_each(|line| table.push(line));
    table
}

fn text(table: &Table) -> String {
    let mut text = String::new();
    table.write(&mut text, "", Colours::new());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_pci_is_known_by_its_form() {
        for (name, is) in [
            ("0000:3b:00.0", true),
            ("10000:01:00.0", true),
            ("rxe0", false),
            ("", false),
            ("000:3b:00.0", false),
            ("0000:3b:00", false),
            ("vmbu:s0:00.0", false),
        ] {
            assert_eq!(is_pci(name), is, "{name}");
        }
    }
}
