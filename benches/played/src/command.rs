//! The ioctl of a device file: its attributes, and the answers to them.

use nix::errno::Errno;
use uverbs_abi::ids::{device, device::invoke_write};
use uverbs_abi::ioctl::{ATTR_F_VALID_OUTPUT, Attr, IoctlHdr, MAX_INLINE, UHW_IN, UHW_OUT};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::memory;

/// A call whose header is at `base`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    base: u64,
    pub(crate) header: IoctlHdr,
}

impl Call {
    pub(crate) fn at(base: u64) -> Self {
        Self { base, header: memory::read(base) }
    }

    /// The place and the content of the attribute `id`.
    fn attr(&self, id: u16) -> Option<(u64, Attr)> {
        (0..u64::from(self.header.num_attrs))
            .map(|number| self.base + size_of::<IoctlHdr>() as u64 + number * size_of::<Attr>() as u64)
            .map(|at| (at, memory::read::<Attr>(at)))
            .find(|(_, attr)| attr.attr_id == id)
    }

    /// The value of an attribute: a handle, a number.
    pub(crate) fn value(&self, id: u16) -> Option<u64> {
        self.attr(id).map(|(_, attr)| attr.data)
    }

    /// An input, zeros where it is shorter.
    pub(crate) fn input<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let (at, attr) = self.attr(id).ok_or(Errno::EINVAL)?;
        let from = if usize::from(attr.len) <= MAX_INLINE { at + 8 } else { attr.data };
        let mut value = T::new_zeroed();
        let len = size_of::<T>().min(attr.len.into());
        for (place, byte) in value.as_mut_bytes()[..len].iter_mut().zip(0..) {
            *place = memory::read(from + byte);
        }
        Ok(value)
    }

    /// Answers an output, as much of it as was asked for.
    pub(crate) fn output<T: IntoBytes + Immutable>(&self, id: u16, value: &T) {
        if let Some((at, mut attr)) = self.attr(id) {
            memory::copy(attr.data, attr.len.into(), value.as_bytes());
            attr.flags |= ATTR_F_VALID_OUTPUT;
            memory::write(at, attr);
        }
    }

    /// Answers with the handle of a new object, or with a file.
    pub(crate) fn handle(&self, id: u16, handle: u64) {
        if let Some((at, mut attr)) = self.attr(id) {
            attr.data = handle;
            memory::write(at, attr);
        }
    }

    /// The number of the old command that this call runs.
    pub(crate) fn write_command(&self) -> Option<u32> {
        let is_write =
            (self.header.object_id, self.header.method_id) == (device::OBJECT, device::method::INVOKE_WRITE);
        is_write.then(|| self.value(invoke_write::WRITE_CMD).unwrap_or_default() as u32)
    }

    /// The request of the driver, and the answer to it.
    pub(crate) fn driver_input<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        self.input(UHW_IN)
    }

    pub(crate) fn driver_output<T: IntoBytes + Immutable>(&self, value: &T) {
        self.output(UHW_OUT, value);
    }
}
