//! The network interface: frames of the driver go to the wire, and those of the wire to the driver.

use std::io;

use vpci::bytes::BytesMut as _;
use vpci::wire::{Ends, Line};
use vpci::{Shared, lock};

use crate::device::Device;
use crate::hwc;
use crate::queue::Wq;

/// The types of completions (`enum mana_cqe_type`), with the bit of a completion of this interface (`MANA_CQE_COMPLETION`).
mod kind {
    const OWN: u8 = 1 << 6;
    pub(super) const RECEIVED: u8 = OWN | 1;
    pub(super) const FENCE: u8 = OWN | 3;
    pub(super) const SENT: u8 = OWN | 32;
}

/// A work queue with its completion queue.
#[derive(Debug)]
pub(crate) struct NetQueue {
    pub(crate) ring: Wq,
    pub(crate) is_send: bool,
    pub(crate) cq: u32,
}

/// Frames and bytes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) rx_frames: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_frames: u64,
    pub(crate) tx_bytes: u64,
}

/// The state of the interface.
#[derive(Debug)]
pub(crate) struct Net {
    /// The queue that receives.
    pub(crate) receiver: Option<u32>,
    pub(crate) doorbell: u32,
    pub(crate) counts: Counts,
    pub(crate) line: Option<Line>,
}

impl Default for Net {
    fn default() -> Self {
        Self { receiver: None, doorbell: hwc::DOORBELL, counts: Counts::default(), line: None }
    }
}

impl Net {
    /// As after a reset. The wire stays.
    pub(crate) fn clear(&mut self) {
        let line = self.line.take();
        *self = Self { line, ..Self::default() };
    }

    /// Sends a frame to the wire, where there is one.
    pub(crate) fn send(&mut self, frame: Vec<u8>) {
        if let Some(line) = &self.line {
            line.send(frame);
        }
    }
}

/// The completion that ends a receive queue.
pub(crate) fn fence() -> [u8; 4] {
    u32::from(kind::FENCE).to_le_bytes()
}

impl Device {
    /// The driver has written frames.
    pub(crate) fn transmit(&mut self, queue: u32, position: u32) {
        let Some(it) = self.wqs.get_mut(queue) else { return };
        it.ring.set_producer(position);
        loop {
            let Some(it) = self.wqs.get_mut(queue) else { return };
            let cq = it.cq;
            let wqe = match it.ring.take(&self.memory) {
                Ok(Some(wqe)) => wqe,
                Ok(None) => return,
                Err(why) => return self.complain(format!("send queue {queue}: {why}")),
            };
            let mut frame = Vec::new();
            for piece in &wqe.pieces {
                let mut bytes = vec![0; piece.len.min(1 << 16) as usize];
                let read = self.memory.read(piece.address, &mut bytes);
                self.note_fault(read);
                frame.extend(bytes);
            }
            self.net.counts.tx_frames += 1;
            self.net.counts.tx_bytes += frame.len() as u64;
            self.net.send(frame);
            let mut data = [0; 60];
            data.put_u32(0, kind::SENT.into());
            data.put_u32(8, wqe.at);
            self.post_completion(cq, &data, queue, true);
        }
    }

    /// A frame from the wire that is not for a queue pair.
    pub(crate) fn receive_frame(&mut self, frame: &[u8]) {
        let Some(queue) = self.net.receiver else { return };
        let Some(it) = self.wqs.get_mut(queue) else { return };
        let cq = it.cq;
        let wqe = match it.ring.take(&self.memory) {
            Ok(Some(wqe)) => wqe,
            // It is lost.
            Ok(None) => return,
            Err(why) => return self.complain(format!("receive queue {queue}: {why}")),
        };
        let Some(piece) = wqe.pieces.first().filter(|piece| piece.len as usize >= frame.len()) else {
            return;
        };
        let written = self.memory.write(piece.address, frame);
        self.note_fault(written);
        self.net.counts.rx_frames += 1;
        self.net.counts.rx_bytes += frame.len() as u64;
        let mut data = [0; 60];
        data.put_u32(0, kind::RECEIVED.into());
        data.put_u16(8, frame.len() as u16);
        data.put_u32(56, wqe.at);
        self.post_completion(cq, &data, queue, false);
    }

    /// A frame arrives over the wire.
    pub(crate) fn frame_arrives(&mut self, frame: &[u8]) {
        if !self.rdma_arrives(frame) {
            self.receive_frame(frame);
        }
    }
}

/// Connects a device to another.
///
/// # Errors
/// If its own socket cannot be created. The other one may be created later.
pub(crate) fn connect(ends: &Ends, device: &Shared<Device>) -> io::Result<()> {
    let to = Shared::clone(device);
    let line = vpci::wire::connect(ends, move |frame| lock(&to).frame_arrives(frame))?;
    lock(device).net.line = Some(line);
    Ok(())
}
