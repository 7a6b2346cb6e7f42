//! One call under way: the command, what was found in it, and how its parts are read and answered.
//!
//! The methods are the kernel's helpers for method bodies (`uverbs_copy_to`, `uverbs_get_flags64`,
//! `uverbs_request`, ...), with their rules and errno: uverbs_ioctl.c and uverbs_cmd.c, Linux 6.1.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ioctl::{ATTR_F_VALID_OUTPUT, MAX_INLINE, UHW_OUT};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::parse;
use super::schema::{Method, Want};
use super::state::State;
use super::table::{Kind, Table};
use crate::command::Command;

/// Most attributes of one method.
const MOST: usize = 17;

/// What an attribute turned out to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing {
    /// Bytes in or out, not yet looked at.
    Bytes,
    Object(Object),
    /// An event file, by its number in the device.
    Events(u32),
}

/// An object that a handle refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) handle: u32,
    pub(super) id: u32,
}

/// One attribute that passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: u16,
    pub(super) index: usize,
    pub(super) len: u16,
    pub(super) thing: Thing,
}

/// A handle or file descriptor that the call is about to make.
#[derive(Debug)]
pub(super) struct Pending {
    /// A handle; for a file descriptor, the event file's number in the device.
    pub(super) handle: u32,
    /// None for a file descriptor.
    pub(super) kind: Option<Kind>,
    /// The object, once the hardware has it.
    pub(super) made: Option<u32>,
    pub(super) fd: Option<OwnedFd>,
}

pub(super) struct Call<'s, 'c, 'b> {
    pub(super) state: &'s mut State,
    /// The open file it came through.
    pub(super) file: u32,
    pub(super) command: &'c mut Command<'b>,
    found: [Option<Found>; MOST],
    pub(super) pending: Option<Pending>,
}

impl<'s, 'c, 'b> Call<'s, 'c, 'b> {
    pub(super) fn new(state: &'s mut State, file: u32, command: &'c mut Command<'b>) -> Self {
        Self { state, file, command, found: [None; MOST], pending: None }
    }

    /// Carries the call out; what it was to make is there afterwards, or not at all.
    pub(super) fn run(mut self, method: &Method) -> Result<(), Errno> {
        let answer = self.body(method);
        match (self.pending.take(), answer) {
            (Some(pending), Ok(())) => self.commit(pending),
            (Some(pending), Err(_)) => self.abort(pending),
            (None, _) => {}
        }
        answer
    }

    fn body(&mut self, method: &Method) -> Result<(), Errno> {
        parse::attributes(self, method)?;
        for spec in method.attrs {
            if let Want::Destroy(kind) = spec.want {
                let object = self.object(spec.id)?;
                self.destroy(object.handle, kind)?;
            }
        }
        (method.run)(self)?;
        // The kernel marks the driver's answer as written whether the driver wrote one or not.
        match self.find(UHW_OUT) {
            Some(found) => self.write(found, 0, &[]),
            None => Ok(()),
        }
    }

    fn commit(&mut self, pending: Pending) {
        match (pending.kind, pending.made) {
            (Some(kind), Some(id)) => self.table().fill(pending.handle, kind, id),
            (Some(_), None) => self.table().release(pending.handle),
            (None, _) => {}
        }
        if let Some(fd) = pending.fd {
            self.command.give_fd(fd);
        }
    }

    fn abort(&mut self, pending: Pending) {
        match pending.kind {
            None => self.state.drop_events(pending.handle),
            Some(kind) => {
                if let Some(id) = pending.made {
                    // Nobody uses what was never shown to anybody.
                    let _ = self.state.destroy(kind, id);
                }
                self.table().release(pending.handle);
            }
        }
    }

    /// Destroys the object of this handle; it must be of this kind.
    pub(super) fn destroy(&mut self, handle: u32, kind: Kind) -> Result<(), Errno> {
        let entry = self.table().get(handle.into(), kind)?;
        self.state.destroy(kind, entry.id)?;
        self.table().release(handle);
        Ok(())
    }

    /// Takes a handle for an object that the call is about to make: `rdma_alloc_begin_uobject`.
    pub(super) fn begin(&mut self, kind: Kind) -> Result<u32, Errno> {
        self.context()?;
        let handle = self.table().reserve()?;
        self.pending = Some(Pending { handle, kind: Some(kind), made: None, fd: None });
        Ok(handle)
    }

    /// The same for an event file, whose file descriptor is its handle.
    pub(super) fn begin_fd(&mut self, events: u32, fd: OwnedFd) {
        self.pending = Some(Pending { handle: events, kind: None, made: None, fd: Some(fd) });
    }

    /// The object of a handle that stands in a request: `rdma_lookup_get_uobject`.
    pub(super) fn lookup(&mut self, kind: Kind, handle: u64) -> Result<Object, Errno> {
        let entry = self.table().get(handle, kind)?;
        if self.state.gone {
            return Err(Errno::EIO);
        }
        // The handle fits: it was found.
        Ok(Object { handle: handle as u32, id: entry.id })
    }

    /// The call has made its object.
    pub(super) fn made(&mut self, id: u32) {
        if let Some(pending) = &mut self.pending {
            pending.made = Some(id);
        }
    }

    /// The file must have a context, and the device still be there: `ib_uverbs_get_ucontext_file`.
    pub(super) fn context(&self) -> Result<(), Errno> {
        if self.state.gone {
            return Err(Errno::EIO);
        }
        let open = self.state.files.get(&self.file).is_some_and(|file| file.context);
        if open { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The handles of the file.
    pub(super) fn table(&mut self) -> &mut Table {
        &mut self.state.files.entry(self.file).or_default().table
    }

    pub(super) fn find(&self, id: u16) -> Option<Found> {
        self.found.iter().flatten().find(|found| found.id == id).copied()
    }

    pub(super) fn found(&mut self, found: Found) {
        if let Some(slot) = self.found.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(found);
        }
    }

    /// The object that an attribute names; ENOENT if the attribute is missing.
    pub(super) fn object(&self, id: u16) -> Result<Object, Errno> {
        match self.find(id) {
            Some(Found { thing: Thing::Object(object), .. }) => Ok(object),
            _ => Err(Errno::ENOENT),
        }
    }

    /// The event file that an attribute names, if it is there.
    pub(super) fn events(&self, id: u16) -> Option<u32> {
        match self.find(id)?.thing {
            Thing::Events(events) => Some(events),
            _ => None,
        }
    }

    /// What the kernel stores into an attribute's data as soon as it has parsed it.
    pub(super) fn set_data(&mut self, index: usize, data: u64) {
        if let Some(attr) = self.command.attr_mut(index) {
            attr.data = data;
        }
    }

    /// The bytes of an input; none if they cannot be read.
    pub(super) fn input_at(&self, index: usize) -> Option<&[u8]> {
        let attr = self.command.attrs().nth(index)?;
        let len = usize::from(attr.len);
        if len <= MAX_INLINE {
            // Never in memory, even if there is some.
            return attr.data.as_bytes().get(..len);
        }
        self.command.input_bytes(index).or_else(|| self.command.output_bytes(index))?.get(..len)
    }

    /// The bytes of an attribute: ENOENT if it is missing, EFAULT if they cannot be read.
    pub(super) fn input(&self, id: u16) -> Result<&[u8], Errno> {
        self.input_at(self.find(id).ok_or(Errno::ENOENT)?.index).ok_or(Errno::EFAULT)
    }

    /// A value of fixed size. A longer attribute has a tail of zeros, a shorter one is filled up with zeros.
    pub(super) fn value<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.input(id)?;
        let mut value = T::new_zeroed();
        for (to, from) in value.as_mut_bytes().iter_mut().zip(bytes) {
            *to = *from;
        }
        Ok(value)
    }

    /// A constant of eight bytes, not above `most`; an unsigned type of the kernel's.
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

    /// Writes an answer, as much of it as the attribute has room for; ENOENT if the attribute is missing.
    pub(super) fn copy_to(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let found = self.find(id).ok_or(Errno::ENOENT)?;
        let len = bytes.len().min(found.len.into());
        self.write(found, 0, bytes.get(..len).unwrap_or_default())
    }

    /// The same, for an attribute that may be left out.
    pub(super) fn copy_to_optional(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        if self.find(id).is_some() { self.copy_to(id, bytes) } else { Ok(()) }
    }

    /// The same, and zeros into what remains of the attribute.
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

    /// Writes into an attribute's memory and marks it as written. No bytes can be written anywhere.
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

    /// The request of a write command: filled up with zeros if it is short, refused if what is longer is not
    /// zero.
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

    /// How many bytes of a response the caller has room for.
    pub(super) fn response_length<T>(&self) -> u32 {
        let room = self.find(CORE_OUT).map_or(0, |found| usize::from(found.len));
        room.min(size_of::<T>()) as u32
    }
}
