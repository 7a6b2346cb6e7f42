//! Commands of the RDMA device: its adapter, addresses, completion queues and queue pairs.

use vpci::bytes::{Bytes as _, BytesMut as _};

use super::{Command, Status, code};
use crate::device::Device;
use crate::queue::{Cq, Wq};
use crate::rdma::{Change, Kind, Numbers, Qp, TRAILER, counts};

/// The handle of the adapter.
const ADAPTER: u64 = 0x7a;
/// The kinds of datagram queue pairs (`enum ib_qp_type`).
const MANAGEMENT: u32 = 1;
const ADD: u32 = 1;
/// An identifier that no queue has.
const NO_QUEUE: u32 = u32::MAX;
/// The flag of a connection without a queue for fast registration.
const NO_REGISTRATION: u64 = 2;

impl Device {
    pub(super) fn execute_rdma(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let has_adapter = command.u64(40) == ADAPTER;
        match command.code {
            code::QUERY_CAPABILITIES => self.capabilities(out),
            code::CREATE_ADAPTER => {
                let eq = command.u32(40);
                self.eqs.get(eq).ok_or(Status::INVALID)?;
                self.rdma.fatal_eq = Some(eq);
                out.put_u64(0, ADAPTER);
            }
            _ if !has_adapter => return Err(Status::INVALID),
            code::DESTROY_ADAPTER => self.rdma.fatal_eq = None,
            code::CONFIG_IP => {
                let mut address: [u8; 16] = command.bytes.array(56);
                address.reverse();
                self.rdma.addresses.retain(|known| *known != address);
                if command.u32(48) == ADD {
                    self.rdma.addresses.push(address);
                }
            }
            // Packets are for the device by their IP addresses.
            code::CONFIG_MAC => {}
            code::CREATE_CQ => return self.create_cq(command, out),
            code::DESTROY_CQ => {
                let number = number(command.u64(48))?;
                if self.rdma.uses_cq(number) {
                    self.complain(format!("completion queue {number} is destroyed while it is used"));
                }
                self.cqs.remove(number).ok_or(Status::INVALID)?;
            }
            code::CREATE_RC_QP => return self.create_connected(command, out),
            code::CREATE_UD_QP => return self.create_datagram(command, out),
            code::DESTROY_QP | code::DESTROY_UD_QP => {
                self.rdma.remove(number(command.u64(48))?).ok_or(Status::INVALID)?;
            }
            code::SET_QP_STATE => {
                let change = Change::parse(&command.bytes);
                return self.change_qp(number(command.u64(48))?, &change);
            }
            code::QUERY_COUNTERS => counts::fill(&self.rdma.counts, out),
            code::QUERY_DEVICE_COUNTERS => {}
            _ => return Err(Status::UNSUPPORTED),
        }
        Ok(())
    }

    fn capabilities(&self, out: &mut [u8]) {
        let limits = &self.limits;
        let values = [
            0xff_ffff,
            0xff_ffff,
            limits.max_cq - 1,
            limits.max_qp,
            limits.max_cq,
            limits.max_mr,
            limits.max_pd,
            limits.max_inbound_reads,
            limits.max_outbound_reads,
            0,
            0,
            limits.max_requester_sq_size,
            limits.max_responder_sq_size,
            limits.max_requester_rq_size,
            limits.max_responder_rq_size,
            limits.max_send_sge,
            limits.max_recv_sge,
            0,
            limits.features,
        ];
        values.iter().enumerate().for_each(|(i, value)| out.put_u32(i * 4, *value));
    }

    fn create_cq(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let (list, eq, doorbell) = (command.u64(48), command.u32(56), command.u32(60));
        let bytes = u32::try_from(self.list(list)?.length).map_err(|_| Status::INVALID)?;
        if !self.eqs.has(eq) || bytes < 64 || self.cqs.len() >= self.limits.max_cq as usize {
            return Err(Status::INVALID);
        }
        let cq = Cq::new(self.take_list(list)?, bytes, eq, doorbell);
        let number = self.cqs.insert(self.limits.max_cq, cq).ok_or(Status::EXHAUSTED)?;
        out.put_u64(0, number.into());
        out.put_u32(8, number);
        Ok(())
    }

    /// What both kinds of queue pairs name: their domain, and completion queues for sends and receives.
    fn parents(&self, command: &Command) -> Result<(u64, [u32; 2]), Status> {
        let pd = command.u64(48);
        let cqs = [number(command.u64(56))?, number(command.u64(64))?];
        let are_there = self.pds.has(number(pd)?) && cqs.iter().all(|cq| self.cqs.has(*cq));
        if are_there { Ok((pd, cqs)) } else { Err(Status::INVALID) }
    }

    /// A queue in pages, of which the last `trailer` bytes are no part of the ring.
    fn work_queue(&mut self, list: u64, trailer: u32, doorbell: u32) -> Result<Wq, Status> {
        let pages = self.take_list(list)?;
        let size = u32::try_from(pages.length).unwrap_or(u32::MAX).saturating_sub(trailer);
        Ok(Wq::new(pages, size, doorbell))
    }

    fn check_rings(&self, lists: &[u64], limits: &[u32]) -> Result<(), Status> {
        for (list, limit) in lists.iter().zip(limits) {
            let length = self.list(*list)?.length;
            if length > u64::from(*limit) || length < 4096 {
                return Err(Status::INVALID);
            }
        }
        Ok(())
    }

    fn create_connected(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let (pd, cqs) = self.parents(command)?;
        let lists: [u64; 5] = std::array::from_fn(|i| command.u64(72 + i * 8));
        let doorbell = command.u32(136);
        if command.u64(128) & NO_REGISTRATION == 0 {
            return Err(Status::UNSUPPORTED);
        }
        let rings = [lists[0], lists[1], lists[3], lists[4]];
        let limits = &self.limits;
        let most = [
            limits.max_requester_sq_size.saturating_add(TRAILER),
            limits.max_responder_sq_size,
            limits.max_requester_rq_size,
            limits.max_responder_rq_size,
        ];
        self.check_rings(&rings, &most)?;
        let numbers = self.rdma.next_numbers(self.limits.max_qp, Kind::Connected).ok_or(Status::EXHAUSTED)?;
        let requests = self.work_queue(rings[0], TRAILER, doorbell)?;
        // What the device itself uses.
        self.take_list(rings[1])?;
        let reads = self.work_queue(rings[2], 0, doorbell)?;
        let receives = self.work_queue(rings[3], 0, doorbell)?;
        let qp = Qp::new(Kind::Connected, numbers, (pd, cqs), [requests, reads, receives]);
        out.put_u64(0, numbers.base.into());
        let ids = [numbers.send, numbers.base | 1, NO_QUEUE, numbers.base | 1, numbers.receive];
        ids.iter().enumerate().for_each(|(i, id)| out.put_u32(8 + i * 4, *id));
        self.rdma.insert(qp);
        Ok(())
    }

    fn create_datagram(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let (pd, cqs) = self.parents(command)?;
        let rings = [command.u64(72), command.u64(80)];
        let (is_management, doorbell) = (command.u32(88) == MANAGEMENT, command.u32(92));
        self.check_rings(&rings, &[u32::MAX; 2])?;
        let kind = if is_management { Kind::Management } else { Kind::Datagram };
        let numbers: Numbers = self.rdma.next_numbers(self.limits.max_qp, kind).ok_or(Status::EXHAUSTED)?;
        let requests = self.work_queue(rings[0], 0, doorbell)?;
        let receives = self.work_queue(rings[1], 0, doorbell)?;
        let qp = Qp::new(kind, numbers, (pd, cqs), [requests, Wq::default(), receives]);
        out.put_u64(0, numbers.base.into());
        out.put_u32(8, numbers.send);
        out.put_u32(12, numbers.receive);
        self.rdma.insert(qp);
        Ok(())
    }
}

fn number(handle: u64) -> Result<u32, Status> {
    u32::try_from(handle).map_err(|_| Status::INVALID)
}
