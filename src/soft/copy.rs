//! Reading the attributes of a call, and writing its responses.
//!
//! These are the kernel's helpers for method bodies (`uverbs_copy_to`, `uverbs_get_flags64`, `uverbs_request`,
//! ...), with their rules and errno: uverbs_ioctl.c and uverbs_cmd.c, Linux 6.1.

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ioctl::{ATTR_F_VALID_OUTPUT, MAX_INLINE};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::call::{Call, Found};

impl Call<'_, '_, '_> {
    /// The value that the kernel stores into an attribute's data when it has parsed it.
    pub(super) fn set_data(&mut self, index: usize, data: u64) {
        if let Some(attr) = self.command.attr_mut(index) {
            attr.data = data;
        }
    }

    /// The bytes of an input; `None` if they cannot be read.
    pub(super) fn input_at(&self, index: usize) -> Option<&[u8]> {
        let attr = self.command.attrs().nth(index)?;
        let len = usize::from(attr.len);
        if len <= MAX_INLINE {
            // The value is never in memory, even if there is some.
            return attr.data.as_bytes().get(..len);
        }
        self.command.input_bytes(index).or_else(|| self.command.output_bytes(index))?.get(..len)
    }

    /// The bytes of an attribute: ENOENT if it is missing, EFAULT if they cannot be read.
    pub(super) fn input(&self, id: u16) -> Result<&[u8], Errno> {
        self.input_at(self.find(id).ok_or(Errno::ENOENT)?.index).ok_or(Errno::EFAULT)
    }

    /// A value of fixed size. A longer attribute must end with zeros, a shorter one is filled up with zeros.
    pub(super) fn value<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.input(id)?;
        let mut value = T::new_zeroed();
        for (to, from) in value.as_mut_bytes().iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(value)
    }

    /// A constant of eight bytes, at most `most`; an unsigned type in the kernel.
    pub(super) fn constant(&self, id: u16, most: u64) -> Result<u64, Errno> {
        let value: u64 = self.value(id)?;
        if value <= most { Ok(value) } else { Err(Errno::EINVAL) }
    }

    /// A mask in four or eight bytes; zero if it is missing.
    pub(super) fn flags(&self, id: u16, allowed: u32) -> Result<u32, Errno> {
        let Some(found) = self.find(id) else { return Ok(0) };
        let flags = match found.len {
            4 | 8 => self.value::<u64>(id)?,
            _ => return Err(Errno::EINVAL),
        };
        match u32::try_from(flags) {
            Ok(flags) if flags & !allowed == 0 => Ok(flags),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes a response, truncated to the size of the attribute; ENOENT if the attribute is missing.
    pub(super) fn copy_to(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let found = self.find(id).ok_or(Errno::ENOENT)?;
        let len = bytes.len().min(found.len.into());
        self.write(found, 0, bytes.get(..len).unwrap_or_default())
    }

    /// Writes a response, truncated to the size of the attribute, which may be left out.
    pub(super) fn copy_to_optional(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        if self.find(id).is_some() { self.copy_to(id, bytes) } else { Ok(()) }
    }

    /// Writes a response, truncated to the size of the attribute, and fills the rest of the attribute with zeros; ENOENT if the attribute
    /// is missing.
    pub(super) fn copy_to_or_zero<T: IntoBytes + Immutable>(
        &mut self,
        id: u16,
        value: &T,
    ) -> Result<(), Errno> {
        let found = self.find(id).ok_or(Errno::ENOENT)?;
        let bytes = value.as_bytes();
        if let Some(rest) = usize::from(found.len).checked_sub(bytes.len()).filter(|rest| *rest > 0) {
            self.write(found, bytes.len(), &vec![0; rest])?;
        }
        self.copy_to(id, bytes)
    }

    /// Writes into an attribute's memory and marks it as written. An empty slice can be written to any attribute.
    pub(super) fn write(&mut self, found: Found, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            if let Some(attr) = self.command.attr_mut(found.index) {
                attr.flags |= ATTR_F_VALID_OUTPUT;
            }
            return Ok(());
        }
        let end = at.checked_add(bytes.len()).ok_or(Errno::EFAULT)?;
        let room = self.command.output_bytes(found.index).map_or(0, <[u8]>::len);
        if end > room {
            return Err(Errno::EFAULT);
        }
        let memory = self.command.answer(found.index).ok_or(Errno::EFAULT)?;
        memory.get_mut(at..end).ok_or(Errno::EFAULT)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The request of a write command: filled up with zeros if it is too short, refused if it is too long and the rest is not zero.
    pub(super) fn request<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        let Some(found) = self.find(CORE_IN) else { return Ok(T::new_zeroed()) };
        let request = self.value(CORE_IN)?;
        let tail = self.input_at(found.index).and_then(|bytes| bytes.get(size_of::<T>()..));
        match tail {
            Some(tail) if tail.iter().any(|byte| *byte != 0) => Err(Errno::EOPNOTSUPP),
            _ => Ok(request),
        }
    }

    /// The response of a write command, if there is room for one.
    pub(super) fn respond<T: IntoBytes + Immutable>(&mut self, response: &T) -> Result<(), Errno> {
        if self.find(CORE_OUT).is_some() { self.copy_to_or_zero(CORE_OUT, response) } else { Ok(()) }
    }

    /// Number of bytes of a response for which the caller has room.
    pub(super) fn response_length<T>(&self) -> u32 {
        let room = self.find(CORE_OUT).map_or(0, |found| usize::from(found.len));
        room.min(size_of::<T>()) as u32
    }
}
