//! Memory windows: rights to parts of a memory region, given and taken back without the kernel's memory management.

#[cfg(feature = "raw")]
pub(crate) mod raw;

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::rxe::{MwWr, SendWr};
use uverbs_abi::types::{AccessFlags, SendFlags, wr_opcode};
use uverbs_abi::write::{AllocMw, AllocMwResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::Command;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{MemoryRegion, meant};
use crate::object::{self, Kind, Object};
use crate::pd::ProtectionDomain;
use crate::qp::{self, QpType, QueuePair, Rc, Remote, Uc};

/// Which kind of memory window it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowType {
    /// Any queue pair of the protection domain can use it, and bind it anew while it is bound. No key of it can be
    /// invalidated.
    One,
    /// Only the queue pair that bound it can use it (type 2B). It has to be invalidated, by this side or by the
    /// peer, before it is bound anew.
    Two,
}

impl WindowType {
    fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// A memory window: a remote key for a part of a [`MemoryRegion`], with rights of its own.
///
/// It is bound to memory by a request in the send queue ([`QueuePair::bind`]), and every bind gives it another key, so
/// that a peer's old key opens nothing. The window holds the region it is bound to, and of type 2 the queue
/// pair too, for as long as it can know of.
///
/// ```
/// use uverbs::{AccessFlags, Bind, WindowType};
/// # fn main() -> uverbs::Result<()> {
/// # let context = uverbs::SoftDevice::default().open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
/// # let mut qp = pd.rc(&cq).create()?;
/// # let options = uverbs::ConnectionOptions::new(1, 0);
/// # let me = qp.endpoint(&options, 0)?;
/// # qp.connect(&options, &me, &me)?;
/// let region = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
/// let mut window = pd.alloc_window(WindowType::Two)?;
/// assert_eq!(window.remote(), None);
/// qp.bind(&mut window, Bind::new(1, &region, 1024..2048).access(AccessFlags::REMOTE_READ))?;
/// let told_to_the_peer = window.remote().unwrap();
/// assert_eq!(told_to_the_peer.address, region.address() + 1024);
/// qp.unbind(&mut window, 2)?;
/// assert_eq!(window.remote(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    object: Object,
    kind: WindowType,
    /// The key that it has, or will have when the requests posted so far are carried out.
    key: u32,
    state: State,
    pd: ProtectionDomain,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    Bound(Bound),
    /// The end of the bind was posted; it may not have been carried out yet.
    Ending(Bound),
}

/// What the device may use through the window.
#[derive(Debug)]
struct Bound {
    region: MemoryRegion,
    /// The queue pair that bound a window of type 2. rxe counts the window as its user, waits 50 seconds for that
    /// to end when the queue pair is destroyed, and then destroys it all the same (rxe_do_bind_mw, rxe_mw.c;
    /// __rxe_cleanup, rxe_pool.c, Linux 6.1).
    via: Option<Arc<qp::Shared>>,
    /// What the peer was or will be told.
    remote: Remote,
}

/// What a window is to be bound to.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_mw_bind_info")]
pub struct Bind<'a> {
    wr_id: u64,
    region: &'a MemoryRegion,
    range: Range<usize>,
    access: AccessFlags,
    flags: SendFlags,
}

impl<'a> Bind<'a> {
    /// This part of a region, which must have been registered with [`AccessFlags::MW_BIND`]. `wr_id` comes back in the completion.
    pub fn new(wr_id: u64, region: &'a MemoryRegion, range: impl RangeBounds<usize>) -> Self {
        let range = meant(range, region.len());
        Self { wr_id, region, range, access: AccessFlags::empty(), flags: SendFlags::empty() }
    }

    /// What the peer may do: remote read, write and atomic operations; nothing if not given.
    #[must_use]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access |= access;
        self
    }

    /// The first byte has address zero for the peer; only of windows of type 2.
    #[must_use]
    pub fn zero_based(mut self) -> Self {
        self.access |= AccessFlags::ZERO_BASED;
        self
    }

    /// Success is reported by a completion; failure always is.
    #[must_use]
    pub fn signaled(mut self) -> Self {
        self.flags |= SendFlags::SIGNALED;
        self
    }

    /// Waits for earlier reads and atomic operations of the queue pair.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags |= SendFlags::FENCE;
        self
    }

    /// What the device would answer with a broken queue pair (rxe_check_bind_mw, rxe_mw.c, Linux 6.1), and what it
    /// would not notice: rxe does not look at the region's protection domain.
    fn check(&self, op: &'static str, window: &MemoryWindow) -> Result<()> {
        let (region, has) = (self.region.access(), |access| self.access.intersects(access));
        let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let writes = has(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC);
        let why = if !self.region.is_in(&window.pd) {
            "the window and the region are of different protection domains"
        } else if !region.contains(AccessFlags::MW_BIND) {
            "the region was not registered for windows: MW_BIND"
        } else if region.contains(AccessFlags::ZERO_BASED) {
            "a window cannot be bound to a region that is zero-based itself"
        } else if !(remote | AccessFlags::ZERO_BASED).contains(self.access) {
            "a window has remote rights only"
        } else if writes && !region.contains(AccessFlags::LOCAL_WRITE) {
            "a window that can be written to needs a region with local write"
        } else if has(AccessFlags::ZERO_BASED) && window.kind == WindowType::One {
            "windows of type 1 cannot be zero-based"
        } else if self.range.is_empty() {
            "the length must be one byte at least"
        } else {
            return self.region.inside(op, self.range.start, self.range.len());
        };
        Err(Error::refused(op, Errno::EINVAL, why))
    }
}

impl ProtectionDomain {
    /// Makes a memory window, not bound to anything.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) when the driver has no memory windows;
    /// [`Exhausted`](ErrorKind::Exhausted) when the device has no more.
    ///
    /// # Kernel
    /// `ALLOC_MW` by `INVOKE_WRITE` (ib_uverbs_alloc_mw, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_window(&self, kind: WindowType) -> Result<MemoryWindow> {
        let request = AllocMw { pd_handle: self.id(), mw_type: kind.number(), ..AllocMw::new_zeroed() };
        let mut made = AllocMwResp::new_zeroed();
        let mut command = Command::write("mw.alloc", cmd::ALLOC_MW);
        command.input(CORE_IN, &request).output(CORE_OUT, made.as_mut_bytes());
        let sent = self.context().invoke(&mut command);
        sent.map_err(|error| error.hinted_if(ErrorKind::Unsupported, "the driver has no memory windows"))?;
        let object = Object::new(self.context(), Kind::Mw, made.mw_handle);
        Ok(MemoryWindow { object, kind, key: made.rkey, state: State::Free, pd: self.clone() })
    }
}

impl MemoryWindow {
    /// Its type.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The key for the peer, once the bind is carried out; none if nothing is bound.
    pub fn rkey(&self) -> Option<u32> {
        self.remote().map(|remote| remote.rkey)
    }

    /// The window's first byte as the peer names it, once the bind is carried out; none if nothing is bound.
    ///
    /// A bind is carried out before all that is posted behind it to the same queue pair, so the message that tells
    /// the peer may be posted right away.
    pub fn remote(&self) -> Option<Remote> {
        match &self.state {
            State::Bound(bound) => Some(bound.remote),
            State::Free | State::Ending(_) => None,
        }
    }

    /// Says that a key, as the peer was told it, has been invalidated: by the peer, as a completion with the flag
    /// [`WITH_INVALIDATE`](crate::WcFlags::WITH_INVALIDATE) tells, or by [`QueuePair::unbind`], which has completed. If
    /// it was that of this window, the window is free, lets go of its region, and answers true.
    pub fn invalidated(&mut self, key: u32) -> bool {
        match &self.state {
            State::Bound(bound) | State::Ending(bound) if bound.remote.rkey == key => {
                self.state = State::Free;
                true
            }
            _ => false,
        }
    }

    /// Destroys the window, bound or not, and says how that went. A request that would bind it and that is still
    /// posted fails.
    ///
    /// # Errors
    /// Whatever the kernel says.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_MW_DESTROY` (uverbs_std_types.c, Linux 6.1).
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release().map_err(|error| (self, error))
    }

    /// The key after the next bind: only its low byte is free to choose.
    fn next_key(&self) -> u32 {
        (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff)
    }
}

/// Types of queue pair that can bind memory windows: RC and UC.
pub trait Binds: QpType {}

impl Binds for Rc {}
impl Binds for Uc {}

impl<T: Binds> QueuePair<T> {
    /// Posts a request that binds a window. From now on [`MemoryWindow::remote`] is what the peer shall use.
    ///
    /// The bind of a window of type 1 replaces an earlier one, whose key is worth nothing from then on. Should the bind
    /// fail, with [`WindowBind`](crate::Status::WindowBind), the queue pair is broken and the window's key not
    /// known any more: destroy the window.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) for a window of type 2 that is bound, or whose unbinding was posted to another queue pair
    /// and not reported by [`MemoryWindow::invalidated`]; [`InvalidInput`](ErrorKind::InvalidInput) for a bind that the device
    /// would refuse (a region without `MW_BIND`, more rights than the region has, a part that leaves the region,
    /// different protection domains, a zero-based window of type 1) or a queue pair that is not ready to send;
    /// [`Exhausted`](ErrorKind::Exhausted) when the queue is full. Nothing is changed then.
    ///
    /// # Kernel
    /// rxe_bind_mw (rxe_mw.c, Linux 6.1).
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "ibv_wr_bind_mw")]
    #[doc(alias = "ibv_inc_rkey")]
    pub fn bind(&mut self, window: &mut MemoryWindow, bind: Bind<'_>) -> Result<()> {
        let op = "qp.bind";
        self.same_domain(op, window)?;
        bind.check(op, window)?;
        if window.kind == WindowType::Two {
            match &window.state {
                State::Free => {}
                State::Ending(old) if old.via.as_ref().is_some_and(|via| Arc::ptr_eq(via, self.shared())) => {
                }
                State::Ending(_) => {
                    let hint = "another queue pair is still unbinding the window: report with `invalidated`";
                    return Err(object::shared(op, hint));
                }
                State::Bound(_) => return Err(object::shared(op, "the window is bound: unbind it first")),
            }
        }
        let (key, start) = (window.next_key(), bind.range.start as u64);
        let request = MwWr {
            addr: bind.region.address() + start,
            length: bind.range.len() as u64,
            mr_lkey: bind.region.lkey(),
            mw_rkey: window.key,
            rkey: key,
            access: bind.access.bits(),
        };
        self.post_window(op, bind.wr_id, wr_opcode::BIND_MW, bind.flags, request, window, Some(bind.region))?;
        let is_zero_based = bind.access.contains(AccessFlags::ZERO_BASED);
        window.key = key;
        window.state = State::Bound(Bound {
            region: bind.region.clone(),
            via: (window.kind == WindowType::Two).then(|| self.shared().clone()),
            remote: Remote { address: if is_zero_based { 0 } else { request.addr }, rkey: key },
        });
        Ok(())
    }

    /// Posts a signaled request that takes the window's key away: a local invalidate of type 2, a bind to nothing of type 1. When
    /// its completion is there, [`MemoryWindow::invalidated`] frees the window and its region; it can be
    /// bound by this queue pair at once.
    ///
    /// A window that is not bound is refused, and for that reason the crate has no request to invalidate just any
    /// key: rxe follows a null pointer when it invalidates a free window of type 2 (rxe_do_invalidate_mw, rxe_mw.c; seen on
    /// Linux 6.1 and 7.2). For the same reason the peer must not invalidate a key that this side unbinds.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a window that is not bound, or of type 2 by another queue pair, or
    /// of another protection domain; [`Unsupported`](ErrorKind::Unsupported) for a window of type 2 on a UC queue pair,
    /// which cannot invalidate: destroy the window; [`Exhausted`](ErrorKind::Exhausted) when the queue is full.
    /// Nothing is changed then.
    ///
    /// # Kernel
    /// rxe_invalidate_mw and rxe_bind_mw (rxe_mw.c, Linux 6.1).
    #[doc(alias = "ibv_wr_local_inv")]
    pub fn unbind(&mut self, window: &mut MemoryWindow, wr_id: u64) -> Result<()> {
        let op = "qp.unbind";
        self.same_domain(op, window)?;
        let State::Bound(bound) = &window.state else {
            return Err(Error::refused(op, Errno::EINVAL, "the window is not bound"));
        };
        let (mut key, mut request) = (window.key, MwWr::new_zeroed());
        let opcode = match window.kind {
            WindowType::Two if T::NUMBER != Rc::NUMBER => {
                let hint = "a UC queue pair cannot invalidate a window: destroy the window";
                return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
            }
            WindowType::Two if !bound.via.as_ref().is_some_and(|via| Arc::ptr_eq(via, self.shared())) => {
                return Err(Error::refused(op, Errno::EINVAL, "another queue pair has bound the window"));
            }
            WindowType::Two => wr_opcode::LOCAL_INV,
            WindowType::One => {
                key = window.next_key();
                request = MwWr { mw_rkey: window.key, rkey: key, ..request };
                wr_opcode::BIND_MW
            }
        };
        self.post_window(op, wr_id, opcode, SendFlags::SIGNALED, request, window, None)?;
        window.key = key;
        if let State::Bound(bound) = std::mem::take(&mut window.state) {
            window.state = State::Ending(bound);
        }
        Ok(())
    }

    fn same_domain(&self, op: &'static str, window: &MemoryWindow) -> Result<()> {
        if self.shared().pd().is_same(&window.pd) {
            return Ok(());
        }
        let hint = "the window and the queue pair are of different protection domains";
        Err(Error::refused(op, Errno::EINVAL, hint))
    }

    /// The request holds the regions that the window may be bound to while it is posted.
    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    fn post_window(
        &mut self,
        op: &'static str,
        wr_id: u64,
        opcode: u32,
        flags: SendFlags,
        request: MwWr,
        window: &MemoryWindow,
        region: Option<&MemoryRegion>,
    ) -> Result<()> {
        let mut wr = SendWr { wr_id, opcode, send_flags: flags.bits(), ..SendWr::new_zeroed() };
        if opcode == wr_opcode::LOCAL_INV {
            wr.ex = window.key;
        }
        let bytes = request.as_bytes();
        wr.wr[..bytes.len()].copy_from_slice(bytes);
        let old = match &window.state {
            State::Free => None,
            State::Bound(bound) | State::Ending(bound) => Some(&bound.region),
        };
        self.post_local(op, wr, region.into_iter().chain(old).cloned())
    }
}
