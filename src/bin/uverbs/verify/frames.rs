//! Frames that arrive at a device: the soft device takes them by a call; others get those that they have sent themselves, if the port is
//! looped back.

use std::cell::RefCell;
use std::fs;
use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, Completion, CompletionQueue, Device, MemoryRegion, QueuePair, RawPacket, SendRequest,
    SoftDevice, Status,
};

use super::behaviours::{Frames, Held, LIMIT, Stopped, holds, same};

/// The wire of the embedded device.
pub(super) struct Injected(pub(super) SoftDevice);

impl Frames for Injected {
    fn send(&self, frame: &[u8]) -> Held {
        self.0.inject(frame);
        Ok(())
    }

    fn late(&self) -> Duration {
        Duration::ZERO
    }

    fn longest(&self) -> usize {
        JUMBO
    }
}

/// A frame that is longer than those of most networks.
const JUMBO: usize = 9000;
/// Longest frame of networks without such.
const LONGEST: usize = 1514;
/// Longest wait for a counter, which a card may update some time after the packets.
const LATE: Duration = Duration::from_secs(5);
/// Room for a frame.
const ROOM: usize = 2048;

/// A queue pair that sends frames.
pub(super) struct Own {
    sender: RefCell<Sender>,
    /// The hardware address of the port's network interface, if it is seen here. A switch would learn another one, or drop the frames.
    source: Option<[u8; 6]>,
}

struct Sender {
    qp: QueuePair<RawPacket>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Own {
    pub(super) fn new(device: &Device, port: u8) -> uverbs::Result<Self> {
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(4)?);
        let qp = pd.raw_packet(&cq).send_depth(4).receive_depth(1).connect(port)?;
        let memory = pd.register(ROOM, AccessFlags::LOCAL_WRITE)?;
        Ok(Self { sender: RefCell::new(Sender { qp, cq, memory }), source: hardware_address(device, port) })
    }
}

/// The hardware address of an interface of the port.
fn hardware_address(device: &Device, port: u8) -> Option<[u8; 6]> {
    let mut of_port = device.interfaces().iter().filter(|interface| interface.port == u32::from(port));
    of_port.find_map(|interface| {
        read_address(&fs::read_to_string(format!("/sys/class/net/{}/address", interface.name)).ok()?)
    })
}

/// Six bytes in hexadecimal digits, as sysfs has them.
fn read_address(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<_>> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes?.try_into().ok()
}

impl Frames for Own {
    fn send(&self, frame: &[u8]) -> Held {
        let Sender { qp, cq, memory } = &mut *self.sender.borrow_mut();
        memory.write(0, frame)?;
        let segments = [memory.segment(0..frame.len())?];
        qp.post_send(&[SendRequest::frame(1, &segments).signaled()])?;
        let (start, mut batch) = (Instant::now(), Completion::batch::<1>());
        while cq.poll(&mut batch) == 0 {
            holds("send a frame", start.elapsed() < LIMIT, "a completion within 20 s", "none")?;
        }
        same("the status of a frame that was sent", batch[0].status, Status::Success)
    }

    fn source(&self) -> Held<[u8; 6]> {
        let why = "its interface is not seen here, and no frames are sent without the address of one";
        self.source.ok_or_else(|| Stopped::Skipped(why.to_owned()))
    }

    fn late(&self) -> Duration {
        LATE
    }

    fn longest(&self) -> usize {
        LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_sysfs_has_it() {
        assert_eq!(read_address("52:54:00:12:34:56\n"), Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        for text in ["", "52:54", "52:54:00:12:34:zz", "00:00:00:00:00:00:00:00"] {
            assert_eq!(read_address(text), None, "{text}");
        }
    }
}
