//! Counters: points, reads, and their binding to flows.
//!
//! A counters object is bound while at least one flow counts into it. The points are sent to the device
//! with the first of these flows, and are fixed until the last one is gone (mlx5_ib_flow_counters_set_data,
//! counters.c, Linux 6.1).
//!
//! No read may reach the kernel while the first flow is being bound or the last one unbound: mlx5's driver does not keep them apart,
//! and can crash (observed on Linux 6.1 and 7.2). Reads are therefore separated
//! from these two operations here. [`Counters::read`] takes a shared guard, which these two operations take exclusively. A
//! [`Reader`] needs no guard, because it keeps a flow alive. A [`Snapshot`] keeps none: the last unbind waits for its read of the
//! device to end, and ends the snapshot.
//!
//! `bind.rs` handles what a failed first bind may leave behind.

mod bind;
mod cached;
pub(crate) mod clock;
mod latch;
mod rates;
mod reader;
pub(crate) mod refresh;
mod sampler;
mod snapshot;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nix::errno::Errno;
use uverbs_abi::ids::counters::{self, create};
use uverbs_abi::types::{ReadCountersFlags, counter_description};

pub use self::cached::{Cached, Seen, Stamp};
pub use self::rates::Rates;
pub use self::reader::Reader;
pub(crate) use self::refresh::{Publisher, Refresher, Source};
pub use self::sampler::{Sampler, SamplerReport, SamplerThread, Tick};
pub use self::snapshot::Snapshot;
use crate::device::context::Context;
use crate::device::object::{self, Kind, Object};
use crate::driver::PointData;
use crate::kernel::command::{Command, CountersRead, MAX_VALUES};
use crate::kernel::error::{Error, ErrorKind, Result};

/// What a counter counts.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_counter_description")]
pub enum Point {
    /// Packets.
    #[doc(alias = "IBV_COUNTER_PACKETS")]
    Packets,
    /// Bytes of these packets. On the soft device, bytes of the whole frame without its FCS.
    #[doc(alias = "IBV_COUNTER_BYTES")]
    Bytes,
}

impl From<Point> for u32 {
    fn from(point: Point) -> Self {
        match point {
            Point::Packets => counter_description::PACKETS,
            Point::Bytes => counter_description::BYTES,
        }
    }
}

impl TryFrom<u32> for Point {
    type Error = Error;

    /// The point with this number of the kernel; any other number is [`ErrorKind::Unsupported`].
    fn try_from(description: u32) -> Result<Self> {
        match description {
            counter_description::PACKETS => Ok(Self::Packets),
            counter_description::BYTES => Ok(Self::Bytes),
            _ => Err(Error::refused(
                "counters.attach",
                Errno::EOPNOTSUPP,
                "only packets and bytes can be counted",
            )),
        }
    }
}

/// Values that flows count into: packets and bytes. [`attach`](Self::attach) assigns what is counted to an index, and
/// [`read`](Self::read) returns the values by index.
///
/// For repeated reads, use a [`Reader`](crate::Reader) ([`Flow::reader`](crate::Flow::reader)) or a
/// [`Snapshot`](crate::Snapshot), which caches the values.
///
/// Cheap to clone; destroyed when the last clone and the last flow that counts into it are gone. If the first flow is refused,
/// possibly because the device had no free counter, the next flow uses a new kernel object. The crate then never uses the old one
/// again, and keeps the device file open until the process ends ([`create_flow`](crate::QueuePair::create_flow) explains why).
///
/// ```
/// use uverbs::{Eth, FlowRule, Point, SoftDevice};
/// # fn main() -> uverbs::Result<()> {
/// let device = SoftDevice::default();
/// let context = device.open()?;
/// let cq = context.create_cq(16)?;
/// let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
///
/// let counters = context.create_counters()?;
/// counters.attach(Point::Packets, 0)?;
/// counters.attach(Point::Bytes, 1)?;
/// let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, 1])).count(&counters);
/// let flow = qp.create_flow(&rule)?;
///
/// let mut frame = [0; 60];
/// frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
/// device.inject(&frame);
///
/// let mut values = [0; 2];
/// counters.read(&mut values)?;
/// assert_eq!(values, [1, 60]);
/// # drop(flow);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_counters")]
pub struct Counters(Arc<CountersCore>);

#[derive(Debug)]
struct CountersCore {
    context: Context,
    /// Held while a flow is created or destroyed, and while a point is attached. Before this lock and the next one, the context is
    /// checked for its owner: a child of `fork` must not wait for them.
    binding: Mutex<Binding>,
    /// Shared by reads, exclusive to the first bind and the last unbind.
    kernel: RwLock<Kernel>,
}

/// The kernel's side of the counters.
#[derive(Debug)]
struct Kernel {
    /// Abandoned after the first bind has failed; the next bind creates another.
    object: Object,
    /// Number of values for which a read must have room; `None` while no flow uses the counters.
    slots: Option<usize>,
}

#[derive(Debug, Default)]
struct Binding {
    points: Vec<PointData>,
    /// Flows that count into the object.
    flows: usize,
    /// Whether a flow was ever bound to the kernel's object, so that the device's counter exists.
    allocated: bool,
    /// The cache, from its first request until the last flow is destroyed.
    snapshot: Option<Snapshot>,
}

impl Drop for CountersCore {
    fn drop(&mut self) {
        // It still exists if a flow could not be destroyed.
        let binding = self.binding.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = binding.snapshot.take() {
            snapshot.end();
        }
    }
}

impl Context {
    /// Creates a counters object, with all values zero and no points.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the driver has no counters. Of the kernel's drivers, only mlx5 has them.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_COUNTERS_CREATE` (uverbs_std_types_counters.c, Linux 6.1).
    #[doc(alias = "ibv_create_counters")]
    #[doc(alias = "ibv_counters_init_attr")]
    pub fn create_counters(&self) -> Result<Counters> {
        let kernel = Kernel { object: create(self)?, slots: None };
        let inner =
            CountersCore { context: self.clone(), binding: Mutex::default(), kernel: RwLock::new(kernel) };
        Ok(Counters(Arc::new(inner)))
    }
}

fn create(context: &Context) -> Result<Object> {
    let mut command = Command::new("counters.create", counters::OBJECT, counters::method::CREATE);
    command.new_handle(create::HANDLE);
    context.invoke(&mut command).map_err(|error| {
        let hint = format!("the driver {} has no flow counters", context.device().driver());
        error.hinted_if(ErrorKind::Unsupported, hint)
    })?;
    Ok(Object::new(context, Kind::Counters, command.new_handle_of(create::HANDLE)?))
}

impl Counters {
    pub(crate) fn context(&self) -> &Context {
        &self.0.context
    }

    #[inline]
    fn kernel(&self) -> RwLockReadGuard<'_, Kernel> {
        self.0.kernel.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn kernel_alone(&self) -> RwLockWriteGuard<'_, Kernel> {
        self.0.kernel.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn binding(&self) -> MutexGuard<'_, Binding> {
        self.0.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches `point` to the value at `index`. Values start at zero. If several points have the same index, their counts are
    /// added.
    ///
    /// This sends no command: the points are sent with the first flow.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a flow uses the counters. [`InvalidInput`](ErrorKind::InvalidInput) for an index above
    /// 8190, the highest that a read can return (for some higher ones mlx5 writes outside its memory), and for more than 8191
    /// points.
    #[doc(alias = "ibv_attach_counters_point_flow")]
    #[doc(alias = "ibv_counter_attach_attr")]
    pub fn attach(&self, point: Point, index: u32) -> Result<()> {
        let op = "counters.attach";
        self.context().check_origin(op)?;
        let mut binding = self.binding();
        if binding.flows > 0 {
            let hint = "a flow uses these counters; attach before the first flow or after the last";
            return Err(Error::refused(op, Errno::EBUSY, hint));
        }
        if index as usize >= MAX_VALUES {
            return Err(Error::beyond(op, "index of a value", index, MAX_VALUES - 1));
        }
        if binding.points.len() == MAX_VALUES {
            return Err(Error::beyond(op, "points of the counters", MAX_VALUES + 1, MAX_VALUES));
        }
        binding.points.push(PointData { description: point.into(), index });
        Ok(())
    }

    /// Reads all values from the device into `values`, by index; values without a point are zero.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) while no flow uses the counters, and if `values` has no room for the highest
    /// index.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_COUNTERS_READ` (uverbs_std_types_counters.c, Linux 6.1); on mlx5 one firmware command.
    #[doc(alias = "ibv_read_counters")]
    pub fn read(&self, values: &mut [u64]) -> Result<()> {
        self.read_with(values, ReadCountersFlags::empty())
    }

    /// Reads all values, passing flags to the driver.
    ///
    /// [`PREFER_CACHED`](ReadCountersFlags::PREFER_CACHED) requests values from the driver's cache. No driver has a cache (mlx5
    /// of Linux 6.1 to 7.2 accepts the flag and ignores it), so cost and result are those of [`Counters::read`].
    /// [`Snapshot`](crate::Snapshot) is a cache in user space.
    ///
    /// # Errors
    /// As [`Counters::read`].
    #[doc(alias = "ibv_read_counters")]
    #[doc(alias = "ibv_read_counters_flags")]
    #[doc(alias = "IBV_READ_COUNTERS_ATTR_PREFER_CACHED")]
    pub fn read_with(&self, values: &mut [u64], flags: ReadCountersFlags) -> Result<()> {
        let op = "counters.read";
        self.context().check_origin(op)?;
        let kernel = self.kernel();
        let Some(needed) = kernel.slots else {
            return Err(Error::refused(
                op,
                Errno::EINVAL,
                "no flow uses these counters: create a flow that counts into them first",
            ));
        };
        check_slots(op, values.len(), needed)?;
        // The kernel accepts no more, and there are no further values.
        let (values, rest) = values.split_at_mut(values.len().min(MAX_VALUES));
        let context = self.context();
        let mut command = CountersRead::new(context.driver_id(), kernel.object.id(), flags.bits());
        context.read_counters(&mut command, values)?;
        rest.fill(0);
        Ok(())
    }

    /// Destroys the counters and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a flow counts into them or a clone exists.
    #[doc(alias = "ibv_destroy_counters")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::get_mut(&mut self.0) else {
            let hint = "a flow counts into these counters, or a clone of them still exists";
            return Err((self, object::shared("counters.destroy", hint)));
        };
        let kernel = inner.kernel.get_mut().unwrap_or_else(PoisonError::into_inner);
        kernel.object.release().map_err(|error| (self, error))
    }
}

/// Whether `len` values are enough for the highest index.
fn check_slots(op: &'static str, len: usize, needed: usize) -> Result<()> {
    if len < needed {
        return Err(Error::outside(op, "room for values", len, format_args!("at least {needed}")));
    }
    Ok(())
}
