//! `uverbs devices`: what there is.

use serde::Serialize;
use uverbs::{Device, SoftDevice};

use crate::Outcome;
use crate::output::Output;
use crate::table::{Cell, Colours, Table};

/// Options of `uverbs devices`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut devices: Vec<Device> = uverbs::devices()?.into_iter().collect();
    devices.push(SoftDevice::default().device());
    let rows: Vec<Row> = devices.iter().map(Row::of).collect();
    let mut output = Output::new();
    if args.json { output.json(&rows) } else { output.text(table(&rows)) }
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
    fn of(device: &Device) -> Self {
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
        }
    }

    fn cells(&self) -> [String; 7] {
        let names: Vec<_> = self.net_devices.iter().map(|net| net.name.as_str()).collect();
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        [
            self.name.clone(),
            self.driver.to_owned(),
            self.node.clone().unwrap_or_else(|| "(embedded)".to_owned()),
            self.ports.to_string(),
            self.node_guid.clone(),
            or_dash(&self.firmware),
            or_dash(&names.join(",")),
        ]
    }
}

/// Columns as wide as what is in them.
fn table(rows: &[Row]) -> String {
    let mut table =
        Table::with_head(&["NAME", "DRIVER", "NODE", "PORTS", "NODE GUID", "FIRMWARE", "NET DEVICES"]);
    rows.iter().for_each(|row| table.push(row.cells().map(Cell::from).into()));
    let mut text = String::new();
    table.write(&mut text, "", Colours::new());
    text
}
