//! Converts a command to a checked call, with the kernel's order of checks and its errno for each.
//!
//! Source: `ib_uverbs_ioctl` to `uverbs_process_attr`, uverbs_ioctl.c, and the look-ups of rdma_core.c, Linux 6.1. Where the kernel
//! dereferences a pointer, a command has a buffer. An attribute that needs one and has none is treated as an invalid pointer.

use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use uverbs_abi::ioctl::{ATTR_F_MANDATORY, Attr, IoctlHdr, MAX_ATTRS};

use super::DRIVER_ID;
use super::call::{Call, Found, Object, Thing};
use super::events::EventFile;
use super::profile::Profile;
use super::schema::{self, Method, Want};
use super::table::Kind;
use crate::kernel::command::Command;

/// Checks the header and finds the method: everything before the attributes.
pub(super) fn method(profile: &Profile, command: &Command<'_>) -> Result<&'static Method, Errno> {
    let header = command.header();
    let num_attrs = usize::from(header.num_attrs);
    let length = size_of::<IoctlHdr>() + size_of::<Attr>() * num_attrs;
    if usize::from(header.length) != length || num_attrs > MAX_ATTRS {
        return Err(Errno::EINVAL);
    }
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    if header.driver_id != DRIVER_ID {
        return Err(Errno::EINVAL);
    }
    schema::find(profile, header.object_id, header.method_id).ok_or(Errno::EPROTONOSUPPORT)
}

/// Checks every attribute, in the order of the command, then that none is missing.
pub(super) fn attributes(call: &mut Call<'_, '_, '_>, method: &Method) -> Result<(), Errno> {
    let count = call.command.len();
    if usize::from(call.command.header().num_attrs) > count {
        // The array continues beyond the memory of the command.
        return Err(Errno::EFAULT);
    }
    for index in 0..count {
        let Some(attr) = call.command.attrs().nth(index).copied() else { continue };
        match method.spec(attr.attr_id) {
            None if attr.flags & ATTR_F_MANDATORY != 0 => return Err(Errno::EPROTONOSUPPORT),
            None => {}
            Some(_) if call.find(attr.attr_id).is_some() => return Err(Errno::EINVAL),
            Some(spec) => {
                let thing = check(call, index, &attr, spec.want)?;
                call.found(Found { id: attr.attr_id, index, len: attr.len, thing });
            }
        }
    }
    let missing = |spec: &&schema::Spec| spec.mandatory && call.find(spec.id).is_none();
    if method.attrs.iter().any(|spec| missing(&spec)) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Checks one attribute that the method has.
fn check(call: &mut Call<'_, '_, '_>, index: usize, attr: &Attr, want: Want) -> Result<Thing, Errno> {
    match want {
        Want::In { min, max, open } => {
            // Before all other checks: the bytes after the known length must be zeros.
            if attr.len > max && open && !tail_is_zero(call, index, max) {
                return Err(Errno::EOPNOTSUPP);
            }
            sized(attr, min, max, open)
        }
        Want::Out { min, max, open } => sized(attr, min, max, open),
        Want::New(_) | Want::Use(_) | Want::Destroy(_) | Want::NewFd(_) | Want::UseFd(_) | Want::Absent => {
            if is_reserved_set(attr) || attr.len != 0 {
                return Err(Errno::EINVAL);
            }
            object(call, index, attr.data, want)
        }
    }
}

/// Only enum attributes use these two bytes, and no method here has one.
fn is_reserved_set(attr: &Attr) -> bool {
    attr.elem_id != 0 || attr.reserved != 0
}

fn sized(attr: &Attr, min: u16, max: u16, open: bool) -> Result<Thing, Errno> {
    if attr.len < min || (attr.len > max && !open) || is_reserved_set(attr) {
        return Err(Errno::EINVAL);
    }
    Ok(Thing::Bytes)
}

/// Whether all bytes from `known` on can be read and are zero; `uverbs_is_attr_cleared`.
fn tail_is_zero(call: &Call<'_, '_, '_>, index: usize, known: u16) -> bool {
    let tail = call.input_at(index).and_then(|bytes| bytes.get(usize::from(known)..));
    tail.is_some_and(|tail| tail.iter().all(|byte| *byte == 0))
}

/// A handle or a file descriptor.
fn object(call: &mut Call<'_, '_, '_>, index: usize, data: u64, want: Want) -> Result<Thing, Errno> {
    match want {
        Want::New(kind) => {
            let handle = call.begin(kind)?;
            call.set_data(index, handle.into());
            Ok(Thing::Bytes)
        }
        // rdma_lookup_get_uobject, of an object that uapi_get_object does not find.
        Want::Use(Kind::Xrcd) if !call.state.profile.has_xrc() => Err(Errno::EINVAL),
        Want::Absent => Err(Errno::EINVAL),
        Want::Use(kind) => call.lookup(kind, data).map(Thing::Object),
        Want::Destroy(kind) => {
            let entry = call.table().get(data, kind)?;
            // The handle fits, because it was found.
            Ok(Thing::Object(Object { handle: data as u32, id: entry.id }))
        }
        Want::NewFd(events) => {
            call.context()?;
            let (event_file, reader) = EventFile::new(call.file, events)?;
            call.set_data(index, i64::from(reader.as_raw_fd()) as u64);
            let id = call.state.add_events(event_file);
            call.begin_fd(id, reader);
            Ok(Thing::Events(id))
        }
        Want::UseFd(events) => {
            let number = RawFd::try_from(data as i64).map_err(|_| Errno::EINVAL)?;
            let id = call.state.find_events(call.file, events, number).ok_or(Errno::EBADF)?;
            if call.state.gone { Err(Errno::EIO) } else { Ok(Thing::Events(id)) }
        }
        Want::In { .. } | Want::Out { .. } => Ok(Thing::Bytes),
    }
}
