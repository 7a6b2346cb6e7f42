//! Features, the driver's information about its host, and statistics.

use super::{Answer, Command, EMPTY, Status};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::{DOORBELL_BAR, Device};

/// Numbers of features (`efa_admin_aq_feature_id`).
mod id {
    pub(super) const DEVICE: u8 = 1;
    pub(super) const AENQ: u8 = 2;
    pub(super) const NETWORK: u8 = 3;
    pub(super) const QUEUES: u8 = 4;
    pub(super) const HINTS: u8 = 5;
    pub(super) const HOST: u8 = 6;
    pub(super) const EVENT_QUEUES: u8 = 7;
    pub(super) const QUEUES_2: u8 = 9;
}

/// Size of the host information in bytes (`struct efa_admin_host_info`).
const HOST_INFO: usize = 180;
/// The existing asynchronous events: fatal, warning, notification, keep-alive.
const AENQ_GROUPS: u32 = 0x1e;

impl Device {
    pub(super) fn get_feature(&self, payload: &[u8]) -> Result<Answer, Status> {
        let number = payload.u8(13);
        let limits = &self.limits;
        if number > 63 || limits.supported_features >> number & 1 == 0 {
            return Err(Status::Unsupported);
        }
        let mut answer = EMPTY;
        match number {
            id::DEVICE => {
                answer.put_u64(8, limits.supported_features);
                answer.put_u64(16, limits.page_size_cap);
                answer.put_u32(24, 1); // firmware
                answer.put_u32(28, 1); // admin interface
                answer.put_u32(32, 0xefa);
                answer.put_u16(36, DOORBELL_BAR);
                answer.put(38, &[48, 64]); // bits of physical and virtual addresses
                answer.put_u32(40, limits.device_caps);
                answer.put_u32(44, limits.max_rdma_size);
                answer.put_u64(48, self.gid.guid());
                answer.put_u16(56, limits.link_speed);
            }
            id::AENQ => {
                answer.put_u32(8, AENQ_GROUPS);
                answer.put_u32(12, self.aenq.enabled);
            }
            id::NETWORK => {
                answer.put(8, &self.gid.0);
                answer.put_u32(24, limits.mtu);
            }
            id::QUEUES => self.describe_queues(&mut answer),
            id::HINTS => {}
            id::EVENT_QUEUES => {
                answer.put_u32(8, limits.max_eq);
                answer.put_u32(12, limits.max_eq_depth);
                answer.put_u32(16, 1); // completions
            }
            id::QUEUES_2 => {
                answer.put_u16(8, limits.inline_buf_size_ex);
                answer.put_u32(16, limits.counter_events);
                answer.put_u32(20, limits.max_event_counters);
                answer.put_u64(24, limits.max_counter_value);
            }
            _ => return Err(Status::Unsupported),
        }
        Ok(answer)
    }

    fn describe_queues(&self, answer: &mut Answer) {
        let limits = &self.limits;
        let words = [
            (8, limits.max_qp),
            (12, limits.max_sq_depth),
            (16, limits.inline_buf_size),
            (20, limits.max_rq_depth),
            (24, limits.max_cq),
            (28, limits.max_cq_depth),
            (40, limits.max_mr),
            (44, limits.max_mr_pages),
            (48, limits.max_pd),
            (52, limits.max_ah),
            (56, limits.max_llq_size),
        ];
        let halves = [
            (32, limits.sub_cqs_per_cq),
            (34, limits.min_sq_depth),
            (36, limits.max_wr_send_sges),
            (38, limits.max_wr_recv_sges),
            (60, limits.max_wr_rdma_sges),
            (62, limits.max_tx_batch),
        ];
        words.into_iter().for_each(|(at, value)| answer.put_u32(at, value));
        halves.into_iter().for_each(|(at, value)| answer.put_u16(at, value));
    }

    pub(super) fn set_feature(&mut self, command: &Command) -> Result<Answer, Status> {
        let payload = &command.payload[..];
        match payload.u8(13) {
            id::AENQ => {
                let enabled = payload.u32(20);
                if enabled & !AENQ_GROUPS != 0 {
                    return Err(Status::Illegal);
                }
                self.aenq.enabled = enabled;
            }
            id::HOST if command.has_control() && payload.u32(0) as usize >= HOST_INFO => {
                let mut host = vec![0; HOST_INFO];
                self.memory.read(payload.u64(4), &mut host)?;
                self.host = host;
            }
            id::HOST => return Err(Status::Illegal),
            _ => return Err(Status::Unsupported),
        }
        Ok(EMPTY)
    }

    pub(super) fn get_statistics(&self, payload: &[u8]) -> Result<Answer, Status> {
        // There are no statistics of one queue.
        let values = self
            .statistics
            .of_type(payload.u8(12))
            .filter(|_| payload.u8(13) == 0)
            .ok_or(Status::Unsupported)?;
        let mut answer = EMPTY;
        values.into_iter().enumerate().for_each(|(i, value)| answer.put_u64(8 + i * 8, value));
        Ok(answer)
    }
}
