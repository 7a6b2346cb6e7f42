//! The devices of this machine, as sources.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs::{Device, SoftDevice};

use super::collect::{Found, Machine, Source};
use super::device::Reader;
use super::exposition::{Families, Metric};
use super::flows::Flows;
use crate::Outcome;
use crate::target::Target;

const VERSION: Metric<'static> =
    Metric::gauge("uverbs_build_info", "The exporter's version; the value is always 1.");

/// What is to be exported.
pub(super) struct Locals {
    /// The embedded device, if it is named.
    pub(super) soft: Option<SoftDevice>,
    /// The devices that are named, by name or node; all that there are if it is empty.
    pub(super) only: Vec<String>,
    pub(super) flows: Option<Arc<Mutex<Flows>>>,
    pub(super) kernel_names: bool,
}

impl Locals {
    /// Refuses a name that no device has. One that goes later is told to be down.
    pub(super) fn check(&self) -> Outcome {
        self.only.iter().try_for_each(|name| Target::find(name, false).map(drop))
    }

    fn devices(&self) -> Result<Vec<Device>, String> {
        let devices = uverbs::devices().map_err(|error| error.to_string())?;
        let is_wanted = |device: &&Device| {
            // Two of one name cannot be told apart: it is the embedded one that was named.
            if self.soft.as_ref().is_some_and(|soft| soft.name() == device.name()) {
                return false;
            }
            let is_it = |name: &String| {
                devices
                    .named(name)
                    .or_else(|_| devices.at_node(name))
                    .is_ok_and(|found| found.name() == device.name())
            };
            self.only.is_empty() || self.only.iter().any(is_it)
        };
        let soft = self.soft.iter().map(SoftDevice::device);
        Ok(devices.iter().filter(is_wanted).cloned().chain(soft).collect())
    }
}

/// The machine, its devices and its rules.
pub(super) struct Wide(pub(super) Locals);

impl Machine for Wide {
    fn find(&mut self) -> Result<Vec<Found>, String> {
        let devices = self.0.devices()?;
        // What was named and is not there is told to be down.
        let is_there = |name: &str| {
            devices.iter().any(|device| {
                let node = device.node().map(|node| node.display().to_string());
                device.name() == name || node.is_some_and(|node| node.ends_with(name))
            })
        };
        let gone: Vec<_> = self.0.only.iter().filter(|name| !is_there(name)).cloned().collect();
        let mut found = Vec::new();
        for name in gone {
            let (device, identity) = (Some(name.clone()), format!("no {name}"));
            found.push(Found {
                device,
                identity,
                open: Box::new(|| Err("there is no such device now".to_owned())),
            });
        }
        for device in devices {
            let kernel_names = self.0.kernel_names;
            found.push(Found {
                device: Some(device.name().to_owned()),
                identity: format!("{} {:?} {}", device.name(), device.index(), device.node_guid()),
                open: Box::new(move || {
                    let reader = Reader::new(&device, kernel_names).map_err(|error| error.to_string())?;
                    Ok(Box::new(reader))
                }),
            });
        }
        let flows = self.0.flows.clone();
        let open = Box::new(move || Ok(Box::new(Rest(flows)) as _));
        found.push(Found { device: None, identity: "rules".to_owned(), open });
        Ok(found)
    }
}

/// The rules, and what is of no device.
struct Rest(Option<Arc<Mutex<Flows>>>);

impl Source for Rest {
    fn read(&mut self) -> Result<Families, String> {
        let mut families = Families::default();
        families.add(&VERSION, &[("version", env!("CARGO_PKG_VERSION"))], true);
        if let Some(flows) = &self.0 {
            families.merge(flows.lock().unwrap_or_else(PoisonError::into_inner).read());
        }
        Ok(families)
    }
}
