//! A kernel object: its handle, and the only `Drop` that destroys one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids;
use uverbs_abi::write::ReregMrResp;

use crate::device::context::Context;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::mapping::Mapping;

/// The kind of object that a handle names, which determines how it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pd,
    Mr,
    Mw,
    Cq,
    Qp,
    Srq,
    Xrcd,
    Wq,
    IndirectionTable,
    Ah,
    Flow,
    Counters,
    /// An object of one driver: the name of the operation that destroys it, its object number, and the method.
    OfDriver(&'static str, u16, u16),
    CompletionCounter,
}

/// How an object is destroyed: the name of the operation, the method, and the size in bytes of the place for a count of events, if the
/// kernel requires one, otherwise zero.
///
/// The count is the number of events of the object that were read. A library that hands out pointers needs it to prevent dangling ones.
/// Here an event carries a number, so nothing has to wait; the kernel never does.
struct Destroy {
    op: &'static str,
    object: u16,
    method: u16,
    response: usize,
}

/// The attributes of a destroy method have the same ids for every object. Those of a driver's objects begin where its methods do.
const HANDLE: u16 = 0;
const RESPONSE: u16 = 1;
const DRIVER: u16 = 0x1000;

impl Kind {
    fn destroy(self) -> Destroy {
        use ids::{ah, counters, cq, flow, mr, mw, pd, qp, rwq_ind_tbl, srq, wq, xrcd};
        let (op, object, method, response) = match self {
            Self::Pd => ("pd.destroy", pd::OBJECT, pd::method::DESTROY, 0),
            Self::Mr => ("mr.destroy", mr::OBJECT, mr::method::DESTROY, 0),
            Self::Mw => ("mw.destroy", mw::OBJECT, mw::method::DESTROY, 0),
            Self::Cq => ("cq.destroy", cq::OBJECT, cq::method::DESTROY, 8),
            Self::Qp => ("qp.destroy", qp::OBJECT, qp::method::DESTROY, 4),
            Self::Srq => ("srq.destroy", srq::OBJECT, srq::method::DESTROY, 4),
            Self::Xrcd => ("xrcd.destroy", xrcd::OBJECT, xrcd::method::DESTROY, 0),
            Self::Wq => ("wq.destroy", wq::OBJECT, wq::method::DESTROY, 4),
            Self::IndirectionTable => {
                ("indirection_table.destroy", rwq_ind_tbl::OBJECT, rwq_ind_tbl::method::DESTROY, 0)
            }
            Self::Ah => ("ah.destroy", ah::OBJECT, ah::method::DESTROY, 0),
            Self::Flow => ("flow.destroy", flow::OBJECT, flow::method::DESTROY, 0),
            Self::Counters => ("counters.destroy", counters::OBJECT, counters::method::DESTROY, 0),
            Self::OfDriver(op, object, method) => (op, object, method, 0),
            Self::CompletionCounter => {
                use ids::comp_cntr;
                ("completion_counter.destroy", comp_cntr::OBJECT, comp_cntr::method::DESTROY, 0)
            }
        };
        Destroy { op, object, method, response }
    }
}

/// A kernel object. Nothing else in the crate destroys one.
///
/// The owner of an `Object` also owns its parents, in fields after it, so that the drop order is the order that the kernel requires.
#[derive(Debug)]
pub(crate) struct Object {
    context: Context,
    kind: Kind,
    id: u32,
    /// False after the kernel has released the handle, or if no command may be sent to release it.
    live: AtomicBool,
    /// Memory to which the device may write while the object exists. If the kernel never confirms the destruction, the memory is leaked on
    /// purpose.
    memory: Mutex<Vec<Mapping>>,
    /// The key of a region that is paged on demand, as which it may be named in advice.
    paged: Option<u32>,
    made: Moment,
}

/// A position in the order in which objects are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::AcqRel))
    }
}

impl Object {
    /// Takes ownership of a handle that the kernel has just created.
    pub(crate) fn new(context: &Context, kind: Kind, id: u32) -> Self {
        Self {
            context: context.clone(),
            kind,
            id,
            live: AtomicBool::new(true),
            memory: Mutex::default(),
            paged: None,
            made: Moment::now(),
        }
    }

    /// Keeps the memory to which the device may write while the object exists.
    pub(crate) fn holding(self, memory: Option<&Mapping>) -> Self {
        memory.into_iter().for_each(|memory| self.hold(memory));
        self
    }

    /// A region with this key that is paged on demand, if `is_so`.
    pub(crate) fn paged(mut self, is_so: bool, key: u32) -> Self {
        self.paged = is_so.then_some(key);
        if is_so {
            self.context.paged().add(key);
        }
        self
    }

    /// Changes the region by a command, which may give it other keys. No advice about it is under way meanwhile.
    pub(crate) fn change_region(
        &mut self,
        op: &'static str,
        change: impl FnOnce(&Context) -> Result<ReregMrResp>,
    ) -> Result<ReregMrResp> {
        let Some(key) = self.paged else { return change(&self.context) };
        self.context.check_origin(op)?;
        let leaving = self.context.paged().leave(key);
        let keys = change(&self.context)?;
        leaving.gone();
        self.context.paged().add(keys.lkey);
        self.paged = Some(keys.lkey);
        Ok(keys)
    }

    /// Keeps this memory too.
    pub(crate) fn hold(&self, memory: &Mapping) {
        self.held().push(memory.clone());
    }

    /// The device does not write to this memory any more.
    pub(crate) fn let_go(&self, memory: &Mapping) {
        self.held().retain(|held| held.address() != memory.address());
    }

    fn held(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_held(&self) -> Vec<Mapping> {
        std::mem::take(&mut *self.held())
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// A moment after the kernel created the object.
    pub(crate) fn made(&self) -> Moment {
        self.made
    }

    /// Whether the kernel still has it.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Destroys the object, or returns it with the error.
    pub(crate) fn destroy(mut self) -> Result<(), (Self, Error)> {
        match self.release() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, error)),
        }
    }

    /// Leaves the object to the kernel, which destroys it when the device file is closed, or to others who have its handle.
    pub(crate) fn abandon(&self) {
        self.live.store(false, Ordering::Release);
    }

    /// Destroys the object in place. A second call does nothing. A device that was removed has destroyed its objects, so that is success
    /// too.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.release_for_sure().or_else(|error| self.gone(error))
    }

    /// If the device was removed, the object is destroyed; any other error is returned.
    fn gone(&self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::Disassociated {
            return Err(error);
        }
        self.live.store(false, Ordering::Release);
        Ok(())
    }

    /// Destroys the object in place, and succeeds only if the kernel confirms that it is destroyed. A second call does nothing.
    pub(crate) fn release_for_sure(&mut self) -> Result<()> {
        self.release_into(&mut [0; 8])
    }

    /// Destroys the object in place as [`Object::release`] does, and returns the kernel's response: how many events of the object were
    /// read. The response is zeros if nothing was sent, or if the device was removed.
    #[cfg(feature = "raw")]
    pub(crate) fn release_reporting<T: zerocopy::FromBytes>(&mut self) -> Result<T> {
        self.release_before_drop()
    }

    /// Destroys an object in place to which others have references, and returns the kernel's response as [`Object::release_reporting`]
    /// does. Their owners drop it next.
    #[cfg(feature = "raw")]
    pub(crate) fn release_before_drop<T: zerocopy::FromBytes>(&self) -> Result<T> {
        let mut response = [0; 8];
        self.release_into(&mut response).or_else(|error| self.gone(error))?;
        Ok(T::read_from_prefix(&response).map_or_else(|_| T::new_zeroed(), |(answer, _)| answer))
    }

    /// Sends the command, and releases the memory once the kernel has confirmed it. A removed device confirms nothing: it may still write
    /// to the memory, because the kernel destroys its objects a little later.
    fn release_into(&self, response: &mut [u8; 8]) -> Result<()> {
        if !self.is_live() {
            return Ok(());
        }
        let how = self.kind.destroy();
        self.context.may_destroy(how.op)?;
        let attribute = HANDLE + (how.method & DRIVER);
        let mut command = Command::on(how.op, how.object, how.method, attribute, self.id);
        if how.response > 0 {
            command.output(RESPONSE, &mut response[..how.response]);
        }
        let leaving = self.paged.map(|key| self.context.paged().leave(key));
        self.context.invoke(&mut command)?;
        if let Some(leaving) = leaving {
            leaving.gone();
        }
        self.live.store(false, Ordering::Release);
        self.take_held();
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            // No caller is left to return the error to. The kernel destroys the object when the file is closed.
            #[cfg(feature = "tracing")]
            tracing::warn!(%error, id = self.id, "object left to the kernel");
            #[cfg(not(feature = "tracing"))]
            drop(error);
        }
        // The kernel has not confirmed that the object is destroyed.
        // Without the lock, which a thread of the parent may have held when this process was forked.
        std::mem::forget(std::mem::take(self.memory.get_mut().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// The error of a `destroy` if other handles share the object.
pub(crate) fn shared(op: &'static str, by: &'static str) -> Error {
    Error::refused(op, Errno::EBUSY, by)
}

#[cfg(all(test, feature = "soft"))]
mod tests;
