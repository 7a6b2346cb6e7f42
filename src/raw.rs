//! The layer below the safe interface, for bindings to other languages (feature `raw`).
//!
//! The objects are the same: [`Context`](crate::Context), [`ProtectionDomain`], [`CompletionQueue`] and
//! [`SharedReceiveQueue`](crate::SharedReceiveQueue) have additional methods. Objects whose safe form keeps memory alive have a
//! form here that does not: a [`Region`] is an address and keys, and a request is a list of addresses, lengths and keys. Rings,
//! commands and drivers are those of the safe interface. Start with [`register_at`](crate::ProtectionDomain::register_at) and the
//! example.
//!
//! Only registering memory takes an address in the process, so only these calls are `unsafe`:
//! [`register_at`](crate::ProtectionDomain::register_at) and [`Region::change`]. A request cannot name memory that is not
//! registered; inline data is copied from a slice.
//!
//! This layer serves the bindings in this repository (`uverbs-c`, a drop-in `libibverbs.so.1`) and may change in any version.
//!
//! ```
//! use uverbs::abi::types::{QpCreateFlags, SendFlags, qp_type};
//! use uverbs::raw::{Extended, Opcode, Sge};
//! use uverbs::{Capacity, SoftDevice, raw};
//! # fn main() -> uverbs::Result<()> {
//! let context = SoftDevice::default().open()?;
//! let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4)?);
//! let capacity = Capacity { sends: 4, receives: 4, send_segments: 1, receive_segments: 1, inline: 64, ..Capacity::default() };
//! let flags = QpCreateFlags::SQ_SIG_ALL;
//! let init = raw::QueuePairInit {
//!     type_: qp_type::UD, send_cq: &cq.object(), receive_cq: &cq.object(), srq: None, capacity, operations: None, cookie: 0, flags,
//! };
//! let (_qp, mut sends, receives) = pd.create_parts(&init)?;
//! let piece = Sge { addr: 0x1000, length: 64, lkey: 5 };
//! sends.put(1, SendFlags::SIGNALED, &Opcode::LocalInvalidate(3), &[]).unwrap();
//! assert!(sends.publish().is_err(), "the queue pair is not ready");
//! receives.unwrap().post_one(7, &[piece]).unwrap();
//! assert_eq!(cq.poll_places(&mut [Extended::default(); 4]), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Safety
//! A device may read and write registered memory at any time until it is deregistered. This layer does not keep the memory alive:
//! a caller that registers an address must meet the conditions of [`register_at`](crate::ProtectionDomain::register_at) and
//! [`Region::change`]. Nothing in this file accesses the memory. The soft device is a part of the process, which finds no memory by its
//! address: it gets a [`Mapping`], for which the same conditions are enough, since it accesses memory by the mapping only, and not after the
//! region is destroyed. A caller that reads completions in place must ensure that no
//! other thread takes any meanwhile ([`in_place`](crate::CompletionQueue::in_place)).

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ids::mr;
use uverbs_abi::types::AccessFlags;
use uverbs_abi::write::{RegMr, RegMrResp, ReregMr, ReregMrResp, Wc, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::completion_counter::Registry;
use crate::device::object::{Kind, Object};
pub use crate::device::sysfs_root;
pub use crate::driver::completion::{Extended, Fields, Missed, Place, Raised};
use crate::driver::cq::Completions;
pub use crate::driver::cursor::{Cursor, Shown, Told, Unread};
pub use crate::driver::provider::{self, Provider, ProviderKind};
pub use crate::driver::request::{
    ADDRESSED, Address, Binding, Data, Destination, FRAMES, FrameHead, InlineParts, MESSAGES, Opcode,
    Refused, RequestKind, Sge, Terms, ToAddress, ToDestination, ToSrq,
};
use crate::driver::ring::Window as SlotWindow;
pub use crate::driver::seam::{
    Facts, FillReceives, Lower, LowerReceive, OwnRing, ReceiveBatch, Short, Written, walk,
};
pub use crate::driver::{CompletionFields, DriverCq, DriverQp, PacketCaps};
use crate::kernel::command::{Command, MAX_VALUES};
use crate::kernel::error::{Error, Result};
pub use crate::kernel::mapping::source::BlockSource;
use crate::kernel::mapping::{Mapping, mapped};
use crate::kernel::process::Passage;
pub use crate::kernel::process::{Here, Holder, Local, Origin};
pub use crate::verbs::ah::{NoRoute, RoutingHeader};
use crate::verbs::cq::CompletionQueue;
pub use crate::verbs::cq::object::CompletionObject;
pub use crate::verbs::mw::window::Window;
use crate::verbs::pd::ProtectionDomain;
pub use crate::verbs::qp::create::parts::{QueuePair, QueuePairInit};
pub use crate::verbs::qp::send::{Batch, FillSends, SendQueue, Unseen};
pub use crate::verbs::work::ReceiveQueue;

/// InfiniBand's transports as packets: what RoCE v2 puts into UDP datagrams.
pub mod roce {
    pub use crate::roce::{
        Atomic, BASE, Malformed, Operation, PORT, Packet, Remote, Service, icrc, psn, requester, responder,
    };
}

/// The maximum number of values that a read of counters can return.
pub const MOST_VALUES: usize = MAX_VALUES;

/// A range of addresses to be registered.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first address in the process.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// The address of the first byte for the device and for peers.
    pub iova: u64,
    /// Bits of [`AccessFlags`], which are not checked here.
    pub access: u32,
}

/// Access for which the kernel wants memory that can be written (`ib_access_writable`, ib_verbs.h, Linux 6.1).
const WRITTEN: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::MW_BIND);

/// Bit of the flags of [`Region::change`]: the addresses.
const MOVES: u32 = 1 << 0;

/// Registered memory that its user keeps.
#[derive(Debug)]
pub struct Region {
    object: Object,
    lkey: u32,
    rkey: u32,
    pd: ProtectionDomain,
}

impl ProtectionDomain {
    /// Registers memory by its address.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Safety
    /// Until the region is destroyed, the device (and remote peers, as `access` allows) may read and write the memory: it
    /// stays mapped, and nothing else is put there, and no reference says otherwise. Memory that is not there at all is
    /// refused by the kernel, and on the soft device if `/proc` shows what is there.
    ///
    /// The soft device accesses the memory by atomic operations on words of four bytes, and on single bytes at both ends of the region.
    /// Other regions of the device may overlap it. Those of another soft device may, too, unless both are used at the same time and one of
    /// them begins or ends inside a word of the other.
    pub unsafe fn register_at(&self, range: Range) -> Result<Region> {
        let Range { start, length, iova, access } = range;
        self.check_paging("mr.register", access, start, iova)?;
        let request = RegMr {
            start,
            length,
            hca_va: iova,
            pd_handle: self.id(),
            access_flags: access,
            ..RegMr::new_zeroed()
        };
        // SAFETY: as the caller has promised.
        let memory = unsafe { self.memory_at(&range) };
        let mut made = RegMrResp::new_zeroed();
        let mut plan = self.context().driver().plan_mr();
        let mut command = Command::write("mr.register", cmd::REG_MR);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes()).driver_payload(plan.payload());
        if let Some(memory) = &memory {
            command.registers(memory);
        }
        self.context().invoke(&mut command)?;
        Ok(self.made(made, AccessFlags::from_bits_retain(access).contains(AccessFlags::ON_DEMAND)))
    }

    /// The memory of the process for a device that is a part of it. `None` for others, to which the kernel gives the memory, and for
    /// addresses at which the process has none: the device refuses them as the kernel does.
    ///
    /// # Safety
    /// As [`register_at`](Self::register_at).
    unsafe fn memory_at(&self, range: &Range) -> Option<Mapping> {
        if !self.context().device().is_in_process() {
            return None;
        }
        let (start, length) = (usize::try_from(range.start).ok()?, usize::try_from(range.length).ok()?);
        let access = AccessFlags::from_bits_retain(range.access);
        if !mapped::is_there(start, length, access.intersects(WRITTEN)) {
            return None;
        }
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(start))?;
        // SAFETY: the caller keeps the memory until the region is destroyed, with which the device's mapping of it ends, and has no reference
        // to it. Mappings of the same memory are those of other regions: all accesses of one device are made under its lock.
        Some(unsafe { Mapping::from_raw(base, length) })
    }

    /// Registers a range of a dma-buf: `start` is an offset in it, not an address of the process. A number that is no open
    /// file is the kernel's to refuse.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn register_dmabuf_at(&self, fd: i32, range: Range) -> Result<Region> {
        let Range { start, length, iova, access } = range;
        Ok(self.made(self.register_file("mr.register_dmabuf", fd, [start, length, iova], access)?, false))
    }

    /// A region that somebody else has registered in this domain, with the handle of the kernel's context which both use: see
    /// [`Context::import`](crate::Context::import). Dropping or destroying it deregisters the memory, unless it was
    /// [left](Region::leave). Its address in this process and its rights are not known: they are zero in the range.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no region with this handle; [`Unsupported`](crate::ErrorKind::Unsupported) for
    /// drivers other than mlx5.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_MR` (uverbs_std_types_mr.c, Linux 6.1). The kernel does not look at the domain.
    #[doc(alias = "ibv_import_mr")]
    pub fn import_region(&self, handle: u32) -> Result<(Region, Range)> {
        let op = "mr.import";
        if self.context().driver().tells_number().is_none() {
            return Err(self.context().driver().lacking(op, "has no memory regions that others can use"));
        }
        let (mut lkey, mut rkey, mut length, mut iova) = (0_u32, 0_u32, 0_u64, 0_u64);
        let mut command = Command::on(op, mr::OBJECT, mr::method::QUERY, mr::query::HANDLE, handle);
        command
            .output(mr::query::RESP_LKEY, lkey.as_mut_bytes())
            .output(mr::query::RESP_RKEY, rkey.as_mut_bytes())
            .output(mr::query::RESP_LENGTH, length.as_mut_bytes())
            .output(mr::query::RESP_IOVA, iova.as_mut_bytes());
        self.context().invoke(&mut command)?;
        let object = Object::new(self.context(), Kind::Mr, handle);
        let region = Region { object, lkey, rkey, pd: self.clone() };
        Ok((region, Range { start: 0, length, iova, access: 0 }))
    }

    fn made(&self, made: RegMrResp, is_paged: bool) -> Region {
        let object = Object::new(self.context(), Kind::Mr, made.mr_handle).paged(is_paged, made.lkey);
        Region { object, lkey: made.lkey, rkey: made.rkey, pd: self.clone() }
    }

    /// Has the device bring in pages of regions that are registered for paging on demand. `advice` is one of
    /// [`uverbs_abi::types::advise`], `flags` are [`uverbs_abi::types::AdviseFlags`]; keys are local keys.
    ///
    /// # Errors
    /// Those of the kernel, such as [`Unsupported`](crate::ErrorKind::Unsupported) where there is no paging on demand. On rxe, which does
    /// not check it, [`NotFound`](crate::ErrorKind::NotFound) (as on mlx5) for a key that is not one of a region of this context
    /// that is registered for paging on demand: nothing is sent then.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_ADVISE_MR` (uverbs_std_types_mr.c, Linux 6.1).
    pub fn advise(&self, advice: u32, flags: u32, pieces: &[Sge]) -> Result<()> {
        self.send_advice("mr.advise", [advice, flags], pieces)
    }
}

impl Region {
    /// The kernel's handle.
    pub fn handle(&self) -> u32 {
        self.object.id()
    }

    /// Local key.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Remote key.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Changes what `flags` say (bit 0 the addresses, bit 1 the domain, bit 2 access). The keys may be others then.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Safety
    /// As [`ProtectionDomain::register_at`], of the old memory and the new: when the kernel fails, either may be registered.
    pub unsafe fn change(&mut self, flags: u32, range: Range, pd: Option<&ProtectionDomain>) -> Result<()> {
        let Range { start, length, iova, access } = range;
        let request = ReregMr {
            mr_handle: self.object.id(),
            flags,
            start,
            length,
            hca_va: iova,
            pd_handle: pd.map_or(0, ProtectionDomain::id),
            access_flags: access,
            ..ReregMr::new_zeroed()
        };
        // SAFETY: as the caller has promised.
        let memory = if flags & MOVES != 0 { unsafe { self.pd.memory_at(&range) } } else { None };
        let keys = self.object.change_region("mr.change", |context| {
            let mut keys = ReregMrResp::new_zeroed();
            let mut command = Command::write("mr.change", cmd::REREG_MR);
            command.input(CORE_IN, &request).output(CORE_OUT, keys.as_mut_bytes());
            if let Some(memory) = &memory {
                command.registers(memory);
            }
            context.invoke(&mut command)?;
            Ok(keys)
        })?;
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }

    /// Leaves the region to others who have its handle: it is not deregistered when this one is dropped.
    pub fn leave(&self) {
        self.object.abandon();
    }

    /// Deregisters the memory and reports any error.
    ///
    /// # Errors
    /// Those of the kernel, such as [`Busy`](crate::ErrorKind::Busy) while a memory window is bound to it.
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release_for_sure().map_err(|error| (self, error))
    }
}

/// A cursor for queues whose completions have the kernel's format: each is read in the ring. Their slots are given back at the end of the
/// poll, and when the poll looks for further completions.
///
/// The short path is closed in a child of `fork`, and if completions are counted.
#[derive(Debug, Default)]
pub struct InPlace {
    window: SlotWindow<Wc>,
    passage: Passage,
    _registry: Arc<Registry>,
}

impl CompletionQueue {
    /// A cursor that reads completions in the ring; `None` if they do not have the kernel's format there. After a resize the queue needs
    /// another one.
    ///
    /// # Safety
    /// From a [`Cursor::first_fast`] or [`Cursor::first`] that found a completion to the [`Cursor::end`] after it that returned true, nobody
    /// takes completions of the queue in another way.
    pub unsafe fn in_place(&self) -> Option<InPlace> {
        let (opening, registry) = self.opening()?;
        // SAFETY: as the caller has promised.
        let window = unsafe { opening.open() };
        Some(InPlace { window, passage: registry.passage(), _registry: registry })
    }
}

impl InPlace {
    #[inline(always)]
    fn shown(&self) -> Shown {
        (self.wr_id(), self.status())
    }

    /// Why the window shows no completion.
    #[inline]
    fn missed(&self) -> Missed {
        if self.passage.is_open() { Missed::Nothing } else { Missed::Other }
    }
}

impl Cursor for InPlace {
    const SHOWS_BEGIN: bool = true;

    #[inline(always)]
    fn first_fast(&mut self, _: &mut Completions, _: impl Fn() -> bool) -> Result<Shown, Missed> {
        // Read after the check for completions: counters are bound before anything of their queue pair can complete.
        let passage = self.passage;
        if self.window.begin(|| passage.word()) { Ok(self.shown()) } else { Err(self.missed()) }
    }

    /// It may have arrived after the window last looked, so the error is never [`Missed::Nothing`].
    #[inline(always)]
    fn next_fast(&mut self, _: &mut Completions, _: impl Fn() -> bool) -> Result<Shown, Missed> {
        if self.window.next(self.passage.word()) { Ok(self.shown()) } else { Err(Missed::Other) }
    }

    fn first(&mut self, _: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown> {
        let is_there = self.window.begin(|| if may_take() { u32::MAX } else { 0 });
        is_there.then(|| self.shown())
    }

    fn next(&mut self, _: &mut Completions, may_take: impl Fn() -> bool) -> Option<Shown> {
        // A child of `fork` gives back no slots, because its parent would lose their completions.
        if !may_take() {
            return None;
        }
        self.window.look();
        // Asked once more, because the completion may have arrived meanwhile.
        (self.window.next(u32::MAX) && may_take()).then(|| self.shown())
    }

    #[inline(always)]
    fn end(&mut self, _: &mut Completions, may: impl Fn() -> bool) -> bool {
        // A child of `fork` gives back no slots, because its parent would lose their completions.
        self.window.end(self.passage.word()) || may() && self.window.end(u32::MAX)
    }

    fn extended(&self) -> Extended {
        Extended { wc: self.window.field::<0, Wc>(), ..Extended::default() }
    }
}

macro_rules! in_place {
    ($($name:ident: $field:ident as $type:ty;)*) => {
        impl Fields for InPlace {
            $(
                #[inline]
                fn $name(&self) -> $type {
                    self.window.field::<{ std::mem::offset_of!(Wc, $field) }, $type>()
                }
            )*
        }
    };
}

in_place! {
    wr_id: wr_id as u64;
    status: status as u32;
    opcode: opcode as u32;
    vendor_error: vendor_err as u32;
    byte_len: byte_len as u32;
    immediate: ex as u32;
    qp_num: qp_num as u32;
    source_qp: src_qp as u32;
    flags: wc_flags as u32;
    source_lid: slid as u16;
    service_level: sl as u8;
    path_bits: dlid_path_bits as u8;
}
