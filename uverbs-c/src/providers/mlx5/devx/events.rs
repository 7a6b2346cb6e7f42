//! Answers that arrive later, and events.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use uverbs::mlx5::devx::{Answers, EventChannel};

use super::{Object, known};
use crate::answer::{Answer, Code, EINVAL, or_null, returned};
use crate::boundary::{Places, Pointer};
use crate::context::Context;

/// `struct mlx5dv_devx_cmd_comp`, and what it is for the library.
#[repr(C)]
pub(crate) struct CmdComp {
    fd: c_int,
    answers: Answers,
}

pub(crate) extern "C" fn create_cmd_comp(context: Option<&Context>) -> Option<Box<CmdComp>> {
    let make = || {
        let answers = Answers::new_blocking(known(context)?)?;
        Ok(Box::new(CmdComp { fd: answers.as_fd().as_raw_fd(), answers }))
    };
    or_null(make())
}

pub(crate) extern "C" fn destroy_cmd_comp(comp: Option<Box<CmdComp>>) {
    drop(comp);
}

pub(crate) extern "C" fn query_async(
    object: Option<&Object>,
    request: Pointer,
    len: usize,
    room: usize,
    wr_id: u64,
    comp: Option<&CmdComp>,
) -> c_int {
    let start = || {
        let (object, comp) = (object.ok_or(EINVAL)?.object.get()?, comp.ok_or(EINVAL)?);
        let request = request.items::<u8>(len).ok_or(EINVAL)?;
        Ok(object.start_query(request, room, &comp.answers, wr_id)?)
    };
    returned(start())
}

/// Bytes of the number before an answer, and of the cookie before an event.
const HEAD: usize = size_of::<u64>();

/// The longest record: a head, and an answer whose length has 16 bits.
const LONGEST: usize = HEAD + u16::MAX as usize;

/// Reads a record into the caller's place, and waits for it unless the caller has made the file one that does not wait.
fn read(file: BorrowedFd<'_>, mut place: Places<'_, u8>, room: usize) -> Answer<usize> {
    let mut record = vec![0; room.min(LONGEST)];
    if place.is_null() {
        return Err(EINVAL);
    }
    let len = nix::unistd::read(file, &mut record)?;
    for (place, byte) in place.get(room).iter_mut().zip(record.get(..len).unwrap_or_default()) {
        place.write(*byte);
    }
    if len < HEAD { Err(EINVAL) } else { Ok(len) }
}

/// Returns the errno and does not set it by itself, as libmlx5.
pub(crate) extern "C" fn get_cmd_comp(comp: Option<&CmdComp>, place: Places<'_, u8>, room: usize) -> c_int {
    let get = || {
        let comp = comp.ok_or(EINVAL)?;
        comp.answers.context().check()?;
        read(comp.answers.as_fd(), place, room)
    };
    get().map_or_else(Code::get, |_| 0)
}

/// `struct mlx5dv_devx_event_channel`, and what it is for the library.
#[repr(C)]
pub(crate) struct Channel {
    fd: c_int,
    channel: EventChannel,
}

pub(crate) extern "C" fn create_event_channel(context: Option<&Context>, flags: u32) -> Option<Box<Channel>> {
    let make = || {
        let channel = EventChannel::new_blocking(known(context)?, flags)?;
        Ok(Box::new(Channel { fd: channel.as_fd().as_raw_fd(), channel }))
    };
    or_null(make())
}

pub(crate) extern "C" fn destroy_event_channel(channel: Option<Box<Channel>>) {
    drop(channel);
}

/// `size` is the length of the list in bytes.
pub(crate) extern "C" fn subscribe(
    channel: Option<&Channel>,
    object: Option<&Object>,
    size: u16,
    events: Pointer,
    cookie: u64,
) -> c_int {
    let subscribe = || {
        let channel = &channel.ok_or(EINVAL)?.channel;
        let size = usize::from(size);
        if !size.is_multiple_of(size_of::<u16>()) {
            return Err(EINVAL);
        }
        let events = events.items::<u16>(size / size_of::<u16>()).ok_or(EINVAL)?;
        let object = object.map(|object| object.object.get()).transpose()?;
        Ok(channel.subscribe(object, events, cookie)?)
    };
    returned(subscribe())
}

pub(crate) extern "C" fn subscribe_fd(
    channel: Option<&Channel>,
    fd: c_int,
    object: Option<&Object>,
    event: u16,
) -> c_int {
    let subscribe = || {
        let channel = &channel.ok_or(EINVAL)?.channel;
        let object = object.map(|object| object.object.get()).transpose()?;
        Ok(channel.subscribe_number(object, event, fd)?)
    };
    returned(subscribe())
}

/// The number of bytes, or -1 and `errno`.
pub(crate) extern "C" fn get_event(channel: Option<&Channel>, place: Places<'_, u8>, room: usize) -> isize {
    let get = || {
        let channel = &channel.ok_or(EINVAL)?.channel;
        channel.context().check()?;
        read(channel.as_fd(), place, room)
    };
    or_null(get()).map_or(-1, usize::cast_signed)
}
