//! The binding of counters to flows.
//!
//! With the first bind, mlx5 takes a counter of the device. If there is none, the driver keeps an error in its place, and crashes
//! when it uses the object again (mlx5_ib_flow_counters_set_data and mlx5_ib_destroy_counters, counters.c, Linux 6.1 to 7.3). After a first bind that may have failed in this way, the kernel's object is therefore not used again, the device file stays
//! open, and the next bind gets a new object: the points are kept here, and the object contained nothing else.
//!
//! The errno alone does not show this. The driver checks the rule first, then copies the points from user space, and only then takes the
//! counter; and some answers of the firmware become EINVAL, like a rule that the driver refuses. After EINVAL, the flow is therefore
//! requested again with points at an invalid address: EFAULT means that the rule was accepted so far, and no counter was taken.

use nix::errno::Errno;

use super::{Binding, Counters, Kernel, create};
use crate::driver::{Points, RefusedBind};
use crate::kernel::error::{Error, ErrorKind, Result};

impl Counters {
    /// Creates a flow that counts here. `create_flow` gets the handle of the counters, and the points in the form that the device
    /// needs. `priority` is that of the rule.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if there are no points, and the errors of `create_flow`.
    pub(crate) fn bind<T>(
        &self,
        priority: u16,
        create_flow: impl Fn(u32, Points<'_>) -> Result<T>,
    ) -> Result<T> {
        self.context().check_origin("flow.create")?;
        let mut binding = self.binding();
        let made = if binding.flows > 0 {
            let handle = self.kernel().object.id();
            create_flow(handle, Points::Known)?
        } else {
            let highest = binding.points.iter().map(|point| point.index as usize + 1).max();
            if highest.is_none() {
                return Err(Error::refused(
                    "flow.create",
                    Errno::EINVAL,
                    "attach a point to the counters first",
                ));
            }
            let mut kernel = self.kernel_alone();
            let made = self.first(&binding, &mut kernel, priority, create_flow)?;
            kernel.slots = highest;
            made
        };
        binding.allocated = true;
        binding.flows += 1;
        Ok(made)
    }

    /// Creates the first flow.
    fn first<T>(
        &self,
        binding: &Binding,
        kernel: &mut Kernel,
        priority: u16,
        create_flow: impl Fn(u32, Points<'_>) -> Result<T>,
    ) -> Result<T> {
        let context = self.context();
        if !binding.allocated {
            context.may_abandon_counters("flow.create")?;
        }
        if !kernel.object.is_live() {
            kernel.object = create(context)?;
        }
        let handle = kernel.object.id();
        create_flow(handle, Points::First(&binding.points)).inspect_err(|error| {
            if binding.allocated {
                return;
            }
            let again = |points| create_flow(handle, points).err().and_then(|error| error.errno());
            let is_harmless = match context.driver().refused_bind(error, priority) {
                RefusedBind::Harmless => true,
                RefusedBind::AskAgain => {
                    again(Points::Unreadable) == Some(Errno::EINVAL as i32)
                        // Not because the device has no place for any rule at the moment.
                        && again(Points::UnreadableOfAnyRule) == Some(Errno::EFAULT as i32)
                }
                RefusedBind::Damaged => false,
            };
            if !is_harmless {
                kernel.object.abandon();
                // If the device was removed, the kernel has destroyed its objects.
                if error.kind() != ErrorKind::Disassociated {
                    context.abandon_counters();
                }
            }
        })
    }

    /// Destroys a flow that counts here. If that fails, the counters stay bound.
    pub(crate) fn unbind(&self, destroy: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.context().is_here() {
            // A child of `fork` must not wait for a lock that a thread of its parent held. Nothing is destroyed there anyway.
            return destroy();
        }
        let mut binding = self.binding();
        if binding.flows == 1 {
            let mut kernel = self.kernel_alone();
            match &binding.snapshot {
                Some(snapshot) => snapshot.refresher().end_with(destroy)?,
                None => destroy()?,
            }
            binding.snapshot = None;
            kernel.slots = None;
        } else {
            destroy()?;
        }
        binding.flows = binding.flows.saturating_sub(1);
        Ok(())
    }
}
