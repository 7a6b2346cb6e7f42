//! The device that a subcommand works on.

use std::os::unix::fs::MetadataExt;

use uverbs::soft::Profile;
use uverbs::transport::Trace;
use uverbs::{Context, Device, Devices, ErrorKind, OpenOptions, SoftDevice};

use crate::Outcome;
use crate::failure::Failure;

/// A device by name, and whether its commands are traced.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) device: Device,
    /// The soft device behind it, if it is the embedded one.
    pub(crate) soft: Option<SoftDevice>,
    trace: bool,
}

/// The device called `name`, or at the node `name`.
pub(crate) fn called<'a>(devices: &'a Devices, name: &str) -> uverbs::Result<&'a Device> {
    devices.named(name).or_else(|_| devices.at_node(name))
}

impl Target {
    /// An embedded device that others use too.
    pub(crate) fn embedded(soft: SoftDevice, trace: bool) -> Self {
        Self { device: soft.device(), soft: Some(soft), trace }
    }

    /// The device called `name`, or at the node `name`: `rxe0`, `uverbs0`, `/dev/infiniband/uverbs0`, `soft0`.
    pub(crate) fn find(name: &str, trace: bool) -> Outcome<Self> {
        let soft = SoftDevice::default();
        if name == soft.name() {
            return Ok(Self::embedded(soft, trace));
        }
        Self::among(&uverbs::devices()?, name, trace)
    }

    /// The device called `name`, or at the node `name`, of a machine's devices.
    pub(crate) fn among(devices: &Devices, name: &str, trace: bool) -> Outcome<Self> {
        let device = called(devices, name).cloned().map_err(|_| {
            let soft = SoftDevice::default();
            let mut there: Vec<_> = devices.iter().map(Device::name).collect();
            let embedded = format!("{} (embedded)", soft.name());
            there.push(&embedded);
            Failure::NotFound(format!("no device {}; there is {}", name.escape_debug(), there.join(", ")))
        })?;
        Ok(Self { device, soft: None, trace })
    }

    /// Why it cannot have rules other than those of its driver.
    pub(crate) fn only_soft_is_wide(&self) -> Failure {
        let name = self.device.name();
        Failure::Unsupported(format!("{name} has the rules of its driver: only a soft device can have more"))
    }

    /// The embedded device, with other capabilities; an error for any other device.
    pub(crate) fn with_profile(self, profile: Profile) -> Outcome<Self> {
        if self.soft.is_none() {
            return Err(self.only_soft_is_wide());
        }
        let soft = SoftDevice::new(profile);
        Ok(Self { device: soft.device(), soft: Some(soft), ..self })
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> Outcome<Context> {
        self.open_with(OpenOptions::new())
    }

    /// Opens the device with options.
    pub(crate) fn open_with(&self, options: OpenOptions) -> Outcome<Context> {
        let opened = match self.trace {
            true => options.open_with(&self.device, Trace::new(std::io::stderr())),
            false => options.open(&self.device),
        };
        opened.map_err(|error| match self.mode() {
            Some(mode) if error.kind() == ErrorKind::PermissionDenied && error.op() == "device.open" => {
                Failure::Denied(format!("{error}; {mode}"))
            }
            _ => error.into(),
        })
    }

    /// Refuses a port that the device does not have.
    pub(crate) fn check_port(&self, port: impl Into<u32>) -> Outcome {
        let (port, ports) = (port.into(), self.device.ports());
        if (1..=ports).contains(&port) {
            return Ok(());
        }
        let name = self.device.name();
        Err(Failure::NotFound(format!("no port {port} on {name}; the last one is {ports}")))
    }

    /// The permissions of the device file.
    fn mode(&self) -> Option<String> {
        let path = self.device.node()?;
        let file = std::fs::metadata(path).ok()?;
        let (mode, user, group) = (file.mode() & 0o7777, file.uid(), file.gid());
        Some(format!("the mode of {} is {mode:04o}, owner {user}, group {group}", path.display()))
    }
}
