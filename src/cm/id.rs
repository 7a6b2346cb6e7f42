//! An identifier of the kernel's, which is destroyed when it is dropped.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use uverbs_abi::cm::{CreateId, EventResp, InitQpAttr, PS_TCP, Query, QueryAddrResp, ResolveAddr};
use uverbs_abi::types::{QpAttrMask, qp_state, qp_type};
use uverbs_abi::write::QpAttr;

use super::call::Call;
use super::shared::Shared;
use crate::device::Device;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::{Request, decode};

/// Without the bits that are not attributes of a queue pair but of InfiniBand's paths, and that modifying refuses.
pub(super) fn of_queue_pair(mut attributes: QpAttr) -> QpAttr {
    attributes.qp_attr_mask &= (1 << 21) - 1;
    attributes
}

/// Whether attributes for the state INIT are those of a port of iWARP, which has no partition keys.
pub(super) fn is_iwarp(attributes: &QpAttr) -> bool {
    !QpAttrMask::from_bits_retain(attributes.qp_attr_mask).contains(QpAttrMask::PKEY_INDEX)
}

/// That attributes for the state INIT are not those of a port of iWARP.
pub(super) fn is_of_datagrams(op: &'static str, attributes: &QpAttr) -> Result<()> {
    match is_iwarp(attributes) {
        true => Err(Error::refused(op, Errno::EOPNOTSUPP, "iWARP has connections only, and no datagrams")),
        false => Ok(()),
    }
}

/// An identifier with its place for events.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) shared: Arc<Shared>,
    /// Our number.
    pub(super) uid: u64,
    /// The kernel's.
    pub(super) id: u32,
    /// An identifier that is there only to have an event.
    bell: Option<Box<Id>>,
    /// Destroying it may block for seconds: a client over iWARP that was not answered.
    may_block: AtomicBool,
}

impl Id {
    /// Creates an identifier for this port space and type of queue pair.
    pub(super) fn create(shared: &Arc<Shared>, op: &'static str, (ps, qp_type): (u16, u8)) -> Result<Self> {
        shared.check_origin(op)?;
        let uid = shared.dispatch().enter();
        let request = CreateId { uid, ps, qp_type, ..CreateId::default() };
        match shared.request(op, &request) {
            Ok(answer) => Ok(Self::with(shared, uid, answer.id)),
            Err(error) => {
                shared.dispatch().leave(uid);
                Err(error)
            }
        }
    }

    /// Takes over the identifier of a new connection. The kernel learns our number when the connection is accepted.
    pub(super) fn adopt(shared: &Arc<Shared>, id: u32) -> Self {
        let uid = shared.dispatch().enter();
        Self::with(shared, uid, id)
    }

    pub(super) fn with(shared: &Arc<Shared>, uid: u64, id: u32) -> Self {
        Self { shared: shared.clone(), uid, id, bell: None, may_block: AtomicBool::new(false) }
    }

    pub(super) fn request<R: Request>(&self, op: &'static str, request: &R) -> Result<R::Answer> {
        self.shared.request(op, request)
    }

    /// A call that waits for its events.
    pub(super) fn call(&self) -> Call<'_> {
        Call::new(&self.shared, self.uid)
    }

    /// The next event.
    pub(super) fn event(&self, op: &'static str) -> impl Future<Output = Result<Box<EventResp>>> + '_ {
        self.call().event(op, None)
    }

    /// The attributes of the queue pair for its next state.
    pub(super) fn attributes(&self, op: &'static str, state: u8) -> Result<QpAttr> {
        let request = InitQpAttr { id: self.id, qp_state: state.into(), ..InitQpAttr::default() };
        Ok(of_queue_pair(self.request(op, &request)?))
    }

    /// The attributes for the state INIT, and whether the port is one of iWARP.
    pub(super) fn first_attributes(&self, op: &'static str) -> Result<(QpAttr, bool)> {
        let attributes = self.attributes(op, qp_state::INIT)?;
        Ok((attributes, is_iwarp(&attributes)))
    }

    /// That the device has datagrams.
    pub(super) fn has_datagrams(&self, op: &'static str) -> Result<()> {
        is_of_datagrams(op, &self.attributes(op, qp_state::INIT)?)
    }

    /// Whether the device is this one.
    pub(super) fn is_of(&self, op: &'static str, device: &Device) -> Result<bool> {
        let index = self.query(op)?.ibdev_index;
        match device.index() {
            Some(own) => Ok(own == index),
            None => Ok(self.shared.device(index)?.is(device)),
        }
    }

    /// The addresses of both sides, and the device.
    pub(super) fn query(&self, op: &'static str) -> Result<QueryAddrResp> {
        self.request(op, &Query { id: self.id, option: uverbs_abi::cm::QUERY_ADDR, ..Query::default() })
    }

    /// The device and its port.
    pub(super) fn device(&self, op: &'static str) -> Result<(Device, u8)> {
        let answer = self.query(op)?;
        Ok((self.shared.device(answer.ibdev_index)?, answer.port_num))
    }

    /// The addresses of this side and of the peer.
    pub(super) fn addresses(&self, op: &'static str) -> Result<(SocketAddr, SocketAddr)> {
        let answer = self.query(op)?;
        let both = decode(&answer.src_addr).zip(decode(&answer.dst_addr));
        both.ok_or_else(|| Error::malformed(op, "an address that is neither of IPv4 nor of IPv6"))
    }

    /// Moves the identifier to another manager, with its unread events. Nobody waits for it, and nobody else knows it.
    pub(super) fn move_to(&mut self, op: &'static str, to: &Arc<Shared>) -> Result<()> {
        if Arc::ptr_eq(&self.shared, to) {
            return Ok(());
        }
        let may_wait = to.take_over(op, &self.shared, self.uid, self.id).map_err(|error| {
            error.hinted_if(ErrorKind::InvalidInput, "the managers are not of one connection manager")
        })?;
        self.shared = to.clone();
        self.bell = if may_wait { self.ring(op) } else { None };
        Ok(())
    }

    /// The kernel moves events without waking those who wait for the other file (`ucma_migrate_id`, ucma.c, Linux 6.1 and 7.3). It wakes
    /// them for the answer to another identifier, which resolves the own address. If the device goes meanwhile, its removal wakes them.
    fn ring(&self, op: &'static str) -> Option<Box<Self>> {
        let answer = self.query(op).ok()?;
        let bell = Self::create(&self.shared, op, (PS_TCP, qp_type::RC)).ok()?;
        let (dst_size, dst_addr) = (answer.src_size, answer.src_addr);
        let request =
            ResolveAddr { id: bell.id, timeout_ms: 1, dst_size, dst_addr, ..ResolveAddr::default() };
        bell.request(op, &request).ok()?;
        Some(Box::new(bell))
    }

    pub(super) fn blocks(&self) -> bool {
        self.may_block.load(Ordering::Relaxed)
    }

    pub(super) fn may_block(&self, may: bool) {
        self.may_block.store(may, Ordering::Relaxed);
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if !self.shared.is_here() {
            return;
        }
        let unread = self.shared.dispatch().leave(self.uid);
        unread.into_iter().for_each(|id| self.shared.destroy(id));
        let id = self.id;
        // If no thread can be started, this one waits.
        if !*self.may_block.get_mut() || self.shared.help(move |shared| shared.destroy(id)).is_err() {
            self.shared.destroy(id);
        }
    }
}
