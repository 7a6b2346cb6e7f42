//! What a driver is told about an object that is to be created, and what it may ask of the open device.

use nix::errno::Errno;
use uverbs_abi::rxe::{Mminfo, ModifySrqCmd};
use uverbs_abi::types::{QpCreateFlags, qp_type};
use uverbs_abi::write::{AhAttr, QpCap};
use zerocopy::IntoBytes;

use crate::driver::request::Address;
use crate::driver::ring::RingDevice;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The open device, as plans use it. Each method first checks which process owns the device.
pub(crate) trait Kernel {
    /// Makes this process the owner of the device. Refuses `op` if another process is the owner. It must be called before any lock is
    /// taken, because in a child of `fork` the thread that holds the lock may not exist.
    fn take(&self, op: &'static str) -> Result<()>;

    /// Sends a command.
    fn invoke(&self, command: &mut Command<'_>) -> Result<()>;

    /// Maps memory of the device at an offset that the kernel or its driver has returned.
    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping>;

    /// The device that must be notified of receives in rings: those of the queue pair with this number, or of a shared queue.
    fn ring_device(&self, qp: Option<u32>) -> Option<Box<dyn RingDevice>>;
}

/// The driver's data for a new context.
#[derive(Debug, Default)]
pub(crate) struct ContextPlan {
    pub(in crate::driver) request: Vec<u8>,
    /// Used if the kernel refuses the request as invalid.
    pub(in crate::driver) older: Option<Vec<u8>>,
    pub(in crate::driver) answer: Vec<u8>,
}

impl ContextPlan {
    /// The plan of a context that exists, for which the driver has answered this.
    #[cfg(feature = "raw")]
    pub(crate) fn answered(answer: Vec<u8>) -> Self {
        Self { answer, ..Self::default() }
    }

    /// The request for the driver, and the place for its response.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (&self.request, &mut self.answer)
    }

    /// Changes to the request for older kernels. Returns false if there is none.
    pub(crate) fn goes_on(&mut self) -> bool {
        let older = self.older.take();
        let is_there = older.is_some();
        self.request = older.unwrap_or_default();
        is_there
    }
}

/// The requested properties of a completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqShape<'a> {
    /// Minimum number of entries.
    pub(crate) entries: u32,
    /// Whether it announces completions on a channel.
    pub(crate) has_channel: bool,
    /// Memory of the process that the driver is to use, if any.
    pub(crate) memory: Option<&'a Mapping>,
    pub(crate) driver: DriverCq,
}

/// Additional options for a completion queue that only its driver knows.
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCq {
    /// Flags, in the driver's numbers.
    pub flags: u8,
    /// Size of an entry in bytes, if not the driver's own choice.
    pub entry_size: Option<u16>,
    /// The format of compressed entries. A queue with compressed entries is for programs that read its ring: polls find nothing.
    pub compression: Option<u8>,
}

/// The requested properties of a queue pair.
#[derive(Debug)]
pub(crate) struct QpShape {
    /// One of [`uverbs_abi::types::qp_type`].
    pub(crate) type_: u8,
    pub(crate) cap: QpCap,
    /// The operations for which its requests need room, if not all that its type has: bits of `enum ibv_qp_create_send_ops_flags`.
    /// A driver that has all of them, and whose requests all have the same size, ignores this.
    pub(crate) operations: Option<u64>,
    /// Maximum size in bytes of the headers of a large send; zero if there are no large sends.
    pub(crate) large_header: u32,
    /// Whether a shared queue provides its receives.
    pub(crate) is_shared: bool,
    /// Additional flags for the kernel.
    pub(crate) flags: QpCreateFlags,
    pub(crate) driver: DriverQp,
}

/// Additional options for a driver's own type of queue pair.
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverQp {
    /// Flags, in the driver's numbers.
    pub flags: u16,
    /// The service level of sent packets.
    pub service_level: u8,
    /// Whether writes may have inline data, which needs wide slots. If `None`, they may if the queue pair has inline data and the
    /// device supports writes.
    pub inline_writes: Option<bool>,
}

/// A request for a driver, and the place for its response; either may be empty.
pub(crate) type Payload<'a> = (&'a [u8], &'a mut [u8]);

impl QpShape {
    /// Whether it has its own receive queue.
    pub(crate) fn has_receives(&self) -> bool {
        !self.is_shared && self.type_ != qp_type::XRC_INI
    }

    /// Refuses a queue pair of another type than these, one with a shared receive queue, and one with other options than that all sends are
    /// signaled, each with a hint.
    pub(in crate::driver) fn only(
        &self,
        op: &'static str,
        types: &[u8],
        [of_type, shared, flags]: [&'static str; 3],
    ) -> Result<()> {
        let hint = if !types.contains(&self.type_) {
            of_type
        } else if self.is_shared {
            shared
        } else if !QpCreateFlags::SQ_SIG_ALL.contains(self.flags) {
            flags
        } else {
            return Ok(());
        };
        Err(Error::refused(op, Errno::EOPNOTSUPP, hint))
    }
}

/// A shared receive queue that is about to be armed or resized.
#[derive(Debug)]
pub(crate) enum SrqChange {
    /// The place for the driver's description of a new ring. The driver requires the address of this place even if there will be no new
    /// ring.
    Rings(Mminfo),
    /// The driver needs no data and cannot resize: the errno, and the hint.
    Nothing(Errno, &'static str),
}

impl SrqChange {
    /// Adds the driver's request to a command that arms the queue.
    pub(crate) fn arm(&self, command: &mut Command<'_>) {
        const NOWHERE: &ModifySrqCmd = &ModifySrqCmd { mmap_info_addr: 0 };
        match self {
            Self::Rings(_) => {
                command.driver_input(NOWHERE);
            }
            Self::Nothing(..) => {}
        }
    }

    /// Adds the driver's request to a command that resizes the queue. The error is the kernel's for a driver without this command.
    pub(crate) fn resize<'a>(&'a mut self, op: &'static str, command: &mut Command<'a>) -> Result<()> {
        match self {
            Self::Rings(ring) => {
                command.tells_at(zerocopy::transmute_mut!(ring));
                Ok(())
            }
            Self::Nothing(errno, hint) => Err(Error::kernel(op, *errno).unsupported(*hint)),
        }
    }
}

/// The driver's part of a command whose object needs nothing else: a request, and the place for its response.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub(in crate::driver) request: Vec<u8>,
    pub(in crate::driver) answer: Vec<u8>,
}

impl Exchange {
    pub(crate) fn payload(&mut self) -> Payload<'_> {
        (&self.request, &mut self.answer)
    }
}

/// An address handle that is about to be created. Drivers need no request for it.
#[derive(Debug)]
pub(crate) struct AhPlan {
    attr: AhAttr,
    answer: [u32; 4],
    bytes: usize,
    address: fn(&AhAttr, [u32; 4]) -> Address,
}

impl AhPlan {
    /// With a place for an answer of this many bytes, and what the driver makes of it.
    pub(in crate::driver) fn new(
        attr: &AhAttr,
        bytes: usize,
        address: fn(&AhAttr, [u32; 4]) -> Address,
    ) -> Self {
        Self { attr: *attr, answer: [0; 4], bytes, address }
    }

    pub(crate) fn payload(&mut self) -> Payload<'_> {
        (&[], &mut self.answer.as_mut_bytes()[..self.bytes])
    }

    /// The part that datagrams carry, after the kernel has created the handle.
    pub(crate) fn address(&self) -> Address {
        (self.address)(&self.attr, self.answer)
    }
}
