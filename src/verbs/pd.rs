//! Protection domains.

use std::sync::Arc;

use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
#[cfg(feature = "raw")]
use uverbs_abi::ids::pd;
use uverbs_abi::write::{AllocPd, AllocPdResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};

/// A protection domain: it creates memory regions and queue pairs, which work together only within one domain. Created by
/// [`Context::alloc_pd`].
///
/// Cheap to clone; deallocated when the last clone and the last object in it are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain(Arc<Domain>);

#[derive(Debug)]
struct Domain {
    object: Object,
    /// The driver's number, if it returned one.
    #[cfg(feature = "raw")]
    number: u32,
}

impl Context {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) when the device has no more.
    ///
    /// # Kernel
    /// `ALLOC_PD` through `INVOKE_WRITE` (ib_uverbs_alloc_pd, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain> {
        let request = AllocPd::default();
        let mut response = AllocPdResp::new_zeroed();
        // Several drivers return their own number of the domain, in at most eight bytes, and need a place for it.
        let mut driver = [0; 8];
        let mut command = Command::write("pd.alloc", cmd::ALLOC_PD);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        if self.driver().numbers_domains() {
            command.driver_output(&mut driver);
        }
        self.invoke(&mut command)?;
        Ok(ProtectionDomain(Arc::new(Domain {
            object: Object::new(self, Kind::Pd, response.pd_handle),
            #[cfg(feature = "raw")]
            number: u32::from_ne_bytes([driver[0], driver[1], driver[2], driver[3]]),
        })))
    }
}

#[cfg(feature = "raw")]
impl Context {
    /// A domain that somebody else has allocated in the kernel's context which both use: see [`Context::import`]. Dropping or destroying it
    /// deallocates the kernel's domain, unless it was [left](ProtectionDomain::leave).
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) if there is no domain with this handle; [`Unsupported`](crate::ErrorKind::Unsupported) for
    /// drivers other than mlx5.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_PD_QUERY` (mlx5/std_types.c, Linux 6.1).
    #[doc(alias = "ibv_import_pd")]
    pub fn import_pd(&self, handle: u32) -> Result<ProtectionDomain> {
        let op = "pd.import";
        let Some([method, domain, told]) = self.driver().tells_number() else {
            return Err(self.driver().lacking(op, "has no protection domains that others can use"));
        };
        let mut number = 0_u32;
        let mut command = Command::on(op, pd::OBJECT, method, domain, handle);
        command.output(told, number.as_mut_bytes());
        self.invoke(&mut command)?;
        Ok(ProtectionDomain(Arc::new(Domain { object: Object::new(self, Kind::Pd, handle), number })))
    }
}

impl ProtectionDomain {
    /// The open device to which the domain belongs.
    pub fn context(&self) -> &Context {
        self.0.object.context()
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.object.id()
    }

    /// Deallocates the domain and reports any error.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a clone, a memory region or window, or a queue pair uses it.
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn destroy(self) -> Result<(), (Self, Error)> {
        let domain = Arc::try_unwrap(self.0).map_err(|shared| {
            let hint = "a clone, or an object that was made in it, still uses the protection domain";
            (Self(shared), object::shared("pd.destroy", hint))
        })?;
        #[cfg(feature = "raw")]
        let number = domain.number;
        domain.object.destroy().map_err(|(object, error)| {
            let domain = Domain {
                object,
                #[cfg(feature = "raw")]
                number,
            };
            (Self(Arc::new(domain)), error)
        })
    }
}

#[cfg(feature = "raw")]
impl ProtectionDomain {
    /// The kernel's handle of the domain.
    pub fn handle(&self) -> u32 {
        self.id()
    }

    /// Deallocates the kernel's domain, also if clones of this one are left, which are of no use then.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while an object of the kernel is in it.
    pub fn deallocate(&self) -> Result<()> {
        self.0.object.release_before_drop::<u32>().map(drop)
    }

    /// Leaves the kernel's domain to others who have its handle: it is not deallocated when this one is dropped.
    #[doc(alias = "ibv_unimport_pd")]
    pub fn leave(&self) {
        self.0.object.abandon();
    }

    /// The number of the domain in the device, if the driver returned one (mlx5); otherwise zero.
    pub fn number(&self) -> u32 {
        self.0.number
    }
}
