//! The counters of a device of the kernel, by all available sources.

use std::path::PathBuf;

use nix::errno::Errno;
use uverbs_abi::netlink::{attr, op};

use super::answer;
use super::folder::Folder;
use super::meaning::{EXTENDED, Meaning};
use super::statistic::{Source, Statistic};
use super::table::Table;
use super::{Missing, OPEN, READ};
use crate::device::netlink::{Ask, Exchange, ROOM};
use crate::device::{Device, NO_NETLINK};
use crate::driver::Driver;
use crate::kernel::error::{Error, ErrorKind, Result};

/// The sources of the counters of one device.
#[derive(Debug)]
pub(super) struct Kernel {
    driver: Driver,
    /// RDMA netlink, and the device's index there.
    netlink: Option<(Exchange, u32)>,
    root: Option<PathBuf>,
    ports: Vec<Port>,
    /// Counters of the device, which netlink does not return.
    device: Option<Folder>,
    /// What could not be opened.
    refused: Vec<Missing>,
}

#[derive(Debug)]
struct Port {
    number: u32,
    counters: Option<Folder>,
    has_extended: bool,
    hardware: Hardware,
}

/// The source of a port's hardware counters.
#[derive(Debug)]
enum Hardware {
    Netlink,
    Files(Folder),
    None,
}

impl Kernel {
    pub(super) fn open(device: &Device, ports: &[u32], with_device: bool) -> Result<Self> {
        let netlink = device.index.and_then(|index| Some((Exchange::open(OPEN, ROOM).ok()?, index)));
        Self::with(device, netlink, ports, with_device)
    }

    pub(super) fn with(
        device: &Device,
        netlink: Option<(Exchange, u32)>,
        ports: &[u32],
        with_device: bool,
    ) -> Result<Self> {
        let (root, driver) = (device.sysfs.clone(), device.driver_kind());
        let mut this = Self { driver, netlink, root, ports: Vec::new(), device: None, refused: Vec::new() };
        for number in ports {
            let counters = this.folder(Some(*number), Source::Port);
            let has_extended = counters.as_ref().is_some_and(|folder| folder.has(EXTENDED));
            let hardware = if this.answers(*number) {
                Hardware::Netlink
            } else {
                // The driver has none, or netlink does not answer, or the answer is too long for it (EMSGSIZE: it has to fit into a
                // page).
                this.folder(Some(*number), Source::Hardware).map_or(Hardware::None, Hardware::Files)
            };
            this.ports.push(Port { number: *number, counters, has_extended, hardware });
        }
        if with_device {
            this.device = this.folder(None, Source::Hardware);
        }
        this.is_anywhere()?;
        Ok(this)
    }

    #[cfg(all(test, not(miri)))]
    pub(super) fn set_driver(&mut self, driver: Driver) {
        self.driver = driver;
    }

    /// The folder of counters of a port, or of the device.
    fn folder(&mut self, port: Option<u32>, source: Source) -> Option<Folder> {
        let root = self.root.as_ref()?;
        let path = match port {
            Some(port) => root.join(format!("ports/{port}")).join(source.as_str()),
            None => root.join(source.as_str()),
        };
        Folder::open(OPEN, &path).unwrap_or_else(|error| {
            self.refused.push(Missing { port, source, name: None, error });
            None
        })
    }

    /// Whether netlink returns a port's hardware counters.
    fn answers(&mut self, port: u32) -> bool {
        self.netlink.as_mut().is_some_and(|(exchange, index)| {
            exchange.one(OPEN, op::STAT_GET, &of_port(*index, port), |_| {}).is_ok()
        })
    }

    /// A device without counters is not an error if netlink or sysfs has the device.
    fn is_anywhere(&mut self) -> Result<()> {
        let has_any = |port: &Port| port.counters.is_some() || !matches!(port.hardware, Hardware::None);
        if self.device.is_some() || self.ports.iter().any(has_any) {
            return Ok(());
        }
        match self.is_known(OPEN) {
            // Only sysfs may be missing.
            Some(true) => return Ok(()),
            Some(false) => return Err(Error::device_gone(OPEN)),
            None => {}
        }
        let root = self.root.as_ref().map(std::fs::metadata);
        match root {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(OPEN, &error)).map_err(|error| error.hinted(NO_WAY))
            }
            _ => Err(Error::refused(OPEN, Errno::EOPNOTSUPP, NO_WAY)),
        }
    }

    /// Reads everything once.
    pub(super) fn read(&mut self, table: &mut Table, missing: &mut Vec<Missing>) {
        missing.extend_from_slice(&self.refused);
        let Self { driver, netlink, ports, device, .. } = self;
        for port in ports {
            let (number, is_extended) = (Some(port.number), port.has_extended);
            if let Some(folder) = &port.counters {
                files(folder, number, Source::Port, is_extended, driver, table, missing);
            }
            match &port.hardware {
                Hardware::Files(folder) => {
                    files(folder, number, Source::Hardware, false, driver, table, missing);
                }
                Hardware::Netlink => {
                    let Some((exchange, index)) = netlink else { continue };
                    let place = (number, Source::Hardware);
                    let read = exchange.one(READ, op::STAT_GET, &of_port(*index, port.number), |message| {
                        answer::values(message, |name, raw| {
                            table.put(place, name, raw, |name| Meaning::of(place.1, name, false, driver));
                        });
                    });
                    if let Err(error) = read {
                        missing.push(Missing { port: number, source: place.1, name: None, error });
                    }
                }
                Hardware::None => {}
            }
        }
        if let Some(folder) = device {
            files(folder, None, Source::Hardware, false, driver, table, missing);
        }
    }

    /// Marks the optional counters.
    pub(super) fn mark(&mut self, rows: &mut [Statistic]) {
        let Some((exchange, index)) = &mut self.netlink else { return };
        for port in self.ports.iter().filter(|port| matches!(port.hardware, Hardware::Netlink)) {
            let is_of_port =
                |row: &&mut Statistic| row.port == Some(port.number) && row.source == Source::Hardware;
            let mark = |name: &[u8]| {
                let mut rows = rows.iter_mut().filter(is_of_port);
                if let Some(row) = rows.find(|row| row.name.as_bytes() == name) {
                    row.optional = true;
                }
            };
            optional_of(exchange, *index, port.number, READ, mark);
        }
    }

    /// Notes how fast the counters of packets can count, by the speed of their ports. The speed is read only when a counter may have
    /// wrapped: for the file, the kernel queries the whole port (`ib_query_port`), on mlx5 by several firmware commands.
    pub(super) fn limit(&self, rows: &mut [Statistic]) {
        for port in &self.ports {
            let path = self.root.as_ref().map(|root| root.join(format!("ports/{}/rate", port.number)));
            let rate = path.and_then(|path| std::fs::read_to_string(path).ok());
            let most = rate.and_then(|rate| packets_per_second(&rate));
            let is_of_packets =
                |row: &&mut Statistic| row.port == Some(port.number) && row.meaning.of_packets;
            rows.iter_mut().filter(is_of_packets).for_each(|row| row.most = most);
        }
    }

    /// Whether netlink has the device; `None` if netlink is not available.
    fn is_known(&mut self, op: &'static str) -> Option<bool> {
        let (exchange, index) = self.netlink.as_mut()?;
        exchange.has_device(op, *index)
    }

    /// Whether the device was removed.
    pub(super) fn is_gone(&mut self) -> bool {
        let is_there = self.is_known(READ);
        !is_there.unwrap_or_else(|| self.root.as_ref().is_some_and(|root| root.exists()))
    }

    /// Netlink, for values that have no other source.
    pub(super) fn netlink(&mut self, op: &'static str) -> Result<(&mut Exchange, u32)> {
        match &mut self.netlink {
            Some((exchange, index)) => Ok((exchange, *index)),
            None => Err(Error::refused(op, Errno::EOPNOTSUPP, NO_NETLINK)),
        }
    }
}

const NO_WAY: &str = "counters are read by RDMA netlink or from sysfs, and here neither shows the device: a container may hide both";

/// The most packets that a port can send or receive per second. `rate` is as `rate_show` (core/sysfs.c, Linux 6.1) writes it:
/// `100 Gb/sec (4X EDR)`.
///
/// The smallest packet of InfiniBand has 26 bytes: LRH, BTH and two checksums. That of RoCE occupies 84 bytes of Ethernet, which leaves
/// room for a card whose two ports are bonded: it counts for both, and reports the speed of one.
fn packets_per_second(rate: &str) -> Option<u64> {
    const SMALLEST: f64 = 26.0 * 8.0;
    let gigabits: f64 = rate.split_once(" Gb/sec")?.0.parse().ok()?;
    (gigabits.is_finite() && gigabits > 0.0).then_some((gigabits * 1e9 / SMALLEST) as u64)
}

/// The optional counters of a port, as far as the kernel returns them.
fn optional_of(
    exchange: &mut Exchange,
    index: u32,
    port: u32,
    op: &'static str,
    mut mark: impl FnMut(&[u8]),
) {
    // Without an answer none is marked: kernels before 5.16 have neither this request nor optional counters.
    let _: Result<()> = exchange.one(op, op::STAT_GET_STATUS, &of_port(index, port), |message| {
        answer::optional(message, |name, _, _| mark(name));
    });
}

/// Reads a folder.
fn files(
    folder: &Folder,
    port: Option<u32>,
    source: Source,
    is_extended: bool,
    driver: &Driver,
    table: &mut Table,
    missing: &mut Vec<Missing>,
) {
    folder.read(READ, |name, value| match value {
        Ok(raw) => {
            table.put((port, source), name, raw, |name| Meaning::of(source, name, is_extended, driver))
        }
        Err(error) => {
            let name = Some(String::from_utf8_lossy(name).into_owned());
            missing.push(Missing { port, source, name, error });
        }
    });
}

/// The attributes of a request about a port.
pub(super) fn of_port(index: u32, port: u32) -> [Ask<'static>; 2] {
    [Ask::Number(attr::DEV_INDEX, index), Ask::Number(attr::PORT_INDEX, port)]
}

/// The error of a request that needs privileges.
pub(super) fn with_rights(error: Error) -> Error {
    error.hinted_if(
        ErrorKind::PermissionDenied,
        "this needs CAP_NET_ADMIN in the initial user namespace, which a container's root does not have",
    )
}
