//! The read of counters, which hot loops send: a command with exactly three attributes.

use uverbs_abi::ids::counters::{self, read};
use uverbs_abi::ioctl::{ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attr, IoctlHdr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Command, MANDATORY};

/// The operation that errors and traces name.
pub(crate) const OP: &str = "counters.read";

/// Maximum number of values of one read: their length in bytes is a 16-bit number.
pub(crate) const MAX_VALUES: usize = u16::MAX as usize / size_of::<u64>();

/// A read of counters that can be sent any number of times, each time with a buffer for the values.
///
/// Each read only sets the address of the values and clears the flag with which the kernel marks them as written. Like a
/// [`Command`], it can be passed on but not created outside the crate.
#[derive(Debug)]
pub struct CountersRead(Wire);

/// Header and attributes as the ioctl reads them.
#[repr(C)]
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Wire {
    header: IoctlHdr,
    handle: Attr,
    values: Attr,
    flags: Attr,
}

impl CountersRead {
    /// A read of the counters object `handle` of a device with the driver `driver_id`.
    #[inline]
    pub(crate) fn new(driver_id: u32, handle: u32, flags: u32) -> Self {
        let header = IoctlHdr {
            length: size_of::<Wire>() as u16,
            object_id: counters::OBJECT,
            method_id: counters::method::READ,
            num_attrs: 3,
            driver_id,
            reserved1: 0,
            reserved2: 0,
        };
        Self(Wire {
            header,
            handle: Attr { attr_id: read::HANDLE, data: handle.into(), ..MANDATORY },
            values: Attr { attr_id: read::BUFF, ..MANDATORY },
            flags: Attr { attr_id: read::FLAGS, len: 4, data: flags.into(), ..MANDATORY },
        })
    }

    /// The read as an ordinary command, for a transport without a special function.
    pub(crate) fn as_command<'a>(&self, values: &'a mut [u64]) -> Command<'a> {
        let mut command = Command::new(OP, counters::OBJECT, counters::method::READ);
        command
            .for_driver(self.0.header.driver_id)
            .handle(read::HANDLE, self.0.handle.data as u32)
            .output(read::BUFF, values.as_mut_bytes())
            .flags(read::FLAGS, self.0.flags.data as u32);
        command
    }

    /// Stores whether [`CountersRead::as_command`] was answered with values.
    pub(crate) fn mark(&mut self, valid: bool) {
        self.0.values.flags = ATTR_F_MANDATORY | if valid { ATTR_F_VALID_OUTPUT } else { 0 };
    }

    /// Header and attributes as the ioctl reads them. The address of the values is valid while they are borrowed and nothing else uses
    /// them. At most [`MAX_VALUES`] values are written, even if there are more.
    #[inline]
    pub(crate) fn lower(&mut self, values: &mut [u64]) -> &mut [u8] {
        self.0.values.len = size_of_val(values) as u16;
        self.0.values.flags = ATTR_F_MANDATORY;
        self.0.values.data = values.as_mut_ptr().expose_provenance() as u64;
        self.0.as_mut_bytes()
    }

    /// Whether the kernel marked the values as written.
    #[inline]
    pub(crate) fn is_answered(&self) -> bool {
        self.0.values.flags & ATTR_F_VALID_OUTPUT != 0
    }
}
