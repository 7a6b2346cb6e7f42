//! Identifiers, files and hosts, and the events that wait.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::cm::{CONNECT_REQUEST, DEVICE_REMOVAL, EventResp, MULTICAST_ERROR, MULTICAST_JOIN, UdParam};

use super::super::{Hardware, SoftDevice};
use super::multicast::Membership;
use super::wire::Wire;

/// How far an identifier has come. Of iWARP's states only some are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// A client whose request has left.
    Asked,
    /// A server's, before the program has answered.
    Incoming,
    /// A server's, whose reply has left.
    Replied,
    /// A client that has the reply.
    Answered,
    Established,
    /// This side has disconnected.
    Leaving,
    /// The other side has disconnected.
    Left,
    /// It is of no use any more.
    Over,
}

/// An identifier.
#[derive(Debug)]
pub(super) struct Identifier {
    pub(super) file: u32,
    pub(super) uid: u64,
    pub(super) space: u16,
    pub(super) qp_type: u8,
    pub(super) phase: Phase,
    pub(super) own: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    /// The index of the device.
    pub(super) device: Option<u32>,
    pub(super) is_removed: bool,
    pub(super) reuses_address: bool,
    pub(super) only_family: bool,
    pub(super) type_of_service: u8,
    pub(super) ack_timeout: Option<u8>,
    pub(super) backlog: u32,
    /// Requests that were not read.
    pub(super) unread: u32,
    pub(super) listener: Option<u32>,
    pub(super) peer: Option<u32>,
    pub(super) is_server: bool,
    pub(super) link: Link,
    /// The queue key for datagrams; zero until it is chosen.
    pub(super) qkey: u32,
    /// Events of it that were read.
    pub(super) events_reported: u32,
}

/// What one side of a connection has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) qp_num: u32,
    pub(super) psn: u32,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
}

#[derive(Debug)]
struct File {
    /// As the program knows it.
    descriptor: u32,
    /// Each event with the identifier to which it belongs.
    events: VecDeque<(u32, EventResp)>,
    reader: OwnedFd,
    writer: OwnedFd,
}

/// A device of the network.
#[derive(Debug)]
struct Host {
    hardware: Arc<Hardware>,
    is_iwarp: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    hosts: Vec<Host>,
    addresses: BTreeMap<IpAddr, u32>,
    pub(super) identifiers: BTreeMap<u32, Identifier>,
    pub(super) memberships: BTreeMap<u32, Membership>,
    files: BTreeMap<u32, File>,
    last_file: u32,
    pub(super) last_port: u16,
    pub(super) last_psn: u32,
    pub(super) wire: Wire,
}

impl State {
    pub(super) fn join(&mut self, device: &SoftDevice, address: IpAddr) -> bool {
        if self.addresses.contains_key(&address) {
            return false;
        }
        let is = |host: &Host| Arc::ptr_eq(&host.hardware, &device.hardware);
        let index = self.hosts.iter().position(is).unwrap_or(self.hosts.len());
        if index == self.hosts.len() {
            let hardware = device.hardware.clone();
            self.hosts.push(Host { hardware, is_iwarp: device.hardware.profile.iwarp });
        }
        self.addresses.insert(address, index as u32);
        true
    }

    pub(super) fn identifiers(&self) -> usize {
        self.identifiers.len()
    }

    pub(super) fn device(&self, index: u32) -> Option<SoftDevice> {
        let host = self.hosts.get(index as usize)?;
        Some(SoftDevice { hardware: host.hardware.clone() })
    }

    pub(super) fn is_iwarp(&self, index: u32) -> bool {
        self.hosts.get(index as usize).is_some_and(|host| host.is_iwarp)
    }

    /// The device with this address.
    pub(super) fn at(&self, address: &IpAddr) -> Option<u32> {
        self.addresses.get(address).copied()
    }

    /// A new file, which the program knows as `known`.
    pub(super) fn open(&mut self, known: &OwnedFd, reader: OwnedFd, writer: OwnedFd) -> u32 {
        self.last_file += 1;
        // Descriptors are not negative.
        let descriptor = known.as_raw_fd() as u32;
        self.files.insert(self.last_file, File { descriptor, events: VecDeque::new(), reader, writer });
        self.last_file
    }

    /// The file of this network that the program knows by this descriptor.
    pub(super) fn file_of(&self, descriptor: u32) -> Option<u32> {
        self.files.iter().find(|(_, file)| file.descriptor == descriptor).map(|(number, _)| *number)
    }

    /// Moves an identifier and its unread events to another file, and returns the number of those that were read.
    pub(super) fn migrate(&mut self, number: u32, to: u32) -> Option<u32> {
        let id = self.identifiers.get_mut(&number)?;
        let (from, read) = (std::mem::replace(&mut id.file, to), id.events_reported);
        let events = self.take_events(from, number);
        events.into_iter().for_each(|event| self.push(to, number, event));
        Some(read)
    }

    pub(super) fn close(&mut self, file: u32) {
        let own = |id: &Identifier| id.file == file;
        while let Some(id) = self.identifiers.iter().find(|(_, id)| own(id)).map(|(number, _)| *number) {
            self.destroy(id);
        }
        self.files.remove(&file);
    }

    /// The smallest number that is free, 0 included.
    pub(super) fn insert(&mut self, id: Identifier) -> u32 {
        let taken = |number: &u32| self.identifiers.contains_key(number);
        let number = (0..).find(|number| !taken(number)).unwrap_or(u32::MAX);
        self.identifiers.insert(number, id);
        number
    }

    pub(super) fn new_identifier(file: u32, uid: u64, space: u16, qp_type: u8) -> Identifier {
        Identifier {
            file,
            uid,
            space,
            qp_type,
            phase: Phase::Idle,
            own: None,
            destination: None,
            device: None,
            is_removed: false,
            reuses_address: false,
            only_family: false,
            type_of_service: 0,
            ack_timeout: None,
            backlog: 0,
            unread: 0,
            listener: None,
            peer: None,
            is_server: false,
            link: Link::default(),
            qkey: 0,
            events_reported: 0,
        }
    }

    /// Announces an event to the program of an identifier. Without a number of the program's there is none (`ucma_event_handler`).
    pub(super) fn announce(&mut self, id: u32, event: u32, status: i32, param: UdParam) {
        let Some(identifier) = self.identifiers.get(&id) else { return };
        let (uid, file) = (identifier.uid, identifier.file);
        if uid != 0 {
            // The bits of a signed number.
            let status = status as u32;
            self.push(file, id, EventResp { uid, id, event, status, param, ..EventResp::default() });
        }
    }

    /// Puts an event of `owner` into a file.
    pub(super) fn push(&mut self, file: u32, owner: u32, event: EventResp) {
        let Some(file) = self.files.get_mut(&file) else { return };
        if file.events.is_empty() {
            let _ = nix::unistd::write(&file.writer, &[1]);
        }
        file.events.push_back((owner, event));
    }

    /// `ucma_get_event`, of a file that does not block.
    pub(super) fn next_event(&mut self, file: u32) -> Result<EventResp, Errno> {
        let place = self.files.get_mut(&file).ok_or(Errno::EBADF)?;
        let (owner, event) = place.events.pop_front().ok_or(Errno::EAGAIN)?;
        place.quiet();
        if matches!(event.event, MULTICAST_JOIN | MULTICAST_ERROR) {
            if let Some(of) = self.memberships.get_mut(&event.id) {
                of.events_reported += 1;
            }
        } else if let Some(owner) = self.identifiers.get_mut(&owner) {
            owner.events_reported += 1;
            if event.event == CONNECT_REQUEST {
                owner.unread = owner.unread.saturating_sub(1);
            }
        }
        if event.event == CONNECT_REQUEST {
            // There is room for another one, which its sender repeats.
            self.retry_requests();
        }
        Ok(event)
    }

    /// Removes the unread events of a membership.
    pub(super) fn forget_membership(&mut self, file: u32, number: u32) {
        let Some(file) = self.files.get_mut(&file) else { return };
        let is_of =
            |event: &EventResp| matches!(event.event, MULTICAST_JOIN | MULTICAST_ERROR) && event.id == number;
        file.events.retain(|(_, event)| !is_of(event));
        file.quiet();
    }

    /// The first address of a family.
    pub(super) fn first_like(&self, address: &IpAddr) -> Option<IpAddr> {
        self.addresses.keys().find(|own| own.is_ipv4() == address.is_ipv4()).copied()
    }

    /// Removes the unread events of an identifier, and returns the new connections among them.
    pub(super) fn forget_events(&mut self, file: u32, id: u32) -> Vec<u32> {
        let mine = self.take_events(file, id);
        mine.iter().filter(|event| event.event == CONNECT_REQUEST).map(|event| event.id).collect()
    }

    /// Removes the unread events of an identifier.
    fn take_events(&mut self, file: u32, id: u32) -> Vec<EventResp> {
        let Some(file) = self.files.get_mut(&file) else { return Vec::new() };
        let (mine, others): (VecDeque<_>, _) =
            std::mem::take(&mut file.events).into_iter().partition(|(owner, _)| *owner == id);
        file.events = others;
        file.quiet();
        mine.into_iter().map(|(_, event)| event).collect()
    }

    /// A device was removed: `cma_remove_one`.
    pub(super) fn remove_device(&mut self, hardware: &Arc<Hardware>) {
        let is = |host: &Host| Arc::ptr_eq(&host.hardware, hardware);
        let Some(index) = self.hosts.iter().position(is) else { return };
        let index = index as u32;
        let lost: Vec<_> = self.identifiers.iter().filter(|(_, id)| id.device == Some(index)).collect();
        let lost: Vec<_> = lost.into_iter().map(|(number, _)| *number).collect();
        for number in lost {
            if let Some(id) = self.identifiers.get_mut(&number) {
                (id.phase, id.is_removed, id.peer) = (Phase::Over, true, None);
            }
            self.announce(number, DEVICE_REMOVAL, 0, UdParam::default());
        }
        self.addresses.retain(|_, at| *at != index);
    }
}

impl File {
    /// Makes the file unreadable if no event waits.
    fn quiet(&self) {
        if self.events.is_empty() {
            let _ = nix::unistd::read(&self.reader, &mut [0; 8]);
        }
    }
}
