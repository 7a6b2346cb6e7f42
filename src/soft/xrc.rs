//! Extended reliable connections: domains, and target queue pairs, which several openers may share.
//!
//! Source: `ib_uverbs_open_xrcd`, `ib_uverbs_dealloc_xrcd` and `ib_uverbs_open_qp`, uverbs_cmd.c; `uverbs_free_xrcd`,
//! uverbs_std_types.c; `create_xrc_qp_user` and `__ib_destroy_shared_qp`, verbs.c; Linux 6.1.
//!
//! A target queue pair has no protection domain, no queues and no completion queue: it uses those of the shared queue that a message
//! names. The memory that a peer accesses is therefore that of the queue's protection domain.

use std::fs::File;
use std::os::fd::RawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use uverbs_abi::ids::qp;
use uverbs_abi::types::{mtu, qp_state, qp_type};
use uverbs_abi::write::{CloseXrcd, CreateQpResp, ModifyQp, OpenQp, OpenXrcd, OpenXrcdResp, QpCap};
use zerocopy::FromZeros;

use super::call::Call;
use super::events::About;
use super::queue_pairs::Qp;
use super::queues::event_file;
use super::ring::Consumer;
use super::state::State;
use super::table::Kind;
use crate::driver::ring::Geometry;

/// The number of an object that does not exist.
pub(super) const NONE: u32 = 0;

/// The file that identifies a domain. It is kept open, so that its number is not used again.
#[derive(Debug)]
struct Inode {
    id: (u64, u64),
    _file: Option<File>,
}

impl Inode {
    fn of(fd: RawFd) -> Result<Self, Errno> {
        if cfg!(miri) {
            // Miri has no /proc.
            return Ok(Self { id: (0, fd as u64), _file: None });
        }
        let mut options = File::options();
        options.read(true).custom_flags(OFlag::O_PATH.bits());
        let file = options.open(format!("/proc/self/fd/{fd}"));
        let answer = file.and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = answer.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Errno::EBADF,
            _ => Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EBADF as i32)),
        })?;
        Ok(Self { id: (metadata.dev(), metadata.ino()), _file: Some(file) })
    }
}

/// A domain that is open. It exists as long as a process has it open; objects that are created in it keep it open.
#[derive(Debug)]
pub(super) struct Xrcd {
    /// Its number, which is the same for all openers.
    pub(super) domain: u32,
    inode: Option<Inode>,
    /// Queues and queue pairs that were created or opened through this.
    pub(super) uses: u32,
}

/// A target queue pair that is open.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) qp: u32,
    xrcd: u32,
    user_handle: u64,
    events: Option<u32>,
}

/// `ib_uverbs_open_xrcd`.
pub(super) fn open(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: OpenXrcd = call.request()?;
    // The number of a descriptor, or -1.
    let fd = request.fd as RawFd;
    let flags = OFlag::from_bits_retain(request.oflags as i32);
    let inode = if fd == -1 { None } else { Some(Inode::of(fd)?) };
    let found = inode.as_ref().and_then(|inode| {
        let is_of = |other: &Inode| other.id == inode.id;
        call.state.xrcds.values().find(|xrcd| xrcd.inode.as_ref().is_some_and(is_of))
    });
    let domain = found.map(|xrcd| xrcd.domain);
    if inode.is_some() && domain.is_none() && !flags.contains(OFlag::O_CREAT) {
        return Err(Errno::EAGAIN);
    }
    if domain.is_some() && flags.contains(OFlag::O_EXCL) {
        return Err(Errno::EINVAL);
    }
    let xrcd_handle = call.begin(Kind::Xrcd)?;
    let id = call.state.xrcd_number();
    // The first opener determines its number.
    let xrcd = Xrcd { domain: domain.unwrap_or(id), inode, uses: 0 };
    call.state.xrcds.insert(id, xrcd);
    call.made(id);
    call.respond(&OpenXrcdResp { xrcd_handle })
}

/// `ib_uverbs_close_xrcd`.
pub(super) fn close(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: CloseXrcd = call.request()?;
    call.destroy(request.xrcd_handle, Kind::Xrcd)
}

/// `UVERBS_METHOD_QP_CREATE` for type XRC_TGT, after the core's checks. The driver gets and returns no data.
pub(super) fn create_target(call: &mut Call<'_, '_, '_>, user_handle: u64) -> Result<(), Errno> {
    use qp::create::{EVENT_FD, RESP_CAP, RESP_QP_NUM, XRCD_HANDLE};
    let xrcd = call.object(XRCD_HANDLE)?.id;
    let domain = call.state.xrcds.get(&xrcd).ok_or(Errno::EINVAL)?.domain;
    if call.state.qps.len() >= call.state.profile.max_qp as usize {
        return Err(Errno::ENOMEM);
    }
    // A ring that is never mapped, so that nothing is posted to it.
    let (geometry, map) = Geometry::create(1, 64)?;
    let number = call.state.qp_number();
    let target = Qp {
        file: call.file,
        kind: qp_type::XRC_TGT,
        pd: NONE,
        send_cq: NONE,
        recv_cq: NONE,
        srq: None,
        domain: Some(domain),
        user_handle: 0,
        events: None,
        state: qp_state::RESET,
        port: 0,
        attrs: ModifyQp { path_mtu: mtu::MTU_256, ..ModifyQp::new_zeroed() },
        groups: Vec::new(),
        counters: Vec::new(),
        draining: false,
        stuck_after: None,
        cap: QpCap::new_zeroed(),
        signal_all: false,
        sends: Consumer::new(map, geometry),
        receives: None,
        offsets: Vec::new(),
        uses: 0,
        link: None,
    };
    call.state.qps.insert(number, target);
    let events = event_file(call, EVENT_FD);
    let opening = call.state.open_target(Opening { qp: number, xrcd, user_handle, events });
    call.made(opening);
    call.copy_to_or_zero(RESP_CAP, &QpCap::new_zeroed())?;
    call.copy_to(RESP_QP_NUM, &number.to_ne_bytes())
}

/// `ib_uverbs_open_qp`. The opener of a queue pair gets no events: the command names no file for them.
pub(super) fn open_qp(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let request: OpenQp = call.request()?;
    let qp_handle = call.begin(Kind::Qp)?;
    let xrcd = call.lookup(Kind::Xrcd, request.pd_handle.into()).map_err(|_| Errno::EINVAL)?.id;
    let domain = call.state.xrcds.get(&xrcd).ok_or(Errno::EINVAL)?.domain;
    let target = call.state.qps.get(&request.qpn).filter(|qp| qp.domain == Some(domain));
    if request.qp_type != qp_type::XRC_TGT || target.is_none() {
        return Err(Errno::EINVAL);
    }
    let opening = Opening { qp: request.qpn, xrcd, user_handle: request.user_handle, events: None };
    let opening = call.state.open_target(opening);
    call.made(opening);
    call.respond(&CreateQpResp { qp_handle, qpn: request.qpn, ..CreateQpResp::new_zeroed() })
}

impl State {
    /// A number that no open domain has.
    fn xrcd_number(&mut self) -> u32 {
        loop {
            let number = self.number(|state| &state.xrcds);
            if self.xrcds.values().all(|xrcd| xrcd.domain != number) {
                return number;
            }
        }
    }

    /// A number that neither a queue pair nor an opening has.
    pub(super) fn qp_number(&mut self) -> u32 {
        loop {
            let number = self.number(|state| &state.qps);
            if !self.openings.contains_key(&number) {
                return number;
            }
        }
    }

    fn open_target(&mut self, opening: Opening) -> u32 {
        self.use_xrcd(opening.xrcd);
        let id = self.qp_number();
        self.openings.insert(id, opening);
        id
    }

    pub(super) fn use_xrcd(&mut self, xrcd: u32) {
        if let Some(xrcd) = self.xrcds.get_mut(&xrcd) {
            xrcd.uses += 1;
        }
    }

    pub(super) fn release_xrcd(&mut self, xrcd: u32) {
        if let Some(xrcd) = self.xrcds.get_mut(&xrcd) {
            xrcd.uses = xrcd.uses.saturating_sub(1);
        }
    }

    /// The queue pair for a handle: the opened one, if it is a target.
    pub(super) fn opened(&self, id: u32) -> u32 {
        self.openings.get(&id).map_or(id, |opening| opening.qp)
    }

    /// Closes a target queue pair. The last close destroys it. False if this is not a target.
    pub(super) fn close_target(&mut self, id: u32) -> Result<bool, Errno> {
        let Some(opening) = self.openings.remove(&id) else { return Ok(false) };
        self.take_back(opening.events, About::Qp(id));
        self.release_xrcd(opening.xrcd);
        if !self.openings.values().any(|other| other.qp == opening.qp) {
            self.destroy(Kind::Qp, opening.qp)?;
        }
        Ok(true)
    }

    /// Reports an event of a target queue pair to all openers that read events.
    pub(super) fn announce_target(&self, number: u32, event: u32) {
        for (id, opening) in self.openings.iter().filter(|(_, opening)| opening.qp == number) {
            if let Some(events) = opening.events.and_then(|events| self.events.get(&events)) {
                events.asynchronous(About::Qp(*id), event, opening.user_handle);
            }
        }
    }

    /// Number of domains.
    pub(super) fn xrc_domains(&self) -> usize {
        let mut domains: Vec<_> = self.xrcds.values().map(|xrcd| xrcd.domain).collect();
        domains.sort_unstable();
        domains.dedup();
        domains.len()
    }
}
