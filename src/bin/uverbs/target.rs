//! The device that a subcommand works on.

use std::io::ErrorKind as ErrorOfIo;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use uverbs::cm::Manager;
use uverbs::soft::Profile;
use uverbs::transport::Trace;
use uverbs::{Context, Device, Devices, ErrorKind, OpenOptions, SoftDevice};

use crate::Outcome;
use crate::failure::Failure;

/// The device as a word or as an option: `rxe0`, `--device rxe0`, `-d rxe0`.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The device: a name such as mlx5_0 or rxe0, a device file such as /dev/infiniband/uverbs0, soft0, an IP
    /// address of this host, for the device that has it, or soft@ADDRESS, for a soft device on that address.
    #[arg(value_name = "DEV", conflicts_with = "device")]
    word: Option<String>,
    /// The device, as DEV.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
}

impl Named {
    /// The name, if there is one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.word.as_deref().or(self.device.as_deref())
    }

    /// The name, which the command line must have.
    pub(crate) fn required(&self) -> Outcome<&str> {
        self.name().ok_or_else(missing)
    }

    /// The device.
    pub(crate) fn find(&self, trace: bool) -> Outcome<Target> {
        Target::find(self.required()?, trace)
    }
}

/// The error for a command line that names no device.
pub(crate) fn missing() -> Failure {
    // Without a list of the machine's devices, the embedded one is there.
    let devices = uverbs::devices().unwrap_or_default();
    Failure::Usage(format!(
        "which device? Add its name (DEV or --device DEV); there is {}",
        existing(&devices)
    ))
}

/// The names of a machine's devices, and that of the embedded one.
fn existing(devices: &Devices) -> String {
    let soft = SoftDevice::default();
    let names = devices.iter().map(|device| device.name().escape_debug().to_string());
    let names: Vec<_> = names.chain([format!("{} (embedded)", soft.name())]).collect();
    names.join(", ")
}

/// What a soft device with an address is called: this, and the address.
const ON_WIRE: &str = "soft@";

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

    /// A device that the connection manager has found; `soft` is the one behind it, if it is embedded.
    pub(crate) fn found(device: Device, soft: Option<SoftDevice>, trace: bool) -> Self {
        Self { device, soft, trace }
    }

    /// The device called `name`, at the node `name`, or with the address `name`: `rxe0`, `uverbs0`, `/dev/infiniband/uverbs0`, `10.0.0.1`,
    /// `soft0`, `soft@127.0.0.2`.
    pub(crate) fn find(name: &str, trace: bool) -> Outcome<Self> {
        let soft = SoftDevice::default();
        if name == soft.name() {
            return Ok(Self::embedded(soft, trace));
        }
        if let Some(address) = name.strip_prefix(ON_WIRE) {
            return Self::on(address, trace);
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(Self::found(Manager::open()?.device_of(address)?.0, None, trace));
        }
        Self::among(&uverbs::devices()?, name, trace)
    }

    /// A soft device of this process with this address, which others reach over the network.
    fn on(address: &str, trace: bool) -> Outcome<Self> {
        let name = format!("{ON_WIRE}{address}");
        let address = address
            .parse()
            .map_err(|_| Failure::Usage(format!("{}: not an IP address", name.escape_debug())))?;
        let soft = SoftDevice::on(address, Profile::default()).map_err(|error| {
            let hint = match error.kind() {
                ErrorOfIo::AddrInUse => ": another such device has the address, or rxe has UDP port 4791",
                ErrorOfIo::AddrNotAvailable => ": it is not an address of this host",
                _ => "",
            };
            Failure::Other(format!("{name}: {error}{hint}"))
        })?;
        // The other side may be anywhere.
        Ok(Self { device: soft.device(), soft: None, trace })
    }

    /// The device called `name`, or at the node `name`, of a machine's devices.
    pub(crate) fn among(devices: &Devices, name: &str, trace: bool) -> Outcome<Self> {
        let device = called(devices, name).cloned().map_err(|_| {
            let there = existing(devices);
            Failure::NotFound(format!("no device {}; there is {there}", name.escape_debug()))
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

    /// Opens the device; an error is the library's own.
    pub(crate) fn context(&self) -> uverbs::Result<Context> {
        match self.trace {
            true => OpenOptions::new().open_with(&self.device, Trace::new(std::io::stderr())),
            false => self.device.open(),
        }
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

    /// Refuses an open device without flows, whatever the rule.
    pub(crate) fn needs_flows(&self, context: &Context) -> Outcome {
        if context.has_flows()? {
            return Ok(());
        }
        let (name, driver) = (self.device.name(), self.device.driver());
        Err(Failure::Unsupported(format!(
            "{name} has no flows, so no rule can count there: its driver is {driver}; mlx5 has flows, and soft0"
        )))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_flows_is_refused_by_name() {
        let target = |has| Target::embedded(SoftDevice::new(Profile::default().with_flows(has)), false);
        let told = |target: &Target| target.needs_flows(&target.open().expect("it opens"));
        told(&target(true)).expect("it has flows");
        let failure = told(&target(false)).expect_err("it has none");
        assert_eq!(failure.exit_code(), 5);
        assert!(
            failure.to_string().starts_with("soft0 has no flows, so no rule can count there"),
            "{failure}"
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_refused_with_those_that_are() {
        let failure = Target::find("nope", false).expect_err("it is not there");
        assert!(failure.to_string().contains("soft0 (embedded)"), "{failure}");
        assert!(missing().to_string().contains("soft0 (embedded)"), "{}", missing());
    }
}
