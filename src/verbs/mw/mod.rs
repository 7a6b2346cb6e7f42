//! Memory windows: access rights to parts of a memory region, granted and revoked without registering memory again.

#[cfg_attr(not(feature = "raw"), expect(unreachable_pub, dead_code))]
pub(crate) mod window;

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::types::{AccessFlags, SendFlags, WcFlags};

use self::window::Window;
use crate::completion_counter::{Seen, Watch};
use crate::device::object::{self, Moment};
use crate::driver::completion::Completion;
use crate::driver::request::{Binding, Opcode};
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::verbs::mr::{MemoryRegion, meant};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::qp::{self, QpType, QueuePair, Rc, Remote, Uc};

/// The type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mw_type")]
pub enum WindowType {
    /// Any queue pair of the protection domain can use it, and can bind it again while it is bound. Its keys cannot be
    /// invalidated.
    #[doc(alias = "IBV_MW_TYPE_1")]
    One,
    /// Only the queue pair that bound it can use it (type 2B). The peer can invalidate its key. Before it is bound again, it must
    /// be invalidated or [released](MemoryWindow::release).
    #[doc(alias = "IBV_MW_TYPE_2")]
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

/// A memory window: a remote key for a part of a [`MemoryRegion`], with its own access rights. Created by
/// [`ProtectionDomain::alloc_window`].
///
/// A request in the send queue ([`QueuePair::bind`]) binds it to memory. Every bind gives it another key, so a peer's old key
/// becomes invalid. Until the crate learns that the window is not bound any more, the window keeps its region alive, and a window
/// of type 2 also its queue pair.
///
/// Polled completions show that the peer has invalidated the key (type 2), and that a bind has failed or was flushed (both types);
/// any thread may poll them. The completion of a bind is identified by the number of its request, so use a distinct number for each
/// bind. [`MemoryWindow::remote`] then returns `None`, and the next bind first restores the window.
///
/// ```
/// use uverbs::{AccessFlags, Bind, WindowType};
/// # fn main() -> uverbs::Result<()> {
/// # let context = uverbs::SoftDevice::default().open()?;
/// # let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(4)?);
/// # let mut qp = pd.rc(&cq).create()?;
/// # let options = uverbs::ConnectionOptions::new(1, 0);
/// # let me = qp.endpoint(&options, 0)?;
/// # qp.connect(&options, &me, &me)?;
/// let region = pd.register(4096, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
/// let mut window = pd.alloc_window(WindowType::Two)?;
/// assert_eq!(window.remote(), None);
/// qp.bind(&mut window, Bind::new(1, &region, 1024..2048).access(AccessFlags::REMOTE_READ).signaled())?;
/// let told_to_the_peer = window.remote().unwrap();
/// assert_eq!(told_to_the_peer.address, region.address() + 1024);
/// while cq.poll(&mut uverbs::Completion::batch::<1>()) == 0 {}
/// window.release()?;
/// assert_eq!(window.remote(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    window: Window,
    /// A moment before the kernel created it.
    asked: Moment,
    kind: WindowType,
    /// The key of the window after all requests that were posted so far.
    key: u32,
    /// For type 2: the key of the window when it was last not bound, which is its current key if it is not bound now.
    free: u32,
    /// The state that completions report for the last request.
    watch: Option<Watch>,
    bound: Option<Bound>,
}

/// What the device may access through the window.
#[derive(Debug)]
struct Bound {
    region: MemoryRegion,
    /// The queue pair that bound a window of type 2. rxe counts the window as a user of the queue pair. When the queue pair is destroyed,
    /// rxe waits 50 seconds for this to end, and then destroys it all the same (rxe_do_bind_mw, rxe_mw.c; __rxe_cleanup, rxe_pool.c,
    /// Linux 6.1 to 7.3).
    _via: Option<Arc<qp::QueuePairCore>>,
    /// The address and key for the peer.
    remote: Remote,
}

/// The parameters of a bind.
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
    /// Binds to this part of a region, which must have been registered with [`AccessFlags::MW_BIND`]. The completion contains
    /// `wr_id`.
    pub fn new(wr_id: u64, region: &'a MemoryRegion, range: impl RangeBounds<usize>) -> Self {
        let range = meant(range, region.len());
        Self { wr_id, region, range, access: AccessFlags::empty(), flags: SendFlags::empty() }
    }

    /// The access rights of the peer: remote read, write and atomic operations; default none.
    #[must_use]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access |= access;
        self
    }

    /// The first byte has address zero for the peer; only for windows of type 2.
    #[must_use]
    pub fn zero_based(mut self) -> Self {
        self.access |= AccessFlags::ZERO_BASED;
        self
    }

    /// Reports success with a completion; failure is always reported.
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

    /// Refuses binds that would move the queue pair to the error state (rxe_check_bind_mw, rxe_mw.c, Linux 6.1), and errors that
    /// the device does not detect: rxe does not check the region's protection domain.
    fn check(&self, op: &'static str, window: &MemoryWindow) -> Result<()> {
        let (region, has) = (self.region.access(), |access| self.access.intersects(access));
        let remote = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let writes = has(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC);
        let why = if !self.region.is_in(window.pd()) {
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
            let given = format!("{}..{}", self.range.start, self.range.end);
            return Err(Error::outside(op, "range of the window", given, "at least one byte"));
        } else {
            return self.region.inside(op, self.range.start, self.range.len());
        };
        Err(Error::refused(op, Errno::EINVAL, why))
    }
}

impl ProtectionDomain {
    /// Creates a memory window that is not bound.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the driver has no memory windows; [`Exhausted`](ErrorKind::Exhausted) if the
    /// device has no more.
    ///
    /// # Kernel
    /// `ALLOC_MW` through `INVOKE_WRITE` (ib_uverbs_alloc_mw, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_window(&self, kind: WindowType) -> Result<MemoryWindow> {
        let asked = Moment::now();
        let window = Window::new(self, kind.number()).map_err(|error| {
            error.hinted_if(ErrorKind::Unsupported, "the driver has no memory windows, or none of this type")
        })?;
        let key = window.rkey();
        if kind == WindowType::Two {
            self.context().window_keys().add(key, self.context(), None);
        }
        Ok(MemoryWindow { window, asked, kind, key, free: key, watch: None, bound: None })
    }
}

impl MemoryWindow {
    /// Its type.
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The key for the peer, which is valid when the bind has been executed; `None` if the window is not bound.
    pub fn rkey(&self) -> Option<u32> {
        self.remote().map(|remote| remote.rkey)
    }

    /// The address and key of the window's first byte for the peer, which are valid when the bind has been executed; `None` if the
    /// window is not bound.
    ///
    /// A bind is executed before all later requests of the same queue pair, so the message that informs the peer may be posted
    /// immediately.
    pub fn remote(&self) -> Option<Remote> {
        let seen = |what: fn(&Seen) -> bool| self.watch.as_ref().is_some_and(|watch| what(watch.seen()));
        let is_over = seen(Seen::invalidated) || seen(Seen::failed);
        self.bound.as_ref().filter(|_| !is_over).map(|bound| bound.remote)
    }

    /// Whether this polled completion reports that the peer has invalidated the key of this window of type 2: a receive with the
    /// flag [`WITH_INVALIDATE`](crate::WcFlags::WITH_INVALIDATE). If so, the window releases its region and its queue pair. Even
    /// without this call, the window is not bound any more once the completion was polled.
    pub fn invalidated(&mut self, completion: &Completion) -> bool {
        let of = self.bound.as_ref().filter(|_| completion.flags.contains(WcFlags::WITH_INVALIDATE));
        of.is_some_and(|bound| bound.remote.rkey == completion.immediate) && self.settle()
    }

    /// Invalidates every key of the window, whatever its state: the kernel creates a new window and destroys the old one. The
    /// window releases its region and its queue pair, and can be bound again immediately. A bind of it that is still posted
    /// fails.
    ///
    /// Use it to revoke a window of type 2 if the peer does not invalidate it. A local invalidate would do this in order with
    /// other requests, but together with what the peer may do, rxe's driver does not survive it (rxe_do_invalidate_mw, rxe_mw.c, Linux 6.1
    /// to 7.3), which this side cannot prevent. The crate therefore has no local
    /// invalidate.
    ///
    /// # Errors
    /// As [`ProtectionDomain::alloc_window`], and those of the kernel for the destruction; the window is unchanged.
    ///
    /// # Kernel
    /// `ALLOC_MW` through `INVOKE_WRITE`, and `UVERBS_METHOD_MW_DESTROY` (rxe_alloc_mw and rxe_mw_cleanup, rxe_mw.c, Linux 6.1).
    #[doc(alias = "ibv_wr_local_inv")]
    pub fn release(&mut self) -> Result<()> {
        let mut other = self.pd().alloc_window(self.kind)?;
        self.window.release()?;
        // After the swap, `other` is the old window, which the kernel has already destroyed.
        std::mem::swap(self, &mut other);
        other.let_go();
        Ok(())
    }

    /// Destroys the window, bound or not, and reports any error. A bind of it that is still posted fails.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_MW_DESTROY` (uverbs_std_types.c, Linux 6.1).
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        match self.window.release() {
            Ok(()) => {
                self.let_go();
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    fn pd(&self) -> &ProtectionDomain {
        &self.window.pd
    }

    /// The key after the next bind: only its low byte can be chosen.
    fn next_key(&self) -> u32 {
        (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff)
    }

    /// Marks the window as not bound if the peer has invalidated its key. Returns whether it has.
    fn settle(&mut self) -> bool {
        let is_over = self.watch.as_ref().is_some_and(|watch| watch.seen().invalidated());
        if is_over {
            self.set_free(Some(self.key));
            self.let_go();
        }
        is_over
    }

    /// Whether it is unknown if the last request was executed.
    fn is_unknown(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.seen().failed())
    }

    /// Marks the window as not bound.
    fn let_go(&mut self) {
        self.watch = None;
        self.bound = None;
    }

    /// Records the key that a window of type 2 has while it is not bound; `None` if the window was destroyed.
    fn set_free(&mut self, key: Option<u32>) {
        let context = self.pd().context();
        if self.kind == WindowType::Two && context.is_here() {
            let keys = context.window_keys();
            keys.remove(self.free, context);
            if self.key != self.free {
                keys.remove(self.key, context);
            }
            key.iter().for_each(|key| keys.add(*key, context, None));
        }
        self.free = key.unwrap_or(self.free);
    }

    /// Makes the kernel create the window again if this one cannot be bound by that queue pair.
    ///
    /// There are two cases. The window may have another key than the stored one. Or it is of type 2 and older than the queue pair: a
    /// process that ends leaves its objects to the kernel, which destroys the newest first, and rxe would wait 50 seconds for a queue
    /// pair with such a window and then free it while the window still refers to it (__uverbs_cleanup_ufile, rdma_core.c; __rxe_cleanup,
    /// rxe_pool.c; Linux 6.1 to 7.3).
    fn renew_for(&mut self, via: &qp::QueuePairCore) -> Result<()> {
        let is_older = self.kind == WindowType::Two && self.asked < via.object().made();
        if is_older || self.is_unknown() { self.release() } else { Ok(()) }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let released = self.window.release();
        self.set_free(None);
        if released.is_err() {
            // The kernel may still treat the window as bound, so its region and its queue pair are kept for ever.
            std::mem::forget(self.bound.take());
        }
    }
}

/// Types of queue pair that can bind memory windows: RC and UC.
pub trait Binds: QpType {}

impl Binds for Rc {}
impl Binds for Uc {}

impl<T: Binds> QueuePair<T> {
    /// Posts a request that binds a window. From now on [`MemoryWindow::remote`] returns the address and key for the peer.
    ///
    /// The bind of a window of type 1 replaces an earlier one, whose key becomes invalid. Bind it with only one queue pair, or
    /// wait for the completion before another queue pair binds it. If the bind fails with
    /// [`WindowBind`](crate::Status::WindowBind) or is flushed, the window's key is no longer known: after that completion is
    /// polled, the window is not bound, and the next bind creates it again ([`MemoryWindow::release`]). Resetting or destroying
    /// the queue pair has the same effect on binds whose success was not polled. A window of type 2 that is older than the queue
    /// pair is also created again.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) for a window of type 2 that is bound; [`InvalidInput`](ErrorKind::InvalidInput) for a bind that
    /// the device would refuse (a region without `MW_BIND`, more rights than the region has, a range that exceeds the region,
    /// different protection domains, a zero-based window of type 1) or a queue pair that is not ready to send;
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue is full. The window is unchanged then. Those of [`MemoryWindow::release`]
    /// if the window is created again.
    ///
    /// # Kernel
    /// rxe_bind_mw (rxe_mw.c, Linux 6.1).
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "ibv_wr_bind_mw")]
    #[doc(alias = "ibv_inc_rkey")]
    pub fn bind(&mut self, window: &mut MemoryWindow, bind: Bind<'_>) -> Result<()> {
        let op = "qp.bind";
        // Before any lock is taken.
        self.shared().object().context().check_origin(op)?;
        self.same_domain(op, window)?;
        bind.check(op, window)?;
        window.settle();
        if window.kind == WindowType::Two && window.bound.is_some() && !window.is_unknown() {
            let hint = "the window is bound: let the peer invalidate its key and poll that completion, or release the window";
            return Err(object::shared(op, hint));
        }
        window.renew_for(self.shared())?;
        let start = bind.range.start as u64;
        let request = Binding {
            addr: bind.region.address() + start,
            length: bind.range.len() as u64,
            lkey: bind.region.lkey(),
            rkey: window.key,
            new_rkey: window.next_key(),
            access: bind.access.bits(),
            is_type_1: window.kind == WindowType::One,
        };
        let region = Some(bind.region);
        self.post_window(op, bind.wr_id, bind.flags, request, window, region)?;
        let is_zero_based = bind.access.contains(AccessFlags::ZERO_BASED);
        window.bound = Some(Bound {
            region: bind.region.clone(),
            _via: (window.kind == WindowType::Two).then(|| self.shared().clone()),
            remote: Remote { address: if is_zero_based { 0 } else { request.addr }, rkey: request.new_rkey },
        });
        Ok(())
    }

    /// Posts a signaled request that invalidates the key of a window of type 1: a bind of length zero. The region is released
    /// when the request's slot in the queue is used again; the window can be bound again immediately.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a window that is not bound, or of another protection domain;
    /// [`Unsupported`](ErrorKind::Unsupported) for a window of type 2, for which use [`release`](MemoryWindow::release);
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue is full. The window is unchanged then.
    ///
    /// # Kernel
    /// rxe_bind_mw (rxe_mw.c, Linux 6.1).
    pub fn unbind(&mut self, window: &mut MemoryWindow, wr_id: u64) -> Result<()> {
        let op = "qp.unbind";
        self.shared().object().context().check_origin(op)?;
        self.same_domain(op, window)?;
        if window.kind == WindowType::Two {
            let hint = "a window of type 2 is not unbound by a request: release it, or let the peer invalidate its key";
            return Err(Error::refused(op, Errno::EOPNOTSUPP, hint));
        }
        if window.remote().is_none() {
            let hint = match window.is_unknown() {
                true => "the last bind may have failed: release the window",
                false => "the window is not bound",
            };
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let request =
            Binding { rkey: window.key, new_rkey: window.next_key(), is_type_1: true, ..Binding::default() };
        self.post_window(op, wr_id, SendFlags::SIGNALED, request, window, None)?;
        window.bound = None;
        Ok(())
    }

    fn same_domain(&self, op: &'static str, window: &MemoryWindow) -> Result<()> {
        if self.shared().pd().is_some_and(|pd| pd.is_same(window.pd())) {
            return Ok(());
        }
        let hint = "the window and the queue pair are of different protection domains";
        Err(Error::refused(op, Errno::EINVAL, hint))
    }

    /// Posts a request for a window. It keeps the regions to which the window may be bound meanwhile: the new one and the previous
    /// one.
    fn post_window(
        &mut self,
        op: &'static str,
        wr_id: u64,
        flags: SendFlags,
        request: Binding,
        window: &mut MemoryWindow,
        region: Option<&MemoryRegion>,
    ) -> Result<()> {
        let old = window.bound.as_ref().map(|bound| &bound.region);
        let watch = self.shared().watch(wr_id, request.new_rkey);
        let is_two = window.kind == WindowType::Two;
        let (keys, context) = (window.pd().context().window_keys(), window.pd().context());
        if is_two {
            keys.add(request.new_rkey, context, Some(watch.seen().invalidation()));
        }
        self.post_local(op, wr_id, flags, Opcode::Bind(request), region.into_iter().chain(old).cloned())
            .inspect_err(|_| {
                if is_two {
                    keys.remove(request.new_rkey, context);
                }
            })?;
        (window.key, window.watch) = (request.new_rkey, Some(watch));
        Ok(())
    }
}
