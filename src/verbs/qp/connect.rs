//! Bringing queue pairs up: all states in one call.

use std::fmt;
use std::str::FromStr;

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, mtu};

use super::{Attributes, QpState, QueuePair, QueuePairCore, RawPacket, Rc, Srd, Uc, Ud, XrcSend};
use crate::device::context::Peer;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::ah::Route;

/// The address of one side of a connection, which the other side needs.
///
/// Its text form is the one that the pingpong programs of libibverbs exchange:
///
/// ```
/// let text = "0000:000011:37a5f0:00000000000000000000ffffc0000201";
/// let endpoint: uverbs::Endpoint = text.parse()?;
/// assert_eq!((endpoint.qp_num, endpoint.psn), (0x11, 0x37a5f0));
/// assert_eq!(endpoint.to_string(), text);
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Local identifier (LID) of the port; only on InfiniBand.
    pub lid: u16,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// The first packet sequence number that it sends: 24 bits.
    pub psn: u32,
    /// GID of the port.
    pub gid: [u8; 16],
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = u128::from_be_bytes(self.gid);
        write!(f, "{:04x}:{:06x}:{:06x}:{gid:032x}", self.lid, self.qp_num, self.psn)
    }
}

impl From<&Endpoint> for Peer {
    fn from(endpoint: &Endpoint) -> Self {
        Self::Gid(endpoint.gid)
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let hint = "an endpoint is LID:QPN:PSN:GID in hexadecimal digits, 4, 6, 6 and 32 of them";
            Error::refused("endpoint.parse", Errno::EINVAL, hint)
        };
        let mut parts = text.trim_end_matches(['\0', '\n']).split(':');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
            u128::from_str_radix(part, 16).ok().filter(|_| hex)
        };
        let (lid, qp_num, psn, gid) = (part(4), part(6), part(6), part(32));
        let (Some(lid), Some(qp_num), Some(psn), Some(gid), None) = (lid, qp_num, psn, gid, parts.next())
        else {
            return Err(wrong());
        };
        // No part has more digits than its type can hold.
        Ok(Self { lid: lid as u16, qp_num: qp_num as u32, psn: psn as u32, gid: gid.to_be_bytes() })
    }
}

/// Options of a connection. Both sides must use the same `mtu`, and neither may have more reads outstanding than the other one accepts:
/// [`agreed`](Self::agreed) finds what both sides have.
///
/// ```
/// use uverbs::{ConnectionOptions, Rc};
/// # fn main() -> uverbs::Result<()> {
/// # let context = uverbs::SoftDevice::default().open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
/// # let mut qp = pd.rc(&cq).create()?;
/// let options = ConnectionOptions::new(1, 0);
/// let (own, local) = (context.connection_limits(1)?, qp.endpoint(&options, 0)?);
/// // Send `own` and `local` to the other side, and receive its limits and its endpoint.
/// # let (peer, remote) = (own, local);
/// qp.connect(&options.agreed(&own, &peer), &local, &remote)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Port, from 1.
    pub port: u8,
    /// Index of this side's GID in the port's table.
    pub gid_index: u8,
    /// Maximum packet size: one of [`uverbs_abi::types::mtu`].
    pub mtu: u8,
    /// The access rights of the other side to this side's memory.
    pub access: AccessFlags,
    /// Maximum number of outstanding reads and atomic operations of this side. If more are posted, the device sends them when others
    /// have completed.
    pub reads: u8,
    /// Maximum number of outstanding reads and atomic operations of the other side; `None` for as many as `reads`.
    pub incoming_reads: Option<u8>,
    /// How long the other side must wait if no receive is posted: a code, 12 is 0.64 ms.
    pub rnr_timer: u8,
    /// Time to wait for an acknowledgement: 4.096 µs * 2^n.
    pub timeout: u8,
    /// How often a request is sent again without an acknowledgement: up to 7, which on rxe means forever.
    pub retries: u8,
    /// How often a request is sent again if the other side has no receive posted: up to 6; 7 means forever.
    pub rnr_retries: u8,
}

impl ConnectionOptions {
    /// Options for `port` with its GID at `gid_index`, which [`Context::gid_for`](crate::Context::gid_for) chooses. They work with any
    /// other side: packets of 1024 bytes, **one outstanding read or atomic operation** in each direction, no access, and the timers of
    /// libibverbs' pingpong programs.
    ///
    /// Reads that are posted together are then executed one after the other. [`agreed`](Self::agreed) uses what the devices and ports
    /// of both sides have.
    pub fn new(port: u8, gid_index: u8) -> Self {
        Self {
            port,
            gid_index,
            mtu: mtu::MTU_1024,
            access: AccessFlags::empty(),
            reads: 1,
            incoming_reads: None,
            rnr_timer: 12,
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
        }
    }

    /// The access rights of the other side to this side's memory.
    #[must_use]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = access;
        self
    }

    /// The number of outstanding reads of the other side that this side accepts.
    pub(super) fn accepted_reads(&self) -> u8 {
        self.incoming_reads.unwrap_or(self.reads)
    }

    /// The route to the other side, for datagrams: use it to create an [`AddressHandle`](crate::AddressHandle).
    pub fn route(&self, remote: &Endpoint) -> Route {
        Route { lid: remote.lid, ..Route::new(self.port, self.gid_index, remote.gid) }
    }

    pub(super) fn init(&self) -> Attributes {
        Attributes::to(QpState::Init).port(self.port).pkey_index(0)
    }

    /// The step to "ready to receive" that all connected types share.
    pub(super) fn receive(&self, remote: &Endpoint) -> Attributes {
        Attributes::to(QpState::ReadyToReceive)
            .route(&self.route(remote))
            .path_mtu(self.mtu)
            .destination(remote.qp_num)
            .receive_psn(remote.psn)
    }
}

impl ConnectionOptions {
    /// The step to "ready to send" of a queue pair whose requests are acknowledged.
    fn send(&self, local: &Endpoint) -> Attributes {
        Attributes::to(QpState::ReadyToSend)
            .send_psn(local.psn)
            .timeout(self.timeout)
            .retries(self.retries)
            .rnr_retries(self.rnr_retries)
            .outgoing_reads(self.reads)
    }
}

impl<T: super::QpType> QueuePair<T> {
    /// The address of this side, which you send to the other side. `psn` is any number of 24 bits.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if the port has no GID at that index.
    pub fn endpoint(&self, options: &ConnectionOptions, psn: u32) -> Result<Endpoint> {
        self.shared.endpoint(options, psn)
    }
}

impl QueuePairCore {
    pub(super) fn endpoint(&self, options: &ConnectionOptions, psn: u32) -> Result<Endpoint> {
        let context = self.object.context();
        let lid = context.query_port(options.port)?.legacy_resp.lid;
        let gid = context.gid(options.port, options.gid_index.into())?.raw;
        Ok(Endpoint { lid, qp_num: self.number, psn: psn & 0xff_ffff, gid })
    }
}

impl QueuePair<Rc> {
    /// Connects to the other side: INIT, RTR, RTS. `local` is the result of [`QueuePair::endpoint`] that was sent to the other
    /// side.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that the device does not have, or if the queue pair is not in the
    /// state RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(
        &mut self,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> Result<()> {
        self.modify(&options.init().access(options.access))?;
        self.modify(
            &options.receive(remote).incoming_reads(options.accepted_reads()).rnr_timer(options.rnr_timer),
        )?;
        self.modify(&options.send(local))
    }
}

impl QueuePair<XrcSend> {
    /// Connects to an [`XrcReceiveQueuePair`](super::XrcReceiveQueuePair) at the other side: INIT, RTR, RTS. `local` is the
    /// result of [`QueuePair::endpoint`] that was sent to the other side. The other side cannot access this side's memory.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that the device does not have, or if the queue pair is not in the
    /// state RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(
        &mut self,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> Result<()> {
        self.modify(&options.init().access(AccessFlags::empty()))?;
        self.modify(&options.receive(remote))?;
        self.modify(&options.send(local))
    }
}

impl QueuePair<Uc> {
    /// Connects to the other side: INIT, RTR, RTS. `local` is the result of [`QueuePair::endpoint`] that was sent to the other
    /// side.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that the device does not have, or if the queue pair is not in the
    /// state RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(
        &mut self,
        options: &ConnectionOptions,
        local: &Endpoint,
        remote: &Endpoint,
    ) -> Result<()> {
        self.modify(&options.init().access(options.access))?;
        self.modify(&options.receive(remote))?;
        self.modify(&Attributes::to(QpState::ReadyToSend).send_psn(local.psn))
    }
}

impl QueuePair<Ud> {
    /// Makes the queue pair ready for datagrams with the queue key `qkey`: INIT, RTR, RTS.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port that the device does not have, or when the queue pair is not in
    /// reset.
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(&mut self, options: &ConnectionOptions, qkey: u32, psn: u32) -> Result<()> {
        self.modify(&options.init().qkey(qkey))?;
        self.modify(&Attributes::to(QpState::ReadyToReceive))?;
        self.modify(&Attributes::to(QpState::ReadyToSend).send_psn(psn & 0xff_ffff))
    }
}

impl QueuePair<Srd> {
    /// Makes the queue pair ready for reliable datagrams with the queue key `qkey`: INIT, RTR, RTS.
    ///
    /// Only the port of the options is used. If the device supports it, set the number of retries for a missing receive with
    /// [`modify`](Self::modify).
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port that the device does not have, or when the queue pair is not in
    /// reset.
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(&mut self, options: &ConnectionOptions, qkey: u32, psn: u32) -> Result<()> {
        self.modify(&options.init().qkey(qkey))?;
        self.modify(&Attributes::to(QpState::ReadyToReceive))?;
        self.modify(&Attributes::to(QpState::ReadyToSend).send_psn(psn & 0xff_ffff))
    }
}

impl QueuePair<RawPacket> {
    /// Makes the queue pair ready on `port`, from RESET to RTS. A raw packet queue pair takes its port in the first transition
    /// and no other attribute (mlx5_ib_modify_qp, qp.c, Linux 6.1).
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a port that the device does not have, or if the queue pair is not in the
    /// state RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn bring_up(&mut self, port: u8) -> Result<()> {
        self.modify(&Attributes::to(QpState::Init).port(port)).map_err(|error| {
            error.hinted_if(ErrorKind::InvalidInput, "the queue pair must be in the state RESET")
        })?;
        self.modify(&Attributes::to(QpState::ReadyToReceive))?;
        self.modify(&Attributes::to(QpState::ReadyToSend))
    }
}
