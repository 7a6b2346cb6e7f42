//! Queries of the device: limits, ports, addresses.

use std::fmt;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use uverbs_abi::ids::device;
use uverbs_abi::types::{RawPacketCaps, gid_type};
use uverbs_abi::write::{ExQueryDevice, ExQueryDeviceResp, GidEntry, QueryPortRespEx, cmd};
use zerocopy::{FromZeros, IntoBytes};

use super::Context;
use crate::driver::PacketCaps;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// What a device can do to raw packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offloads {
    raw_packet: RawPacketCaps,
    /// Maximum payload of a large send in bytes; zero if there are no large sends.
    large_send: u32,
}

impl Offloads {
    /// As bits in an atomic; zero means "unknown". There is no lock, which a child of `fork` could find held.
    fn bits(self) -> u64 {
        1 << 63 | u64::from(self.raw_packet.bits() & !(1 << 31)) << 32 | u64::from(self.large_send)
    }

    fn known(bits: u64) -> Option<Self> {
        let raw_packet = RawPacketCaps::from_bits_retain((bits >> 32) as u32 & !(1 << 31));
        (bits != 0).then_some(Self { raw_packet, large_send: bits as u32 })
    }
}

/// How many reads and atomic operations can be outstanding on a queue pair: those of the peer, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) incoming: u8,
    pub(crate) own: u8,
}

impl ReadDepths {
    /// As bits in an atomic, as [`Offloads`].
    fn bits(self) -> u64 {
        1 << 63 | u64::from(u16::from_ne_bytes([self.incoming, self.own]))
    }

    fn known(bits: u64) -> Option<Self> {
        let [incoming, own] = (bits as u16).to_ne_bytes();
        (bits != 0).then_some(Self { incoming, own })
    }
}

impl Context {
    /// Limits and capabilities of the device.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`] if the device has gone.
    ///
    /// # Kernel
    /// Extended `QUERY_DEVICE` through `INVOKE_WRITE` (ib_uverbs_ex_query_device, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_query_device_ex")]
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_device_attr_ex")]
    pub fn query_device(&self) -> Result<ExQueryDeviceResp> {
        self.query(&mut [])
    }

    /// Limits and capabilities of the device, together with what the driver returns.
    pub(crate) fn query_all(&self) -> Result<(ExQueryDeviceResp, PacketCaps)> {
        let mut plan = self.driver().plan_query();
        let core = self.query(plan.answer())?;
        Ok((core, plan.open()))
    }

    /// Queries the device. The driver's response is written to `driver`, if that is not empty.
    pub(crate) fn query(&self, driver: &mut [u8]) -> Result<ExQueryDeviceResp> {
        use device::invoke_write::{CORE_IN, CORE_OUT};
        let request = ExQueryDevice::default();
        let mut response = ExQueryDeviceResp::new_zeroed();
        let mut command = Command::write("device.query", cmd::EX_QUERY_DEVICE);
        command
            .input(CORE_IN, &request)
            .output(CORE_OUT, response.as_mut_bytes())
            .driver_payload((&[], driver));
        self.invoke(&mut command)?;
        Ok(response)
    }

    /// Refuses `op` on a device that does not report this ability for raw packets.
    pub(crate) fn needs_raw_packet(
        &self,
        op: &'static str,
        wanted: RawPacketCaps,
        hint: &'static str,
    ) -> Result<()> {
        let caps = self.offloads()?.raw_packet;
        if caps.contains(wanted) { Ok(()) } else { Err(Error::refused(op, Errno::EOPNOTSUPP, hint)) }
    }

    /// The maximum payload in bytes of a large send over a raw packet queue pair. Refuses `op` on a device without large sends.
    pub(crate) fn most_large_send(&self, op: &'static str) -> Result<u32> {
        let most = self.offloads()?.large_send;
        let hint = "the device cannot segment large sends of raw packets";
        if most > 0 { Ok(most) } else { Err(Error::refused(op, Errno::EOPNOTSUPP, hint)) }
    }

    /// What the device can do to raw packets. It is queried once.
    fn offloads(&self) -> Result<Offloads> {
        if let Some(known) = Offloads::known(self.0.offloads.load(Ordering::Relaxed)) {
            return Ok(known);
        }
        let (core, packets) = self.query_all()?;
        let offloads = Offloads {
            raw_packet: RawPacketCaps::from_bits_retain(core.raw_packet_caps),
            large_send: packets.large_send(),
        };
        self.0.offloads.store(offloads.bits(), Ordering::Relaxed);
        Ok(offloads)
    }

    /// How many reads can be outstanding, as the connection manager's numbers, which end at 255. The device is queried once.
    pub(crate) fn read_depths(&self) -> Result<ReadDepths> {
        if let Some(known) = ReadDepths::known(self.0.read_depths.load(Ordering::Relaxed)) {
            return Ok(known);
        }
        let device = self.query_device()?.base;
        let byte = |depth| u8::try_from(depth).unwrap_or(u8::MAX);
        let depths =
            ReadDepths { incoming: byte(device.max_qp_rd_atom), own: byte(device.max_qp_init_rd_atom) };
        self.0.read_depths.store(depths.bits(), Ordering::Relaxed);
        Ok(depths)
    }

    /// State and limits of `port`; the first port is 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a port that the device does not have.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_PORT`; the answer needs room for at least 48 bytes (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_port_attr")]
    pub fn query_port(&self, port: u8) -> Result<QueryPortRespEx> {
        use device::query_port::{PORT_NUM, RESP};
        let mut response = QueryPortRespEx::new_zeroed();
        let mut command = Command::new("port.query", device::OBJECT, device::method::QUERY_PORT);
        command.value(PORT_NUM, port.into()).output(RESP, response.as_mut_bytes());
        self.invoke(&mut command).map_err(|error| match self.no_such_port(port) {
            Some(hint) => error.hinted_if(ErrorKind::InvalidInput, hint),
            None => error,
        })?;
        Ok(response)
    }

    /// The data rate of `port`, all lanes together, in units of 100 Mb/s.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on kernels before 7.2, and for drivers that do not report it, such as rxe; others of the
    /// kernel.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_PORT_SPEED` (uverbs_std_types_device.c, Linux 7.2).
    #[doc(alias = "ibv_query_port_speed")]
    pub fn port_speed(&self, port: u32) -> Result<u64> {
        use device::query_port_speed::{PORT_NUM, RESP};
        let mut speed = 0_u64;
        let mut command = Command::new("port.speed", device::OBJECT, device::method::QUERY_PORT_SPEED);
        command.value(PORT_NUM, port.into()).output(RESP, speed.as_mut_bytes());
        self.invoke(&mut command)?;
        Ok(speed)
    }

    /// Every valid entry of the GID tables of all ports.
    ///
    /// # Errors
    /// Those of the kernel; [`ErrorKind::Malformed`] if it reports more entries than requested.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_GID_TABLE` (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self) -> Result<Vec<Gid>> {
        use device::query_gid_table::{ENTRY_SIZE, FLAGS, RESP_ENTRIES, RESP_NUM_ENTRIES};
        let op = "gid_table.query";
        let ports = self.query_device()?.base.phys_port_cnt;
        let mut size = 0;
        for port in 1..=ports {
            let entries = usize::try_from(self.query_port(port)?.legacy_resp.gid_tbl_len);
            size += entries.map_err(|_| Error::malformed(op, "a negative table size"))?;
        }
        // The kernel accepts lengths of 16 bits.
        let size = size.clamp(1, usize::from(u16::MAX) / size_of::<GidEntry>());
        let mut entries = vec![GidEntry::new_zeroed(); size];
        let mut count = 0_u64;
        let mut command = Command::new(op, device::OBJECT, device::method::QUERY_GID_TABLE);
        command
            .value(ENTRY_SIZE, size_of::<GidEntry>() as u64)
            .flags(FLAGS, 0)
            .output(RESP_ENTRIES, entries.as_mut_bytes())
            .output(RESP_NUM_ENTRIES, count.as_mut_bytes());
        self.invoke(&mut command)?;
        let valid = usize::try_from(count).ok().and_then(|count| entries.get(..count));
        let valid = valid.ok_or_else(|| Error::malformed(op, "more entries than requested"))?;
        Ok(valid.iter().map(Gid::from).collect())
    }

    /// The entry at `index` of the GID table of `port`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an empty entry, [`ErrorKind::InvalidInput`] outside the table.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_GID_ENTRY` (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid")]
    pub fn gid(&self, port: u8, index: u32) -> Result<Gid> {
        use device::query_gid_entry::{FLAGS, GID_INDEX, PORT, RESP_ENTRY};
        let mut entry = GidEntry::new_zeroed();
        let mut command = Command::new("gid.query", device::OBJECT, device::method::QUERY_GID_ENTRY);
        command
            .value(PORT, port.into())
            .value(GID_INDEX, index.into())
            .flags(FLAGS, 0)
            .output(RESP_ENTRY, entry.as_mut_bytes());
        self.invoke(&mut command).map_err(|error| self.explain_gid(error, port, index))?;
        Ok(Gid::from(&entry))
    }

    /// The error for an entry of the GID table, with a hint. Drivers do not agree on the errno for an empty entry, nor on that for an
    /// index beyond the table.
    #[cold]
    fn explain_gid(&self, error: Error, port: u8, index: u32) -> Error {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) {
            return error;
        }
        let hint = self.no_such_gid(port, index);
        error.hinted(hint.unwrap_or_else(|| {
            format!("entry {index} of the GID table of port {port} is empty: gid_table() lists the others")
        }))
    }

    /// The partition key at `index` of the table of `port`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an index or port that does not exist.
    ///
    /// # Kernel
    /// The kernel has no command for it: as in libibverbs, the key is read from sysfs (`ports/N/pkeys/I`).
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.0.device.pkey(port, index)
    }
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
pub struct Gid {
    /// The address, in network byte order.
    pub raw: [u8; 16],
    /// Its port, from 1.
    pub port: u32,
    /// Its index in the port's table.
    pub index: u32,
    /// Its type.
    pub kind: GidKind,
    /// Index of the network interface to which it belongs; zero for none.
    pub interface: u32,
}

impl Context {
    /// The firmware version as text. `number` is `fw_ver` of [`query_device`](Self::query_device), which each driver formats in its own
    /// way; for drivers whose format this crate does not know, it is the text that the kernel reports. It may be empty.
    pub fn firmware(&self, number: u64) -> String {
        self.driver().firmware(number).unwrap_or_else(|| self.device().firmware().to_owned())
    }
}

#[cfg(feature = "raw")]
impl Context {
    /// Limits and capabilities of the device, together with the driver's response about packets.
    ///
    /// # Errors
    /// As [`Context::query_device`].
    pub fn query_with_driver(&self) -> Result<(ExQueryDeviceResp, PacketCaps)> {
        self.query_all()
    }

    /// Whether requests may be flushes and atomic writes. Other devices refuse them when they are posted.
    pub fn has_flushes(&self) -> bool {
        self.driver().has_flushes()
    }

    /// The maximum number of sends of a queue, if it is limited in user space.
    pub fn most_sends(&self) -> Option<u32> {
        self.driver().most_sends()
    }

    /// Whether libibverbs offers thread domains and parent domains on this device.
    pub fn has_parent_domains(&self) -> bool {
        self.driver().has_parent_domains()
    }

    /// Which provider its queues have.
    #[cfg(feature = "raw")]
    pub fn provider(&self) -> crate::driver::ProviderKind {
        self.driver().provider()
    }

    /// Whether the data of a message is written in order, in aligned pieces of 128 bytes.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn orders_data(&self) -> Result<bool> {
        self.driver().orders_data(self)
    }

    /// The additional fields that completions of the device can have.
    pub fn completion_fields(&self) -> crate::driver::CompletionFields {
        self.driver().completion_fields()
    }
}

/// The type of a GID.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_type")]
#[doc(alias = "ibv_query_gid_type")]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1 (Ethertype 0x8915).
    RoceV1,
    /// RoCE version 2 (UDP port 4791).
    RoceV2,
    /// A type that this crate does not know.
    Unknown(u32),
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
            Self::Unknown(number) => write!(f, "type {number}"),
        }
    }
}

impl GidKind {
    const KNOWN: [(u32, Self); 3] = [
        (gid_type::IB, Self::InfiniBand),
        (gid_type::ROCE_V1, Self::RoceV1),
        (gid_type::ROCE_V2, Self::RoceV2),
    ];

    fn of(number: u32) -> Self {
        let known = Self::KNOWN.into_iter().find(|(known, _)| *known == number);
        known.map_or(Self::Unknown(number), |(_, kind)| kind)
    }

    /// The kernel's number of the type, one of [`uverbs_abi::types::gid_type`].
    #[cfg(feature = "raw")]
    pub fn number(self) -> u32 {
        match self {
            Self::Unknown(number) => number,
            known => Self::KNOWN
                .into_iter()
                .find(|(_, kind)| *kind == known)
                .map_or(u32::MAX, |(number, _)| number),
        }
    }
}

impl From<&GidEntry> for Gid {
    fn from(entry: &GidEntry) -> Self {
        let kind = GidKind::of(entry.gid_type);
        let mut raw = [0; 16];
        raw.copy_from_slice(entry.gid.as_bytes());
        Self { raw, port: entry.port_num, index: entry.gid_index, kind, interface: entry.netdev_ifindex }
    }
}

#[cfg(all(test, feature = "raw"))]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_a_gid_keeps_its_number() {
        let all = [gid_type::IB, gid_type::ROCE_V1, gid_type::ROCE_V2, 3, u32::MAX - 1];
        assert_eq!(all.map(|number| GidKind::of(number).number()), all);
        assert!(all[..3].iter().all(|number| !matches!(GidKind::of(*number), GidKind::Unknown(_))));
    }
}
