//! Commands to the kernel, for [`Watcher`](crate::transport::Watcher)s and [`Transport`](crate::transport::Transport)s: the
//! attributes in the kernel's layout, and the borrowed buffers.
//!
//! A [`Command`] is on the caller's stack. Only values of at most eight bytes, which the ABI carries inline, are copied into it;
//! everything else is borrowed. Addresses are created only by `Command::lower`, which the real transport calls immediately before
//! the ioctl. A transport inside the process (the soft device) instead reads and writes the borrowed buffers and never uses an
//! address.
//!
//! Outside the crate a command can be examined and passed on, but not created, because an attribute built by hand could give any
//! address as the destination of an answer.

mod doorbell;
mod event;
mod read;
mod unsendable;

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use uverbs_abi::ids::device;
use uverbs_abi::ioctl::{ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attr, IoctlHdr, MAX_INLINE, UHW_IN, UHW_OUT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::doorbell::Doorbell;
pub use self::event::EventRequest;
pub use self::read::CountersRead;
pub(crate) use self::read::{MAX_VALUES, OP as READ_OP};
use self::unsendable::Unsendable;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Maximum number of attributes in one command; the largest that the crate sends (create QP) has 14.
const CAPACITY: usize = 16;

/// The header directly followed by the attributes, as `ib_uverbs_ioctl` reads them.
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Wire {
    header: IoctlHdr,
    attrs: [Attr; CAPACITY],
}

/// The memory behind an attribute.
enum Buffer<'a> {
    In(&'a [u8]),
    /// An input that holds the address of another input; see [`Command::nested`].
    Nest(&'a mut [u8]),
    Out(&'a mut [u8]),
    /// An input that is itself an address, to which the driver writes; see [`Command::tells_at`].
    Place(&'a mut [u8; PLACE]),
    /// None: the value is inline, or the attribute is a handle or a file descriptor. Its tag is not zero: a compiler fills an array of
    /// zeros by a call of memset, which costs more than the stores.
    None,
}

/// An input found through an address inside another input.
struct Nested<'a> {
    attr: usize,
    at: usize,
    bytes: &'a [u8],
}

/// One command to the kernel, and the buffers that it borrows.
pub struct Command<'a> {
    op: &'static str,
    wire: Wire,
    buffers: [Buffer<'a>; CAPACITY],
    /// Bit `i` is set if attribute `i` has a buffer, so that its address must be filled in.
    addressed: u32,
    nested: Option<Nested<'a>>,
    /// Where the new file descriptor is returned.
    fd_at: Option<FdAt>,
    fd: Option<OwnedFd>,
    /// The memory that the command registers. Its address is in the request, where the kernel reads it.
    memory: Option<&'a Mapping>,
    /// Why this command cannot be sent. The reason is found while the command is built, and reported when it is sent.
    unsendable: Option<Unsendable>,
}

#[derive(Clone, Copy)]
enum FdAt {
    /// In the `data` of attribute `.0`.
    Attr(usize),
    /// In the first four bytes of the output of attribute `.0`.
    Output(usize),
}

/// Size of a place whose address is passed to a driver: what rxe writes, the only driver that does so (rxe_srq_from_attr, rxe_srq.c,
/// Linux 6.1).
pub(crate) const PLACE: usize = 16;

const MANDATORY: Attr =
    Attr { attr_id: 0, len: 0, flags: ATTR_F_MANDATORY, elem_id: 0, reserved: 0, data: 0 };

impl<'a> Command<'a> {
    /// A command for `method` of `object`; `op` names it in errors and traces.
    #[inline]
    pub(crate) fn new(op: &'static str, object: u16, method: u16) -> Self {
        Self::beginning(op, object, method, 0, [0, 0], 0)
    }

    /// A command for the existing object `handle`, which is attribute `id`.
    #[inline(always)]
    pub(crate) fn on(op: &'static str, object: u16, method: u16, id: u16, handle: u32) -> Self {
        Self::beginning(op, object, method, 1, [id, 0], handle.into())
    }

    /// One of the old write commands, carried by the ioctl's `INVOKE_WRITE`.
    ///
    /// Source: `UVERBS_HANDLER(UVERBS_METHOD_INVOKE_WRITE)`, uverbs_std_types_device.c, Linux 6.1.
    #[inline(never)]
    pub(crate) fn write(op: &'static str, number: u32) -> Self {
        let attribute = [device::invoke_write::WRITE_CMD, MAX_INLINE as u16];
        Self::beginning(op, device::OBJECT, device::method::INVOKE_WRITE, 1, attribute, number.into())
    }

    /// A command with this number of attributes, one at most: its id, length and data.
    // A function call, like the methods that add to it: commands are built in a hundred places, and the kernel's work costs far more.
    #[inline(never)]
    fn beginning(
        op: &'static str,
        object: u16,
        method: u16,
        count: u16,
        [attr_id, len]: [u16; 2],
        data: u64,
    ) -> Self {
        // Not a constant: the compiler would copy an array of constants by a call of memcpy, which costs more than the stores.
        let any = Attr { data, ..MANDATORY };
        let header = IoctlHdr {
            length: size_of::<IoctlHdr>() as u16 + count * size_of::<Attr>() as u16,
            object_id: object,
            method_id: method,
            num_attrs: count,
            reserved1: 0,
            driver_id: 0,
            reserved2: 0,
        };
        let mut command = Self {
            op,
            wire: Wire { header, attrs: [any; CAPACITY] },
            buffers: std::array::from_fn(|_| Buffer::None),
            addressed: 0,
            nested: None,
            fd_at: None,
            fd: None,
            memory: None,
            unsendable: None,
        };
        command.wire.attrs[0] = Attr { attr_id, len, data, ..MANDATORY };
        command
    }

    #[inline(never)]
    fn push(&mut self, id: u16, len: usize, data: u64, buffer: Buffer<'a>) -> usize {
        self.add(id, len, data, buffer)
    }

    #[inline(always)]
    fn add(&mut self, id: u16, len: usize, data: u64, buffer: Buffer<'a>) -> usize {
        let index = usize::from(self.wire.header.num_attrs);
        let (Some(attr), Ok(short)) = (self.wire.attrs.get_mut(index), u16::try_from(len)) else {
            let is_too_long = len > usize::from(u16::MAX);
            self.unsendable = Some(if is_too_long { Unsendable::TooLong(len) } else { Unsendable::TooMany });
            return 0;
        };
        *attr = Attr { attr_id: id, len: short, data, ..MANDATORY };
        if !matches!(buffer, Buffer::None) {
            self.addressed |= 1 << index;
            self.buffers[index] = buffer;
        }
        self.wire.header.num_attrs += 1;
        self.wire.header.length += size_of::<Attr>() as u16;
        index
    }

    /// An existing object.
    pub(crate) fn handle(&mut self, id: u16, handle: u32) -> &mut Self {
        self.push(id, 0, handle.into(), Buffer::None);
        self
    }

    /// An object that the command creates; see [`Command::new_handle_of`].
    pub(crate) fn new_handle(&mut self, id: u16) -> &mut Self {
        self.handle(id, 0)
    }

    /// A file descriptor that the command reads.
    pub(crate) fn fd(&mut self, id: u16, fd: BorrowedFd<'a>) -> &mut Self {
        self.push(id, 0, i64::from(fd.as_raw_fd()) as u64, Buffer::None);
        self
    }

    /// A file descriptor that the command creates; see [`Command::take_fd`].
    pub(crate) fn new_fd(&mut self, id: u16) -> &mut Self {
        let index = self.push(id, 0, 0, Buffer::None);
        self.fd_at = Some(FdAt::Attr(index));
        self
    }

    /// A constant of eight bytes.
    pub(crate) fn value(&mut self, id: u16, value: u64) -> &mut Self {
        self.push(id, MAX_INLINE, value, Buffer::None);
        self
    }

    /// A mask of four bytes.
    pub(crate) fn flags(&mut self, id: u16, bits: u32) -> &mut Self {
        self.push(id, size_of::<u32>(), bits.into(), Buffer::None);
        self
    }

    /// The driver's own request.
    pub(crate) fn driver_input<T: IntoBytes + Immutable + ?Sized>(&mut self, value: &'a T) -> &mut Self {
        self.input(UHW_IN, value)
    }

    /// An input value or struct: inline up to eight bytes, otherwise borrowed.
    pub(crate) fn input<T: IntoBytes + Immutable + ?Sized>(&mut self, id: u16, value: &'a T) -> &mut Self {
        self.bytes(id, value.as_bytes())
    }

    #[inline(never)]
    fn bytes(&mut self, id: u16, bytes: &'a [u8]) -> &mut Self {
        if bytes.len() > MAX_INLINE {
            self.add(id, bytes.len(), 0, Buffer::In(bytes));
        } else {
            self.add(id, bytes.len(), inline(bytes), Buffer::None);
        }
        self
    }

    /// The place for the driver's response.
    pub(crate) fn driver_output(&mut self, bytes: &'a mut [u8]) -> &mut Self {
        self.output(UHW_OUT, bytes)
    }

    /// The driver's request and the place for its response, if they exist.
    pub(crate) fn driver_payload(&mut self, (request, answer): (&'a [u8], &'a mut [u8])) -> &mut Self {
        if !request.is_empty() {
            self.driver_input(request);
        }
        if !answer.is_empty() {
            self.driver_output(answer);
        }
        self
    }

    /// An input struct that contains the address of `inner` at offset `at`.
    pub(crate) fn nested(&mut self, id: u16, outer: &'a mut [u8], at: usize, inner: &'a [u8]) -> &mut Self {
        let fits = at.checked_add(size_of::<u64>()).is_some_and(|end| end <= outer.len());
        if outer.len() <= MAX_INLINE || self.nested.is_some() || !fits {
            self.unsendable = Some(Unsendable::Nested);
            return self;
        }
        let attr = self.len();
        self.push(id, outer.len(), 0, Buffer::Nest(outer));
        if attr < self.len() {
            self.nested = Some(Nested { attr, at, bytes: inner });
        }
        self
    }

    /// Names the memory that the command registers, so that a device in this process can keep it alive.
    pub(crate) fn registers(&mut self, memory: &'a Mapping) -> &mut Self {
        self.memory = Some(memory);
        self
    }

    /// The driver's request is the address of `place`. The driver writes there, and does not mark the attribute.
    pub(crate) fn tells_at(&mut self, place: &'a mut [u8; PLACE]) -> &mut Self {
        self.push(UHW_IN, MAX_INLINE, 0, Buffer::Place(place));
        self
    }

    /// A place for a response. It is always borrowed, even for four or eight bytes.
    #[inline(never)]
    pub(crate) fn output(&mut self, id: u16, bytes: &'a mut [u8]) -> &mut Self {
        self.add(id, bytes.len(), 0, Buffer::Out(bytes));
        self
    }

    /// The output that was added last begins with a new file descriptor.
    pub(crate) fn output_is_fd(&mut self) -> &mut Self {
        self.fd_at = self.len().checked_sub(1).map(FdAt::Output);
        self
    }

    /// Fills in the driver id, which every command must carry.
    pub(crate) fn for_driver(&mut self, driver_id: u32) -> &mut Self {
        self.wire.header.driver_id = driver_id;
        self
    }

    /// Whether the command can be sent.
    pub(crate) fn sendable(&self) -> Result<()> {
        self.unsendable.map_or(Ok(()), |why| Err(Error::refused(self.op, Errno::EINVAL, why.hint())))
    }

    /// Whether the kernel marked every output as written. Only then may they be read.
    #[inline]
    pub(crate) fn outputs_are_valid(&self) -> bool {
        let mut rest = self.addressed;
        while let Some(index) = next(&mut rest) {
            let out = matches!(self.buffers[index], Buffer::Out(_));
            if out && self.wire.attrs[index].flags & ATTR_F_VALID_OUTPUT == 0 {
                return false;
            }
        }
        true
    }

    /// The handle that the kernel stored for a [`Command::new_handle`]. To be called only after success: the kernel stores an id even if
    /// the command fails later.
    pub(crate) fn new_handle_of(&self, id: u16) -> Result<u32> {
        let attr = self.attrs().find(|attr| attr.attr_id == id);
        attr.and_then(|attr| u32::try_from(attr.data).ok())
            .ok_or_else(|| Error::malformed(self.op, "the new handle is missing or not a 32-bit number"))
    }

    /// The file descriptor that the command created.
    pub(crate) fn take_fd(&mut self) -> Result<OwnedFd> {
        self.fd.take().ok_or_else(|| Error::malformed(self.op, "no file descriptor came back"))
    }

    /// Writes the address of every buffer into its attribute, and returns header and attributes as the ioctl reads them. The addresses
    /// are valid until the command is accessed again.
    #[inline]
    pub(crate) fn lower(&mut self) -> &mut [u8] {
        if let Some(nested) = &self.nested
            && let Buffer::Nest(outer) = &mut self.buffers[nested.attr]
        {
            let address = nested.bytes.as_ptr().expose_provenance() as u64;
            outer[nested.at..nested.at + size_of::<u64>()].copy_from_slice(&address.to_ne_bytes());
        }
        let mut rest = self.addressed;
        while let Some(index) = next(&mut rest) {
            let attr = &mut self.wire.attrs[index];
            attr.flags &= !ATTR_F_VALID_OUTPUT;
            attr.data = match &mut self.buffers[index] {
                Buffer::None => continue,
                Buffer::In(bytes) => bytes.as_ptr().expose_provenance(),
                Buffer::Nest(bytes) | Buffer::Out(bytes) => bytes.as_mut_ptr().expose_provenance(),
                Buffer::Place(place) => place.as_mut_ptr().expose_provenance(),
            } as u64;
        }
        self.wire.as_mut_bytes()
    }

    /// After success: the number of the new file descriptor, which has no owner yet.
    pub(crate) fn raw_fd(&self) -> Option<i32> {
        match self.fd_at? {
            FdAt::Attr(index) => i32::try_from(self.wire.attrs[index].data as i64).ok(),
            FdAt::Output(index) => {
                let bytes = self.output_bytes(index)?.first_chunk()?;
                Some(i32::from_ne_bytes(*bytes))
            }
        }
    }

    /// Passes in the new file descriptor.
    pub(crate) fn give_fd(&mut self, fd: OwnedFd) {
        self.fd = Some(fd);
    }
}

/// At most eight bytes, as an attribute contains them.
#[inline(always)]
fn inline(bytes: &[u8]) -> u64 {
    let mut inline = [0; MAX_INLINE];
    inline[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(inline)
}

/// Removes and returns the lowest set bit.
#[inline]
fn next(bits: &mut u32) -> Option<usize> {
    let index = bits.trailing_zeros();
    *bits &= bits.wrapping_sub(1);
    (index < CAPACITY as u32).then_some(index as usize)
}

/// The part of a command that a transport can access.
impl Command<'_> {
    /// The operation, as `object.verb`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The header.
    pub fn header(&self) -> &IoctlHdr {
        &self.wire.header
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        usize::from(self.wire.header.num_attrs).min(CAPACITY)
    }

    /// Whether there is no attribute.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The attributes in their order. For an attribute with a buffer, `data` has no meaning here.
    pub fn attrs(&self) -> impl ExactSizeIterator<Item = &Attr> {
        self.wire.attrs[..self.len()].iter()
    }

    /// The bytes that attribute `index` sends, inline or borrowed; none for an output or if the memory is missing.
    pub fn input_bytes(&self, index: usize) -> Option<&[u8]> {
        let attr = self.wire.attrs[..self.len()].get(index)?;
        match &self.buffers[index] {
            Buffer::In(bytes) => Some(bytes),
            Buffer::Nest(bytes) => Some(bytes),
            Buffer::None => attr.data.as_bytes().get(..usize::from(attr.len)),
            Buffer::Out(_) | Buffer::Place(_) => None,
        }
    }

    /// The input to which the address inside attribute `index` refers, and the offset of that address.
    pub fn nested_bytes(&self, index: usize) -> Option<(usize, &[u8])> {
        self.nested.as_ref().filter(|nested| nested.attr == index).map(|nested| (nested.at, nested.bytes))
    }

    /// The memory that the command registers, if it was set.
    #[cfg_attr(not(feature = "soft"), expect(dead_code))]
    pub(crate) fn registered(&self) -> Option<&Mapping> {
        self.memory
    }

    /// The buffer for the answer of attribute `index`.
    pub fn output_bytes(&self, index: usize) -> Option<&[u8]> {
        match self.buffers.get(index)? {
            Buffer::Out(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The memory behind attribute `index`, to be written. The attribute is marked as written.
    pub(crate) fn answer(&mut self, index: usize) -> Option<&mut [u8]> {
        let bytes = match self.buffers.get_mut(index)? {
            Buffer::Out(bytes) => bytes,
            _ => return None,
        };
        self.wire.attrs[index].flags |= ATTR_F_VALID_OUTPUT;
        Some(bytes)
    }

    /// The place to which the driver writes, if attribute `index` is the address of one.
    #[cfg_attr(not(feature = "soft"), expect(dead_code))]
    pub(crate) fn place(&mut self, index: usize) -> Option<&mut [u8; PLACE]> {
        match self.buffers.get_mut(index)? {
            Buffer::Place(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The attribute at `index`, to be answered, or to be damaged by a test.
    pub(crate) fn attr_mut(&mut self, index: usize) -> Option<&mut Attr> {
        let len = self.len();
        self.wire.attrs[..len].get_mut(index)
    }

    /// The header, to be damaged by raw commands.
    pub(crate) fn header_mut(&mut self) -> &mut IoctlHdr {
        &mut self.wire.header
    }
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        write!(f, "{} object={} method={}", self.op, header.object_id, header.method_id)?;
        for (index, attr) in self.attrs().enumerate() {
            write!(f, " {:#x}", attr.attr_id)?;
            match &self.buffers[index] {
                Buffer::None => write!(f, "={:#x}/{}", attr.data, attr.len)?,
                Buffer::In(_) | Buffer::Nest(_) => write!(f, "=in[{}]", attr.len)?,
                Buffer::Out(_) => write!(f, "=out[{}]", attr.len)?,
                Buffer::Place(_) => write!(f, "=place")?,
            }
        }
        Ok(())
    }
}
