//! Commands of the network interface: one port, whose queues carry frames over the wire.

use vpci::bytes::BytesMut as _;

use super::{Command, Status, code};
use crate::device::Device;
use crate::net::{NetQueue, fence};
use crate::queue::{Cq, Wq};

/// The handle of the port.
const PORT: u64 = 1;
const SEND: u32 = 1;
const RECEIVE: u32 = 2;
/// No event queue.
const NO_EQ: u32 = 0xffff;

impl Device {
    pub(super) fn execute_net(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        match command.code {
            code::QUERY_DEVICE_CONFIG => {
                out.put_u16(32, 1);
                out.put_u32(36, self.limits.max_eq);
                out.put_u16(40, self.limits.mtu);
            }
            code::QUERY_PORT_CONFIG if command.u32(40) == 0 => {
                [64, 64, 128].iter().enumerate().for_each(|(i, value)| out.put_u32(i * 4, *value));
                out.put(16, &self.mac);
                out.put_u64(24, PORT);
            }
            code::QUERY_LINK_CONFIG if command.u64(40) == PORT => {
                out.put_u32(0, self.limits.link_speed);
                out.put_u32(8, self.limits.link_speed);
            }
            code::QUERY_FUNCTION_STATISTICS => {
                let counts = &self.net.counts;
                out.put_u64(0, u64::MAX);
                [(3, counts.rx_bytes), (4, counts.rx_frames), (20, counts.tx_bytes), (21, counts.tx_frames)]
                    .into_iter()
                    .for_each(|(at, value)| out.put_u64(at * 8, value));
            }
            code::QUERY_PHY_STATISTICS => out.put_u64(0, u64::MAX),
            // The short form of requests is allowed.
            code::CONFIG_PORT_TX if command.u64(40) == PORT => out.put(2, &[1]),
            code::CREATE_WQ_OBJECT if command.u64(40) == PORT => return self.create_net_queue(command, out),
            code::DESTROY_WQ_OBJECT => {
                let object = u32::try_from(command.u64(48)).map_err(|_| Status::INVALID)?;
                let queue = self.wqs.remove(object).ok_or(Status::INVALID)?;
                self.cqs.remove(queue.cq);
                if self.net.receiver == Some(object) {
                    self.net.receiver = None;
                }
            }
            code::FENCE_RQ => {
                let object = u32::try_from(command.u64(40)).map_err(|_| Status::INVALID)?;
                let cq = self.wqs.get(object).filter(|queue| !queue.is_send).ok_or(Status::INVALID)?.cq;
                self.post_completion(cq, &fence(), object, false);
            }
            code::CONFIG_PORT_RX => self.steer(command)?,
            _ => return Err(Status::UNSUPPORTED),
        }
        Ok(())
    }

    fn create_net_queue(&mut self, command: &Command, out: &mut [u8]) -> Result<(), Status> {
        let kind = command.u32(48);
        let (lists, sizes) = ([command.u64(56), command.u64(64)], [command.u32(72), command.u32(76)]);
        let eq = command.u32(84);
        let has_room = self.wqs.len() < 1024
            && self.cqs.len() < self.limits.max_cq as usize
            && matches!(kind, SEND | RECEIVE);
        if !has_room || (eq != NO_EQ && !self.eqs.has(eq)) {
            return Err(Status::INVALID);
        }
        for (list, size) in lists.into_iter().zip(sizes) {
            if self.list(list)?.length < size.into() || !size.is_power_of_two() {
                return Err(Status::INVALID);
            }
        }
        let [ring, entries] = [self.take_list(lists[0])?, self.take_list(lists[1])?];
        let doorbell = self.net.doorbell;
        let cq = Cq::new(entries, sizes[1], eq, doorbell);
        let cq = self.cqs.insert(self.limits.max_cq, cq).ok_or(Status::EXHAUSTED)?;
        let queue = NetQueue { ring: Wq::new(ring, sizes[0], doorbell), is_send: kind == SEND, cq };
        let object = self.wqs.insert(u32::MAX, queue).ok_or(Status::EXHAUSTED)?;
        out.put_u32(0, object);
        out.put_u32(4, cq);
        out.put_u64(8, object.into());
        Ok(())
    }

    /// Which queue receives: all frames go to the default one, or to the first of the table.
    fn steer(&mut self, command: &Command) -> Result<(), Status> {
        let (count, offset) = (command.bytes_u16(48), command.bytes_u16(50));
        let (enabled, default) = (command.u32(52), command.u64(64));
        let flags = command.bytes_u8(60);
        let table = usize::from(offset);
        let first =
            (count > 0).then(|| command.u64(table)).filter(|object| *object != 0 && *object != u64::MAX);
        let object = if flags != 0 { Some(default) } else { first };
        if enabled == 0 {
            self.net.receiver = None;
        } else if let Some(object) = object.and_then(|object| u32::try_from(object).ok()) {
            self.net.receiver = self.wqs.get(object).filter(|queue| !queue.is_send).map(|_| object);
        }
        Ok(())
    }
}
