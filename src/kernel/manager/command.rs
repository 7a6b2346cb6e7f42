//! One command of the connection manager: its bytes, and the memory for the answer.

use std::ops::{Deref, DerefMut};

use uverbs_abi::cm::{
    Accept, Bind, CmdHdr, Connect, CreateId, CreateIdResp, DestroyId, DestroyIdResp, Disconnect, EventResp,
    GetEvent, InitQpAttr, JoinMcast, Listen, MigrateId, MigrateResp, Notify, Query, QueryAddrResp, Reject,
    ResolveAddr, ResolveRoute, SetOption,
};
use uverbs_abi::{cm, write::QpAttr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Room for most commands, with their headers.
const SHORT: usize = 48;

/// The bytes of a command: the header and the whole struct. Most are short, and need no memory of their own.
#[derive(Debug)]
pub(super) enum Bytes {
    Short([u8; SHORT], usize),
    Long(Vec<u8>),
}

impl Bytes {
    fn of(header: &CmdHdr, body: &[u8]) -> Self {
        let (header, len) = (header.as_bytes(), size_of::<CmdHdr>() + body.len());
        if len <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[..header.len()].copy_from_slice(header);
            bytes[header.len()..len].copy_from_slice(body);
            return Self::Short(bytes, len);
        }
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(header);
        bytes.extend_from_slice(body);
        Self::Long(bytes)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes, len) => &bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short(bytes, len) => &mut bytes[..*len],
            Self::Long(bytes) => bytes,
        }
    }
}

/// The struct of a command.
pub(crate) trait Request: IntoBytes + Immutable {
    /// What the kernel answers; the unit type if nothing.
    type Answer: FromBytes + IntoBytes;

    /// The number of the command.
    const NUMBER: u32;

    /// Where the address of the answer is.
    const PLACE: Option<usize>;
}

/// The struct of [`DestroyId`], for a membership in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(transparent)]
pub(crate) struct LeaveMcast(pub(crate) DestroyId);

impl Request for LeaveMcast {
    type Answer = DestroyIdResp;
    const NUMBER: u32 = cm::LEAVE_MCAST;
    const PLACE: Option<usize> = DestroyId::PLACE;
}

/// A command of an identifier that the command before it may have created.
pub(crate) trait OfIdentifier: Request {
    /// Where the identifier is.
    const ID: usize;
}

impl OfIdentifier for ResolveAddr {
    const ID: usize = std::mem::offset_of!(Self, id);
}

macro_rules! requests {
    ($($request:ident $number:ident: $answer:ty $(, $field:ident)?;)*) => {
        $(impl Request for $request {
            type Answer = $answer;
            const NUMBER: u32 = cm::$number;
            const PLACE: Option<usize> = requests!(place $request $($field)?);
        })*
    };
    (place $request:ident $field:ident) => { Some(std::mem::offset_of!($request, $field)) };
    (place $request:ident) => { None };
}

requests! {
    CreateId CREATE_ID: CreateIdResp, response;
    DestroyId DESTROY_ID: DestroyIdResp, response;
    Bind BIND: ();
    ResolveAddr RESOLVE_ADDR: ();
    ResolveRoute RESOLVE_ROUTE: ();
    Query QUERY: QueryAddrResp, response;
    Connect CONNECT: ();
    Listen LISTEN: ();
    Accept ACCEPT: ();
    Reject REJECT: ();
    Disconnect DISCONNECT: ();
    InitQpAttr INIT_QP_ATTR: QpAttr, response;
    GetEvent GET_EVENT: EventResp, response;
    SetOption SET_OPTION: ();
    JoinMcast JOIN_MCAST: CreateIdResp, response;
    Notify NOTIFY: ();
    MigrateId MIGRATE_ID: MigrateResp, response;
}

/// A command of the connection manager, which is sent once; a [`Watcher`](super::Watcher) sees it.
#[derive(Debug)]
pub struct ManagerCommand<'a> {
    pub(super) bytes: Bytes,
    pub(super) memory: Memory<'a>,
    /// Where the next command of a sequence has the answer.
    pub(super) passes_to: Option<usize>,
}

/// The memory of which a command has the address, and where in the command.
#[derive(Debug)]
pub(super) enum Memory<'a> {
    None,
    Answer(usize, &'a mut [u8]),
    Value(usize, &'a [u8]),
}

impl<'a> ManagerCommand<'a> {
    /// A command whose answer goes to `answer`.
    pub(crate) fn new<R: Request>(request: &R, answer: &'a mut R::Answer) -> Self {
        let answer = answer.as_mut_bytes();
        let out = answer.len();
        let memory =
            R::PLACE.map_or(Memory::None, |place| Memory::Answer(size_of::<CmdHdr>() + place, answer));
        Self::with(request, out, memory)
    }

    /// The command that sets an option of an identifier.
    pub(crate) fn set_option(id: u32, optname: u32, value: &'a [u8]) -> Self {
        let place = size_of::<CmdHdr>() + std::mem::offset_of!(SetOption, optval);
        let optlen = value.len() as u32;
        let request = SetOption { id, level: cm::OPTION_ID, optname, optlen, ..SetOption::default() };
        Self::with(&request, 0, Memory::Value(place, value))
    }

    fn with<R: Request>(request: &R, out: usize, memory: Memory<'a>) -> Self {
        let body = request.as_bytes();
        // Both are sizes of the ABI's structs.
        let header = CmdHdr { cmd: R::NUMBER, in_: body.len() as u16, out: out as u16 };
        Self { bytes: Bytes::of(&header, body), memory, passes_to: None }
    }

    /// In a sequence, the answer becomes the identifier of the next command, of type `R`.
    pub(crate) fn passing_to<R: OfIdentifier>(mut self) -> Self {
        self.passes_to = Some(size_of::<CmdHdr>() + R::ID);
        self
    }

    /// The answer, which was written to the next command of the sequence.
    pub(super) fn take_from(&mut self, next: &Self) {
        if let (Memory::Answer(_, answer), Some(at)) = (&mut self.memory, self.passes_to)
            && let Some(place) = next.bytes.get(at..at + answer.len())
        {
            answer.copy_from_slice(place);
        }
    }

    /// Gives the answer to the next command of the sequence.
    pub(super) fn pass_on(&self, next: &mut Self) {
        if let (Memory::Answer(_, answer), Some(at)) = (&self.memory, self.passes_to)
            && let Some(place) = next.bytes.get_mut(at..at + answer.len())
        {
            place.copy_from_slice(answer);
        }
    }
}

impl ManagerCommand<'_> {
    /// The number of the command, such as [`CONNECT`](uverbs_abi::cm::CONNECT).
    pub fn number(&self) -> u32 {
        CmdHdr::read_from_prefix(&self.bytes).map_or(u32::MAX, |(header, _)| header.cmd)
    }

    /// The bytes of the command's struct. It has no address yet.
    pub fn body(&self) -> &[u8] {
        self.bytes.get(size_of::<CmdHdr>()..).unwrap_or_default()
    }
}

#[cfg(any(feature = "soft", test))]
impl ManagerCommand<'_> {
    /// The struct of the command, if it is of this type.
    pub(crate) fn request<R: Request + FromBytes>(&self) -> Option<R> {
        (self.number() == R::NUMBER).then(|| R::read_from_bytes(self.body()).ok()).flatten()
    }

    /// Writes the answer.
    pub(crate) fn answer(&mut self, answer: &(impl IntoBytes + Immutable)) {
        if let Memory::Answer(_, place) = &mut self.memory {
            place.iter_mut().zip(answer.as_bytes()).for_each(|(place, byte)| *place = *byte);
        }
    }

    /// The value that is passed by its address.
    pub(crate) fn value(&self) -> &[u8] {
        match &self.memory {
            Memory::Value(_, value) => value,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_its_header_and_its_struct() {
        let mut answer = CreateIdResp::default();
        let request = CreateId { uid: 7, ps: cm::PS_TCP, qp_type: 2, ..CreateId::default() };
        let mut command = ManagerCommand::new(&request, &mut answer);
        assert_eq!(command.bytes[..8], [0, 0, 0, 0, 24, 0, 4, 0]);
        assert_eq!((command.bytes.len(), command.number()), (32, cm::CREATE_ID));
        assert_eq!(command.request::<CreateId>(), Some(request));
        assert_eq!(command.request::<DestroyId>(), None);
        command.answer(&CreateIdResp { id: 5 });
        assert_eq!(answer.id, 5);
    }

    #[test]
    fn a_long_command_has_its_whole_struct() {
        let request = Accept { uid: 3, id: 4, ..Accept::default() };
        let mut nothing = ();
        let command = ManagerCommand::new(&request, &mut nothing);
        assert_eq!(command.bytes.len(), size_of::<CmdHdr>() + size_of::<Accept>());
        assert_eq!((command.body(), command.request::<Accept>()), (request.as_bytes(), Some(request)));
    }

    #[test]
    fn an_option_passes_its_value() {
        let command = ManagerCommand::set_option(3, cm::TOS, &[0x68]);
        let request = command.request::<SetOption>().expect("the struct");
        assert_eq!((request.id, request.optname, request.optlen), (3, cm::TOS, 1));
        assert_eq!(command.value(), [0x68]);
    }
}
