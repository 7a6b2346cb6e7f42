//! The devices of this machine, as sources.

use std::sync::Arc;

use uverbs::{Device, SoftDevice};

use super::around::Around;
use super::collect::{Found, Machine, Source, down};
use super::device::Reader;
use super::exposition::{Families, Metric};
use super::flows::Flows;
use crate::Outcome;
use crate::target::{Target, called};

const VERSION: Metric<'static> =
    Metric::gauge("uverbs_build_info", "The exporter's version; the value is always 1.");

/// What is to be exported.
pub(super) struct Locals {
    /// The soft device, if it is named.
    pub(super) soft: Option<SoftDevice>,
    /// The devices that are named, by name or node. If it is empty, all devices are exported.
    pub(super) only: Vec<String>,
    pub(super) flows: Option<Arc<Flows>>,
    /// Receives the list of devices.
    pub(super) around: Arc<Around>,
    pub(super) kernel_names: bool,
}

impl Locals {
    /// Refuses a name that no device has. A device that is removed later is reported as down.
    pub(super) fn check(&self) -> Outcome {
        self.only.iter().try_for_each(|name| Target::find(name, false).map(drop))
    }

    /// The devices to export, and the names of those that do not exist.
    fn devices(&self) -> Result<(Vec<Device>, Vec<String>), String> {
        let devices = uverbs::devices().map_err(|error| error.to_string())?;
        // If two devices have the same name, the soft device is meant.
        let is_soft = |name: &str| self.soft.as_ref().is_some_and(|soft| soft.name() == name);
        let (mut wanted, mut gone) = (Vec::new(), Vec::new());
        for name in self.only.iter().filter(|name| !is_soft(name)) {
            match called(&devices, name) {
                Ok(device) => wanted.push(device.name()),
                Err(_) => gone.push(name.clone()),
            }
        }
        let is_wanted = |name: &str| !is_soft(name) && (self.only.is_empty() || wanted.contains(&name));
        let soft = self.soft.iter().map(SoftDevice::device);
        let there = devices.iter().filter(|device| is_wanted(device.name())).cloned().chain(soft).collect();
        self.around.keep(devices);
        Ok((there, gone))
    }
}

/// The machine, its devices and its rules.
pub(super) struct Wide(pub(super) Locals);

impl Machine for Wide {
    fn find(&mut self) -> Result<Vec<Found>, String> {
        // A named device that does not exist is reported as down.
        let (devices, gone) = self.0.devices()?;
        let mut found = Vec::new();
        for name in gone {
            let device = name.clone();
            found.push(Found {
                device: Some(name.clone()),
                identity: format!("no {name}"),
                name,
                absent: Box::new(move || down(&device)),
                open: Box::new(|| Err("there is no such device now".to_owned())),
            });
        }
        for device in devices {
            let kernel_names = self.0.kernel_names;
            let name = device.name().to_owned();
            found.push(Found {
                device: Some(name.clone()),
                name: name.clone(),
                absent: Box::new(move || down(&name)),
                identity: format!("{} {:?} {}", device.name(), device.index(), device.node_guid()),
                open: Box::new(move || {
                    let reader = Reader::new(&device, kernel_names).map_err(|error| error.to_string())?;
                    Ok(Box::new(reader))
                }),
            });
        }
        let flows = self.0.flows.clone();
        found.extend(flows.iter().flat_map(|flows| flows.sources()));
        found.push(Found {
            device: None,
            name: "the exporter".to_owned(),
            identity: "the exporter".to_owned(),
            absent: Box::new(Families::default),
            open: Box::new(move || Ok(Box::new(Rest(flows)))),
        });
        Ok(found)
    }
}

/// Values that do not belong to a device.
struct Rest(Option<Arc<Flows>>);

impl Source for Rest {
    fn read(&mut self) -> Result<Families, String> {
        let mut families = Families::default();
        families.add(&VERSION, &[("version", env!("CARGO_PKG_VERSION"))], true);
        if let Some(flows) = &self.0 {
            flows.add_to(&mut families);
        }
        Ok(families)
    }
}
