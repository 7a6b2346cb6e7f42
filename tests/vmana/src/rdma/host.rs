//! What a connection finds around it: memory by its keys, and receives.

use uverbs::raw::roce::{Atomic, Packet};
use vpci::transport::{Access, AtomicRefused, Denied, Host, Piece, Receive, Received, Status};
use vpci::{Memory, Table};

use super::error;
use crate::command::{local_key, remote_key};
use crate::queue::Wq;
use crate::region::{Region, access};

/// Rights of a queue pair (`enum ib_access_flags`).
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;

/// The parts of the device that a connection uses, and what results from a step.
pub(super) struct Around<'a> {
    pub(super) memory: &'a Memory,
    pub(super) regions: &'a Table<Region>,
    pub(super) pd: u64,
    pub(super) access: u32,
    pub(super) receives: &'a mut Wq,
    pub(super) said: Vec<Said>,
}

/// The results of a step, in their order. A `code` is the device's code of an error.
pub(super) enum Said {
    Packet(Box<Packet>),
    Sent { token: u64, code: Option<u32> },
    Received { token: u64, code: Option<u32>, received: Received },
    Complaint(String),
}

/// The region of a key, if a domain may use a range of it.
pub(super) fn region(regions: &Table<Region>, pd: u64, piece: Piece, needed: Needed) -> Option<&Region> {
    let number = piece.key >> 8;
    let key = if needed.is_remote { remote_key(number) } else { local_key(number) };
    let region = regions.get(number).filter(|region| region.pd == pd && key == piece.key)?;
    (region.access & needed.access == needed.access && region.has(piece.address, piece.len as usize))
        .then_some(region)
}

/// How a key is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    pub(super) access: u32,
    pub(super) is_remote: bool,
}

impl From<Access> for Needed {
    fn from(access: Access) -> Self {
        let (access, is_remote) = match access {
            Access::LocalWrite => (access::LOCAL_WRITE, false),
            Access::RemoteRead => (access::REMOTE_READ, true),
            Access::RemoteWrite => (access::REMOTE_WRITE, true),
        };
        Self { access, is_remote }
    }
}

impl Around<'_> {
    fn region(&self, piece: Piece, access: Access) -> Result<&Region, Denied> {
        let allowed = match access {
            Access::LocalWrite => true,
            Access::RemoteRead => self.access & REMOTE_READ != 0,
            Access::RemoteWrite => self.access & REMOTE_WRITE != 0,
        };
        region(self.regions, self.pd, piece, access.into()).filter(|_| allowed).ok_or(Denied)
    }
}

impl Host for Around<'_> {
    fn send(&mut self, packet: Packet) {
        self.said.push(Said::Packet(Box::new(packet)));
    }

    fn receive(&mut self) -> Option<Receive> {
        match self.receives.take(self.memory) {
            Ok(wqe) => wqe.map(|wqe| {
                let to = wqe.pieces.iter().filter(|piece| piece.len > 0);
                let to = to
                    .map(|piece| Piece { address: piece.address, len: piece.len, key: piece.key })
                    .collect();
                Receive { token: wqe.at.into(), to }
            }),
            Err(why) => {
                self.said.push(Said::Complaint(why));
                None
            }
        }
    }

    fn check(&mut self, piece: Piece, access: Access) -> Result<(), Denied> {
        self.region(piece, access).map(|_| ())
    }

    fn read(&mut self, piece: Piece, access: Access, bytes: &mut [u8]) -> Result<(), Denied> {
        self.region(piece, access)?.read(self.memory, piece.address, bytes).map_err(|_| Denied)
    }

    fn write(&mut self, piece: Piece, access: Access, bytes: &[u8]) -> Result<(), Denied> {
        self.region(piece, access)?.write(self.memory, piece.address, bytes).map_err(|_| Denied)
    }

    fn atomic(&mut self, _: &Atomic, _: bool) -> Result<u64, AtomicRefused> {
        Err(AtomicRefused::Invalid)
    }

    fn invalidate(&mut self, _: u32) -> Result<(), Denied> {
        Err(Denied)
    }

    fn sent(&mut self, token: u64, status: Status, _: u32) {
        self.said.push(Said::Sent { token, code: error::code_of_send(status) });
    }

    fn received(&mut self, token: u64, status: Status, received: Received) {
        self.said.push(Said::Received { token, code: error::code_of_receive(status), received });
    }
}
