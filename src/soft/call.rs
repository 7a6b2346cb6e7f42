//! One call in progress: the command, the attributes found in it, and the objects that it creates and destroys.
//!
//! Source: `ib_uverbs_run_method` and `bundle_destroy`, uverbs_ioctl.c; rdma_core.c; Linux 6.1.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use uverbs_abi::ioctl::UHW_OUT;

use super::parse;
use super::schema::{Method, Want};
use super::state::State;
use super::table::{Kind, Table};
use crate::kernel::command::Command;

/// Maximum number of attributes of a method.
const MOST: usize = 17;

/// The kind of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing {
    /// Input or output bytes, which are not read yet.
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

/// An attribute that has passed the checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: u16,
    pub(super) index: usize,
    pub(super) len: u16,
    pub(super) thing: Thing,
}

/// A handle or file descriptor that the call is about to create.
#[derive(Debug)]
pub(super) struct Pending {
    /// A handle; for a file descriptor, the event file's number in the device.
    pub(super) handle: u32,
    /// None for a file descriptor.
    pub(super) kind: Option<Kind>,
    /// The object, after the hardware has created it.
    pub(super) made: Option<u32>,
    pub(super) fd: Option<OwnedFd>,
}

pub(super) struct Call<'s, 'c, 'b> {
    pub(super) state: &'s mut State,
    /// The open file through which it arrived.
    pub(super) file: u32,
    pub(super) command: &'c mut Command<'b>,
    found: [Option<Found>; MOST],
    pub(super) pending: Option<Pending>,
}

impl<'s, 'c, 'b> Call<'s, 'c, 'b> {
    pub(super) fn new(state: &'s mut State, file: u32, command: &'c mut Command<'b>) -> Self {
        Self { state, file, command, found: [None; MOST], pending: None }
    }

    /// Executes the call. What it was to create exists afterwards, or not at all.
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
        // The kernel marks the driver's response as written whether or not the driver wrote one.
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
                    // The object was never visible, so nothing uses it.
                    let _ = self.state.destroy(kind, id);
                }
                self.table().release(pending.handle);
            }
        }
    }

    /// Destroys the object of this handle, which must be of this kind.
    pub(super) fn destroy(&mut self, handle: u32, kind: Kind) -> Result<(), Errno> {
        let entry = self.table().get(handle.into(), kind)?;
        self.state.destroy(kind, entry.id)?;
        self.table().release(handle);
        Ok(())
    }

    /// Reserves a handle for an object that the call is about to create: `rdma_alloc_begin_uobject`.
    pub(super) fn begin(&mut self, kind: Kind) -> Result<u32, Errno> {
        self.context()?;
        let handle = self.table().reserve()?;
        self.pending = Some(Pending { handle, kind: Some(kind), made: None, fd: None });
        Ok(handle)
    }

    /// Notes an event file that the call is about to create; its file descriptor is its handle.
    pub(super) fn begin_fd(&mut self, events: u32, fd: OwnedFd) {
        self.pending = Some(Pending { handle: events, kind: None, made: None, fd: Some(fd) });
    }

    /// The object for a handle in a request: `rdma_lookup_get_uobject`.
    pub(super) fn lookup(&mut self, kind: Kind, handle: u64) -> Result<Object, Errno> {
        let entry = self.table().get(handle, kind)?;
        if self.state.gone {
            return Err(Errno::EIO);
        }
        let id = if kind == Kind::Qp { self.state.opened(entry.id) } else { entry.id };
        // The handle fits, because it was found.
        Ok(Object { handle: handle as u32, id })
    }

    /// The call has created its object.
    pub(super) fn made(&mut self, id: u32) {
        if let Some(pending) = &mut self.pending {
            pending.made = Some(id);
        }
    }

    /// The file must have a context, and the device must still exist: `ib_uverbs_get_ucontext_file`.
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

    /// The event file that an attribute names, if the attribute is present.
    pub(super) fn events(&self, id: u16) -> Option<u32> {
        match self.find(id)?.thing {
            Thing::Events(events) => Some(events),
            _ => None,
        }
    }
}
