//! Commands of any shape, also malformed ones, for testing and fuzzing devices.
//!
//! A [`RawCommand`] can hold any number where a device expects an address. The soft device follows none, so a
//! [`SoftDevice::raw`](crate::SoftDevice::raw) connection is safe; the kernel follows all of them, so opening a
//! real device for such commands is not: [`RawConnection::open`].

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::ioctl::{ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attr, IoctlHdr, MAX_INLINE};
use uverbs_abi::write::cmd;

use super::{Mapping, Transport};
use crate::kernel::command::Command;
use crate::kernel::process::Origin;

/// The memory for an attribute's address.
#[derive(Clone, Debug, Default)]
enum Memory {
    /// None: there is no address, or it is invalid.
    #[default]
    None,
    In(Vec<u8>),
    /// Input with an address in it, and the memory at that address.
    Nest(Vec<u8>, usize, Vec<u8>),
    Out(Vec<u8>),
}

/// One attribute of a [`RawCommand`]. The fields are those of the ABI and can all be set.
#[derive(Clone, Debug, Default)]
pub struct RawAttr {
    /// The attribute of the method.
    pub id: u16,
    /// Bytes of data.
    pub len: u16,
    /// Bit 0: mandatory. Bit 1 is set in the answer: written.
    pub flags: u16,
    /// Which alternative is used.
    pub elem_id: u8,
    /// Reserved.
    pub reserved: u8,
    /// The value itself, a handle, or a file descriptor.
    pub data: u64,
    memory: Memory,
}

impl RawAttr {
    fn with(id: u16, len: usize, data: u64, memory: Memory) -> Self {
        let len = len.min(u16::MAX.into()) as u16;
        Self { id, len, flags: ATTR_F_MANDATORY, data, memory, ..Self::default() }
    }

    /// A handle or a file descriptor; if the command creates it, the data is ignored.
    pub fn handle(id: u16, handle: u64) -> Self {
        Self::with(id, 0, handle, Memory::None)
    }

    /// A constant of eight bytes.
    pub fn value(id: u16, value: u64) -> Self {
        Self::with(id, MAX_INLINE, value, Memory::None)
    }

    /// Input: up to eight bytes inside the attribute, otherwise in memory.
    pub fn input(id: u16, bytes: &[u8]) -> Self {
        if bytes.len() > MAX_INLINE {
            return Self::with(id, bytes.len(), 0, Memory::In(bytes.to_vec()));
        }
        let mut inline = [0; MAX_INLINE];
        for (to, from) in inline.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self::with(id, bytes.len(), u64::from_ne_bytes(inline), Memory::None)
    }

    /// Input in memory that contains the address of `inner` at offset `at`. A command can have one input of this kind.
    pub fn nested(id: u16, outer: &[u8], at: usize, inner: &[u8]) -> Self {
        Self::with(id, outer.len(), 0, Memory::Nest(outer.to_vec(), at, inner.to_vec()))
    }

    /// Room for an answer of `len` bytes.
    pub fn output(id: u16, len: usize) -> Self {
        Self::with(id, len, 0, Memory::Out(vec![0xa5; len]))
    }

    /// Input or output of `len` bytes with an invalid address.
    pub fn bad_address(id: u16, len: usize) -> Self {
        Self::with(id, len, 1, Memory::None)
    }

    /// Sets another length; the memory is unchanged.
    #[must_use]
    pub fn with_len(self, len: u16) -> Self {
        Self { len, ..self }
    }

    /// Sets other flags: 0 makes the attribute optional.
    #[must_use]
    pub fn with_flags(self, flags: u16) -> Self {
        Self { flags, ..self }
    }
}

/// A command of any form, valid or not, to be sent through a [`RawConnection`].
///
/// ```
/// use uverbs::SoftDevice;
/// use uverbs::transport::{RawAttr, RawCommand};
///
/// let connection = SoftDevice::default().raw();
/// // DEVICE, GET_CONTEXT
/// assert_eq!(connection.invoke(&mut RawCommand::new(0, 3)), Ok(()));
/// // COUNTERS, DESTROY of a handle that is not there: ENOENT
/// let mut destroy = RawCommand::new(15, 1).with(RawAttr::handle(0, 7));
/// assert_eq!(connection.invoke(&mut destroy), Err(2));
/// ```
#[derive(Clone, Debug)]
pub struct RawCommand {
    object: u16,
    method: u16,
    attrs: Vec<RawAttr>,
    length: Option<u16>,
    num_attrs: Option<u16>,
    reserved1: u64,
    reserved2: u32,
    driver_id: Option<u32>,
}

impl RawCommand {
    /// A command for a method of an object, without attributes.
    pub fn new(object: u16, method: u16) -> Self {
        Self {
            object,
            method,
            attrs: Vec::new(),
            length: None,
            num_attrs: None,
            reserved1: 0,
            reserved2: 0,
            driver_id: None,
        }
    }

    /// A write command, carried through `INVOKE_WRITE`.
    pub fn write(number: u32) -> Self {
        let this = Self::new(device::OBJECT, device::method::INVOKE_WRITE);
        this.with(RawAttr::value(device::invoke_write::WRITE_CMD, number.into()))
    }

    /// Adds an attribute. A command has memory for 16 of them; further ones are counted in the header, but cannot be read.
    #[must_use]
    pub fn with(mut self, attr: RawAttr) -> Self {
        self.attrs.push(attr);
        self
    }

    /// Sets the header's length, instead of the correct one.
    #[must_use]
    pub fn with_length(self, length: u16) -> Self {
        Self { length: Some(length), ..self }
    }

    /// Sets the header's number of attributes, instead of the correct one.
    #[must_use]
    pub fn with_num_attrs(self, num_attrs: u16) -> Self {
        Self { num_attrs: Some(num_attrs), ..self }
    }

    /// Sets the header's reserved fields.
    #[must_use]
    pub fn with_reserved(self, reserved1: u64, reserved2: u32) -> Self {
        Self { reserved1, reserved2, ..self }
    }

    /// Sets the header's driver id, instead of the device's.
    #[must_use]
    pub fn with_driver_id(self, driver_id: u32) -> Self {
        Self { driver_id: Some(driver_id), ..self }
    }

    /// The attributes, to be changed.
    pub fn attrs(&mut self) -> &mut Vec<RawAttr> {
        &mut self.attrs
    }

    fn attr(&self, id: u16) -> Option<&RawAttr> {
        self.attrs.iter().find(|attr| attr.id == id)
    }

    /// The data of an attribute, which after success is the handle of a new object.
    pub fn data(&self, id: u16) -> u64 {
        self.attr(id).map_or(0, |attr| attr.data)
    }

    /// The answer in an attribute; empty if the attribute has no room for one.
    pub fn answer(&self, id: u16) -> &[u8] {
        match self.attr(id).map(|attr| &attr.memory) {
            Some(Memory::Out(bytes)) => bytes,
            _ => &[],
        }
    }

    /// Whether an attribute was marked as written.
    pub fn is_written(&self, id: u16) -> bool {
        self.attr(id).is_some_and(|attr| attr.flags & ATTR_F_VALID_OUTPUT != 0)
    }

    /// The attribute in which a new file descriptor is returned, if the command creates one, and whether the number is in its output
    /// instead of its data.
    fn new_fd(&self) -> Option<(u16, bool)> {
        use device::invoke_write::{CORE_OUT, WRITE_CMD};
        match (self.object, self.method) {
            (async_event::OBJECT, async_event::method::ALLOC) => Some((async_event::alloc::FD_HANDLE, false)),
            (device::OBJECT, device::method::INVOKE_WRITE)
                if self.data(WRITE_CMD) == u64::from(cmd::CREATE_COMP_CHANNEL) =>
            {
                Some((CORE_OUT, true))
            }
            _ => None,
        }
    }

    /// Sends it, and stores the answer.
    fn send(&mut self, connection: &RawConnection) -> Result<Option<OwnedFd>, Errno> {
        let new_fd = self.new_fd();
        let mut command = Command::new("raw", self.object, self.method);
        let count = self.attrs.len();
        for attr in &mut self.attrs {
            let wire = Attr {
                attr_id: attr.id,
                len: attr.len,
                flags: attr.flags,
                elem_id: attr.elem_id,
                reserved: attr.reserved,
                data: attr.data,
            };
            let index = command.len();
            let is_out = matches!(attr.memory, Memory::Out(_));
            match &mut attr.memory {
                Memory::None if new_fd == Some((attr.id, false)) => command.new_fd(attr.id),
                Memory::None => command.handle(attr.id, 0),
                Memory::In(bytes) => command.input(attr.id, bytes.as_slice()),
                Memory::Nest(outer, at, inner) => command.nested(attr.id, outer, *at, inner),
                Memory::Out(bytes) => command.output(attr.id, bytes),
            };
            if command.len() == index {
                // Too many, or a second nested one: without memory.
                command.handle(attr.id, 0);
            } else if is_out && new_fd == Some((attr.id, true)) {
                command.output_is_fd();
            }
            if let Some(attr) = command.attr_mut(index) {
                *attr = wire;
            }
        }
        let header = command.header_mut();
        header.num_attrs = self.num_attrs.unwrap_or(count.min(u16::MAX.into()) as u16);
        let length = size_of::<IoctlHdr>() + size_of::<Attr>() * usize::from(header.num_attrs);
        header.length = self.length.unwrap_or(length.min(u16::MAX.into()) as u16);
        (header.reserved1, header.reserved2) = (self.reserved1, self.reserved2);
        header.driver_id = self.driver_id.unwrap_or(connection.driver_id);

        let answer = connection.transport.invoke(&mut command);
        let fd = command.take_fd().ok();
        let wires: Vec<_> = command.attrs().copied().collect();
        for (attr, wire) in self.attrs.iter_mut().zip(wires) {
            attr.flags = wire.flags;
            // If it has memory, this is the memory's address.
            if matches!(attr.memory, Memory::None) {
                attr.data = wire.data;
            }
        }
        answer.map(|()| fd)
    }
}

/// A device file that accepts commands of any shape.
pub(crate) trait AnyShape: Transport {
    /// Memory that a command may register, for a device that would refuse other memory.
    fn allow(&self, memory: &Mapping);
}

/// A file opened on a device that accepts any command. Dropping it closes the file.
#[derive(Debug)]
pub struct RawConnection {
    transport: Box<dyn AnyShape>,
    driver_id: u32,
    /// Memory that the device may have registered. It is freed after the file is closed.
    memory: Mutex<Vec<Mapping>>,
    /// The process that may send commands. A child of `fork` has the file too.
    origin: Origin,
}

impl RawConnection {
    pub(crate) fn new(transport: Box<dyn AnyShape>, driver_id: u32) -> Self {
        Self { transport, driver_id, memory: Mutex::default(), origin: Origin::here() }
    }

    /// Refuses everything in a child of `fork`, before any lock is taken.
    fn here(&self) -> Result<(), i32> {
        if self.origin.is_here() { Ok(()) } else { Err(Errno::EIO as i32) }
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The errno, a positive number.
    pub fn invoke(&self, command: &mut RawCommand) -> Result<(), i32> {
        self.invoke_fd(command).map(drop)
    }

    /// Executes a command that may create a file descriptor, and returns the descriptor, which is closed if it is not kept.
    ///
    /// # Errors
    /// The errno, a positive number.
    pub fn invoke_fd(&self, command: &mut RawCommand) -> Result<Option<OwnedFd>, i32> {
        self.here()?;
        command.send(self).map_err(|errno| errno as i32)
    }

    /// Maps a ring.
    ///
    /// # Errors
    /// The errno, a positive number.
    pub fn map(&self, offset: u64, len: usize) -> Result<Mapping, i32> {
        self.here()?;
        self.transport.map(offset, len).map_err(|errno| errno as i32)
    }

    /// Memory, with its address, to be registered with `REG_MR` through this connection; it stays valid as long as the
    /// connection. On the soft device all other addresses are `EFAULT`, so that no command can make it write to arbitrary memory.
    ///
    /// # Errors
    /// The errno, a positive number: `EINVAL` for a length of zero.
    pub fn memory(&self, len: usize) -> Result<(u64, Mapping), i32> {
        self.here()?;
        let map = Mapping::block(len).map_err(|errno| errno as i32)?;
        self.transport.allow(&map);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(map.clone());
        Ok((map.address(), map))
    }
}
