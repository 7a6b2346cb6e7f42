//! The commands, with the checks that `ucma.c` makes before it asks `cma.c`.

use std::net::SocketAddr;

use nix::errno::Errno;
use uverbs_abi::cm::{
    ACK_TIMEOUT, AFONLY, Accept, Bind, Connect, CreateId, CreateIdResp, DestroyId, DestroyIdResp, Disconnect,
    FULLMEMBER, GetEvent, InitQpAttr, JoinMcast, Listen, MigrateId, MigrateResp, Notify, OPTION_ID, PS_IB,
    PS_IPOIB, PS_TCP, PS_UDP, QUERY_ADDR, Query, QueryAddrResp, REUSEADDR, Reject, ResolveAddr, ResolveRoute,
    SENDONLY_FULLMEMBER, SetOption, TOS,
};
use uverbs_abi::types::{event_type, qp_type};

use super::super::NODE_GUID;
use super::state::{Identifier, Phase, State};
use super::wire::BY_THE_PROGRAM;
use crate::kernel::manager::{LeaveMcast, ManagerCommand, Request};

/// A command of one file.
pub(super) struct Call<'s> {
    pub(super) state: &'s mut State,
    pub(super) file: u32,
}

/// A socket address of a command, whose size must be that of its family (`rdma_addr_size_kss`).
fn address(size: u16, place: &[u8; 128]) -> Result<SocketAddr, Errno> {
    let address = crate::kernel::manager::decode(place).ok_or(Errno::EINVAL)?;
    let (wanted, _) = crate::kernel::manager::encode(&address);
    if size == wanted { Ok(address) } else { Err(Errno::EINVAL) }
}

impl Call<'_> {
    pub(super) fn run(&mut self, command: &mut ManagerCommand<'_>) -> Result<(), Errno> {
        /// Calls the method for the struct that the command contains.
        macro_rules! dispatch {
            ($($request:ident => $method:ident,)*) => {
                match command.number() {
                    $($request::NUMBER => {
                        let request: $request = command.request().ok_or(Errno::EINVAL)?;
                        let answer = self.$method(&request, command.value())?;
                        command.answer(&answer);
                        Ok(())
                    })*
                    _ => Err(Errno::EINVAL),
                }
            };
        }
        dispatch! {
            CreateId => create,
            DestroyId => destroy,
            Bind => bind,
            ResolveAddr => resolve_address,
            ResolveRoute => resolve_route,
            Query => query,
            Connect => connect,
            Listen => listen,
            Accept => accept,
            Reject => reject,
            Disconnect => disconnect,
            InitQpAttr => init_qp_attr,
            GetEvent => get_event,
            SetOption => set_option,
            JoinMcast => join_group,
            LeaveMcast => leave_group,
            Notify => notify,
            MigrateId => migrate,
        }
    }

    /// `ucma_get_ctx`.
    fn find(&self, id: u32) -> Result<&Identifier, Errno> {
        let found = self.state.identifiers.get(&id).ok_or(Errno::ENOENT)?;
        match found {
            found if found.file != self.file => Err(Errno::EINVAL),
            found if found.is_removed => Err(Errno::ENXIO),
            found => Ok(found),
        }
    }

    /// `ucma_get_ctx_dev`.
    fn find_with_device(&self, id: u32) -> Result<&Identifier, Errno> {
        self.find(id).and_then(|found| found.device.map(|_| found).ok_or(Errno::EINVAL))
    }

    fn create(&mut self, request: &CreateId, _: &[u8]) -> Result<CreateIdResp, Errno> {
        let qp_type = match request.ps {
            PS_TCP => qp_type::RC,
            PS_IB => request.qp_type,
            PS_UDP => qp_type::UD,
            // Without interfaces of IP over InfiniBand.
            PS_IPOIB => return Err(Errno::EOPNOTSUPP),
            _ => return Err(Errno::EINVAL),
        };
        let new = State::new_identifier(self.file, request.uid, request.ps, qp_type);
        Ok(CreateIdResp { id: self.state.insert(new) })
    }

    fn destroy(&mut self, request: &DestroyId, _: &[u8]) -> Result<DestroyIdResp, Errno> {
        // A removed one can be destroyed.
        let found = self.state.identifiers.get(&request.id).ok_or(Errno::ENOENT)?;
        if found.file != self.file {
            return Err(Errno::EINVAL);
        }
        let events_reported = self.state.destroy(request.id).ok_or(Errno::ENOENT)?;
        Ok(DestroyIdResp { events_reported })
    }

    fn bind(&mut self, request: &Bind, _: &[u8]) -> Result<(), Errno> {
        let own = address(request.addr_size, &request.addr)?;
        if request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        match self.find(request.id)?.phase {
            Phase::Idle => self.state.bind(request.id, own),
            _ => Err(Errno::EINVAL),
        }
    }

    fn resolve_address(&mut self, request: &ResolveAddr, _: &[u8]) -> Result<(), Errno> {
        let source = match request.src_size {
            0 => None,
            size => Some(address(size, &request.src_addr)?),
        };
        let destination = address(request.dst_size, &request.dst_addr)?;
        if request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        self.find(request.id)?;
        self.state.resolve_address(request.id, source, destination)
    }

    fn resolve_route(&mut self, request: &ResolveRoute, _: &[u8]) -> Result<(), Errno> {
        self.find_with_device(request.id)?;
        self.state.resolve_route(request.id, request.timeout_ms)
    }

    fn query(&mut self, request: &Query, _: &[u8]) -> Result<QueryAddrResp, Errno> {
        let found = self.find(request.id)?;
        if request.option != QUERY_ADDR {
            return Err(Errno::ENOSYS);
        }
        let mut answer = QueryAddrResp::default();
        if let Some(own) = found.own {
            (answer.src_size, answer.src_addr) = crate::kernel::manager::encode(&own);
        }
        if let Some(destination) = found.destination {
            (answer.dst_size, answer.dst_addr) = crate::kernel::manager::encode(&destination);
        }
        if let Some(device) = found.device {
            (answer.node_guid, answer.port_num) = (NODE_GUID.to_be(), 1);
            (answer.pkey, answer.ibdev_index) = (0xffff, device);
        }
        Ok(answer)
    }

    fn connect(&mut self, request: &Connect, _: &[u8]) -> Result<(), Errno> {
        if request.conn_param.valid == 0 {
            return Err(Errno::EINVAL);
        }
        self.find_with_device(request.id)?;
        self.state.connect(request.id, &request.conn_param)
    }

    fn listen(&mut self, request: &Listen, _: &[u8]) -> Result<(), Errno> {
        self.find(request.id)?;
        self.state.listen(request.id, request.backlog)
    }

    fn accept(&mut self, request: &Accept, _: &[u8]) -> Result<(), Errno> {
        self.find_with_device(request.id)?;
        self.state.accept(request.id, request.uid, &request.conn_param)
    }

    fn reject(&mut self, request: &Reject, _: &[u8]) -> Result<(), Errno> {
        let reason = match request.reason {
            0 => BY_THE_PROGRAM,
            reason @ (28 | 35) => reason.into(),
            _ => return Err(Errno::EINVAL),
        };
        self.find_with_device(request.id)?;
        let data = request.private_data[..request.private_data_len.into()].into();
        self.state.reject(request.id, reason, data)
    }

    fn disconnect(&mut self, request: &Disconnect, _: &[u8]) -> Result<(), Errno> {
        self.find_with_device(request.id)?;
        self.state.disconnect(request.id)
    }

    /// `ucma_notify`; a device of iWARP is not told (`rdma_notify`, cma.c).
    fn notify(&mut self, request: &Notify, _: &[u8]) -> Result<(), Errno> {
        let found = self.find_with_device(request.id)?;
        let (phase, device) = (found.phase, found.device);
        if matches!(phase, Phase::Bound | Phase::AddressResolved | Phase::RouteResolved) {
            return Err(Errno::EINVAL);
        }
        if device.is_some_and(|device| self.state.is_iwarp(device)) {
            return Ok(());
        }
        match (request.event, phase) {
            (event_type::COMM_EST, Phase::Replied) => {
                self.state.establish(request.id);
                Ok(())
            }
            (event_type::COMM_EST, Phase::Established) => Err(Errno::EISCONN),
            (event_type::PATH_MIG, Phase::Established) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn migrate(&mut self, request: &MigrateId, _: &[u8]) -> Result<MigrateResp, Errno> {
        // A file of another network is none of this one's.
        let from = self.state.file_of(request.fd).ok_or(Errno::EINVAL)?;
        Call { state: self.state, file: from }.find(request.id)?;
        let events_reported = self.state.migrate(request.id, self.file).ok_or(Errno::ENOENT)?;
        Ok(MigrateResp { events_reported })
    }

    fn init_qp_attr(&mut self, request: &InitQpAttr, _: &[u8]) -> Result<uverbs_abi::write::QpAttr, Errno> {
        if request.qp_state > 6 {
            return Err(Errno::EINVAL);
        }
        let found = self.find_with_device(request.id)?;
        if found.qp_type == qp_type::UD && !found.device.is_some_and(|device| self.state.is_iwarp(device)) {
            return self.state.datagram_attributes(request.id, request.qp_state);
        }
        self.state.qp_attributes(found, request.qp_state)
    }

    /// `ucma_process_join`.
    fn join_group(&mut self, request: &JoinMcast, _: &[u8]) -> Result<CreateIdResp, Errno> {
        let group = address(request.addr_size, &request.addr)?;
        if ![FULLMEMBER, SENDONLY_FULLMEMBER].contains(&request.join_flags) {
            return Err(Errno::EINVAL);
        }
        self.find_with_device(request.id)?;
        let id = self.state.join_group(request.id, request.uid, group.ip())?;
        Ok(CreateIdResp { id })
    }

    fn leave_group(&mut self, LeaveMcast(request): &LeaveMcast, _: &[u8]) -> Result<DestroyIdResp, Errno> {
        let events_reported = self.state.leave_group(self.file, request.id)?;
        Ok(DestroyIdResp { events_reported })
    }

    fn get_event(&mut self, _: &GetEvent, _: &[u8]) -> Result<uverbs_abi::cm::EventResp, Errno> {
        self.state.next_event(self.file)
    }

    fn set_option(&mut self, request: &SetOption, value: &[u8]) -> Result<(), Errno> {
        self.find(request.id)?;
        if request.level != OPTION_ID {
            return Err(Errno::ENOSYS);
        }
        let byte = || <[u8; 1]>::try_from(value).map(|[byte]| byte).map_err(|_| Errno::EINVAL);
        let is_set = || <[u8; 4]>::try_from(value).map(|bytes| bytes != [0; 4]).map_err(|_| Errno::EINVAL);
        let Some(id) = self.state.identifiers.get_mut(&request.id) else { return Err(Errno::ENOENT) };
        match request.optname {
            TOS => id.type_of_service = byte()?,
            ACK_TIMEOUT if id.qp_type == qp_type::RC => id.ack_timeout = Some(byte()?),
            ACK_TIMEOUT => return Err(Errno::EINVAL),
            REUSEADDR => {
                let is_set = is_set()?;
                if id.phase == Phase::Listening {
                    return Err(Errno::EINVAL);
                }
                id.reuses_address = is_set;
            }
            AFONLY => {
                let is_set = is_set()?;
                if !matches!(id.phase, Phase::Idle | Phase::Bound) {
                    return Err(Errno::EINVAL);
                }
                id.only_family = is_set;
            }
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }
}
