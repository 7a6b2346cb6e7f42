//! The binding of counters to flows.
//!
//! The first bind is when mlx5 takes a counter of the device. If there is none, the driver keeps an error in its place and
//! follows it as a pointer when the object is used again or destroyed (mlx5_ib_flow_counters_set_data and
//! mlx5_ib_destroy_counters, counters.c, Linux 6.1 to 7.3). So after a first bind that may have failed so, the kernel's
//! object is left alone, the device file stays open, and the next bind gets a new object: the points are kept here, and
//! nothing else was in it.
//!
//! The errno alone does not tell. The driver looks at the rule first, then copies the points from user space, and only then
//! takes the counter; and some of firmware's answers become EINVAL, as a rule that the driver refuses does. So after EINVAL
//! it is asked again, with points that cannot be copied: EFAULT says that the rule was good so far, and nothing was taken.

use nix::errno::Errno;

use super::{Binding, Counters, Kernel, create};
use crate::driver::{Points, RefusedBind};
use crate::kernel::error::{Error, ErrorKind, Result};

impl Counters {
    /// Creates a flow that counts here: `create` is given the handle, and what the device must be told of the points.
    /// `priority` is the rule's.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) when there are no points, and those of `create`.
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
                        // Not because the device has no place for any rule now.
                        && again(Points::UnreadableOfAnyRule) == Some(Errno::EFAULT as i32)
                }
                RefusedBind::Damaged => false,
            };
            if !is_harmless {
                kernel.object.abandon();
                // The kernel has destroyed the objects of a device that has gone.
                if error.kind() != ErrorKind::Disassociated {
                    context.abandon_counters();
                }
            }
        })
    }

    /// Destroys a flow that counts here. If that fails the counters stay bound.
    pub(crate) fn unbind(&self, destroy: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.context().is_here() {
            // A child of `fork` does not wait for a lock that a thread of its parent held: nothing is destroyed here anyway.
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
