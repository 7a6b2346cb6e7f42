//! What both sides say about a connection, and how a queue pair is made ready for it.

use uverbs_abi::cm::ConnParam;
use uverbs_abi::types::AccessFlags;
use uverbs_abi::write::QpAttr;

use super::id::{Id, is_iwarp};
use crate::kernel::error::{Error, Result};
use crate::kernel::manager::Data;
use crate::verbs::qp::{Attributes, QpState, QueuePair, Rc};

/// That there is room for private data.
fn check_room(op: &'static str, kind: Data, data: &[u8], is_iwarp: bool) -> Result<()> {
    let most = usize::from(kind.room(is_iwarp));
    match data.len() > most {
        true => Err(Error::beyond(op, "bytes of private data", data.len(), most)),
        false => Ok(()),
    }
}

/// Private data for which there is room, as a command contains it, with its length.
fn placed(data: &[u8]) -> ([u8; 256], u8) {
    let mut place = [0; 256];
    place[..data.len()].copy_from_slice(data);
    // Not more than the room.
    (place, data.len() as u8)
}

/// Private data as a command contains it, with its length.
pub(super) fn place(op: &'static str, kind: Data, data: &[u8], is_iwarp: bool) -> Result<([u8; 256], u8)> {
    check_room(op, kind, data, is_iwarp)?;
    Ok(placed(data))
}

/// The parameters of one side.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub(super) is_iwarp: bool,
    data: Vec<u8>,
    pub(super) reads: Option<u8>,
    pub(super) incoming_reads: Option<u8>,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    pub(super) rnr_timer: u8,
    pub(super) timeout: Option<u8>,
    pub(super) access: Option<AccessFlags>,
    /// The attributes for the states RTR and RTS, if they are known.
    last: Option<Box<[QpAttr; 2]>>,
}

/// What the kernel gives a peer that may read: all that a memory region can allow.
const ACCESS: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

impl Parameters {
    /// Moves the queue pair to INIT with these attributes, and returns parameters with the defaults.
    pub(super) fn begin(
        attributes: &QpAttr,
        last: Option<Box<[QpAttr; 2]>>,
        qp: &mut QueuePair<Rc>,
    ) -> Result<Self> {
        let is_iwarp = is_iwarp(attributes);
        let mut first = Attributes::of_manager(attributes);
        if !is_iwarp {
            // The kernel would give the rights only later, with the request.
            first = first.access(ACCESS);
        }
        qp.modify(&first).map_err(|error| {
            let hint = "the queue pair must be new, and of the device that the manager has found";
            error.hinted_if(crate::kernel::error::ErrorKind::InvalidInput, hint)
        })?;
        Ok(Self {
            is_iwarp,
            data: Vec::new(),
            reads: None,
            incoming_reads: None,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 12,
            timeout: None,
            access: None,
            last,
        })
    }

    pub(super) fn set_data(&mut self, op: &'static str, kind: Data, data: &[u8]) -> Result<()> {
        check_room(op, kind, data, self.is_iwarp)?;
        self.data = data.to_vec();
        Ok(())
    }

    /// The parameters of a command. The depths are those of the device unless they were given, and at most these.
    pub(super) fn of(&self, qp: &QueuePair<Rc>, most: (u8, u8)) -> Result<ConnParam> {
        let device = qp.shared().object().context().read_depths()?;
        let (private_data, private_data_len) = placed(&self.data);
        Ok(ConnParam {
            qp_num: qp.number(),
            private_data,
            private_data_len,
            responder_resources: self.incoming_reads.unwrap_or(most.0.min(device.incoming)),
            initiator_depth: self.reads.unwrap_or(most.1.min(device.own)),
            flow_control: 1,
            retry_count: self.retries,
            rnr_retry_count: self.rnr_retries,
            valid: 1,
            ..ConnParam::default()
        })
    }

    /// Sets the rights of the peer, where the kernel makes the queue pair ready.
    pub(super) fn allow(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        match self.access.filter(|_| self.is_iwarp) {
            Some(access) => qp.modify(&Attributes::alone().access(access)),
            None => Ok(()),
        }
    }

    /// Makes the queue pair ready, with the attributes that both sides have agreed upon. On iWARP the kernel does it.
    /// Before a reply has left, the kernel knows only what the other side wants: `said` is what this side will say.
    pub(super) fn make_ready(
        &self,
        op: &'static str,
        id: &Id,
        qp: &mut QueuePair<Rc>,
        said: Option<&ConnParam>,
    ) -> Result<()> {
        if self.is_iwarp {
            return self.allow(qp);
        }
        let asked;
        let [receive, send] = match &self.last {
            Some(known) => &**known,
            None => {
                asked = id.last_attributes(op)?;
                &asked
            }
        };
        // Its own timer is zero, which is the longest: 655 ms.
        let mut receive = Attributes::of_manager(receive).rnr_timer(self.rnr_timer);
        if let Some(access) = self.access {
            receive = receive.access(access);
        }
        if let Some(said) = said {
            receive = receive.incoming_reads(said.responder_resources);
        }
        qp.modify(&receive)?;
        let mut send = Attributes::of_manager(send);
        if let Some(timeout) = self.timeout {
            send = send.timeout(timeout);
        }
        if let Some(said) = said {
            send = send.outgoing_reads(said.initiator_depth);
        }
        qp.modify(&send)
    }

    /// Ends a queue pair that is being disconnected. On iWARP the kernel does it.
    pub(super) fn end(is_iwarp: bool, qp: &mut QueuePair<Rc>) -> Result<()> {
        if is_iwarp { Ok(()) } else { qp.modify(&Attributes::to(QpState::Error)) }
    }
}

/// The methods of a builder that has `parameters`.
macro_rules! parameters {
    ($builder:ident, $op:expr, $data:expr) => {
        impl $builder {
            /// Data for the program at the other side.
            ///
            /// # Errors
            /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if it is too long for this port: nothing has been sent then.
            pub fn private_data(mut self, data: &[u8]) -> Result<Self> {
                self.parameters.set_data($op, $data, data)?;
                Ok(self)
            }

            /// The queue pair, to post receives before the other side can send.
            pub fn queue_pair(&mut self) -> &mut QueuePair<Rc> {
                &mut self.ends.qp
            }

            /// Maximum number of outstanding reads and atomic operations of this side. Without this, as many as the device can, and the
            /// other side accepts.
            pub fn reads(mut self, count: u8) -> Self {
                self.parameters.reads = Some(count);
                self
            }

            /// Maximum number of outstanding reads and atomic operations of the other side. Without this, as many as the device can.
            pub fn incoming_reads(mut self, count: u8) -> Self {
                self.parameters.incoming_reads = Some(count);
                self
            }

            /// The access rights of the other side to this side's memory. Without this: reading, writing and atomic operations, which a
            /// memory region must allow too.
            pub fn access(mut self, access: AccessFlags) -> Self {
                self.parameters.access = Some(access);
                self
            }

            /// How often a request is sent again without an acknowledgement: up to 7, which is the default. Not on iWARP.
            pub fn retries(mut self, count: u8) -> Self {
                self.parameters.retries = count;
                self
            }

            /// How often a request is sent again if the other side has no receive posted: up to 6; 7, the default, means forever. Not on
            /// iWARP.
            pub fn rnr_retries(mut self, count: u8) -> Self {
                self.parameters.rnr_retries = count;
                self
            }

            /// How long the other side must wait if no receive is posted: a code, 12 by default, which is 0.64 ms. Not on iWARP.
            pub fn rnr_timer(mut self, code: u8) -> Self {
                self.parameters.rnr_timer = code;
                self
            }

            /// Time to wait for an acknowledgement: 4.096 µs * 2^n. Without this, the kernel's. Not on iWARP.
            pub fn timeout(mut self, code: u8) -> Self {
                self.parameters.timeout = Some(code);
                self
            }
        }
    };
}
pub(super) use parameters;
