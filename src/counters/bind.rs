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
use uverbs_abi::mlx5::FlowCountersDesc;

use super::{Binding, Counters, Kernel, create};
use crate::error::{Error, ErrorKind, Result};

/// What the driver is told of the counters with a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Points<'a> {
    /// Nothing: the device has the points.
    Known,
    /// The points, with the first flow.
    First(&'a [FlowCountersDesc]),
    /// Points that cannot be copied, so that no flow comes of it.
    Unreadable,
    /// The same, with a rule that matches no header.
    UnreadableOfAnyRule,
}

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
            if binding.allocated || is_harmless(error, priority) {
                return;
            }
            let again = |points| create_flow(handle, points).err().and_then(|error| error.errno());
            let is = |errno: Option<i32>, expected: Errno| errno == Some(expected as i32);
            let was_the_rule = is(error.errno(), Errno::EINVAL)
                && is(again(Points::Unreadable), Errno::EINVAL)
                // Not because the device has no place for any rule now.
                && is(again(Points::UnreadableOfAnyRule), Errno::EFAULT);
            if !was_the_rule {
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

/// The last priority that mlx5 has (`MLX5_IB_FLOW_LAST_PRIO`, mlx5_ib.h, Linux 6.1): above it, ENOMEM comes before anything is
/// looked at (mlx5_ib_create_flow, fs.c).
pub(crate) const LAST_PRIORITY: u16 = 15;

/// Whether an error of the first bind is none of the allocation of the device's counter: the core and the driver, before it
/// gets there and after, have numbers that firmware does not have (cmd_status_to_err, cmd.c, Linux 6.1 and 7.3).
fn is_harmless(error: &Error, priority: u16) -> bool {
    let never = [
        Errno::EFAULT,
        Errno::EOPNOTSUPP,
        Errno::EPROTONOSUPPORT,
        Errno::EPERM,
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENOSPC,
    ];
    let is = |errno: Errno| error.errno() == Some(errno as i32);
    never.into_iter().any(is) || (is(Errno::ENOMEM) && priority > LAST_PRIORITY)
}
