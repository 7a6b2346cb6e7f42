//! The server's side of a look-up.

use uverbs_abi::cm::{Accept, ConnParam};

use super::super::id::Id;
use super::super::incoming::Incoming;
use super::super::parameters::place;
use super::ready::make_ready;
use crate::kernel::error::Result;
use crate::kernel::manager::Data;
use crate::verbs::qp::{QueuePair, Ud};

const OP: &str = "cm.answer";

/// The answer to a look-up, which names a queue pair; created by [`Incoming::accept`](super::super::Incoming::accept). If it is dropped, the
/// look-up is refused.
#[derive(Debug)]
#[must_use = "nothing happens before `send`"]
pub struct Answer {
    id: Id,
    qp_num: u32,
    data: ([u8; 256], u8),
}

impl Incoming<Ud> {
    /// Answers the look-up with this queue pair, which belongs to the [device](Self::device). If it is new, it is made ready with the queue
    /// key of the connection manager, so that receives can be posted before the answer is [sent](Answer::send). One queue pair can be the
    /// answer to any number of look-ups.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a queue pair of another device, or one that is ready with another queue key;
    /// those of [`QueuePair::modify`]. The look-up is then refused.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, qp: &mut QueuePair<Ud>) -> Result<Answer> {
        make_ready(OP, &self.id, qp)?;
        Ok(Answer { id: self.id, qp_num: qp.number(), data: ([0; 256], 0) })
    }
}

impl Answer {
    /// Data for the program at the other side.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more than 136 bytes: the look-up is then refused.
    pub fn private_data(mut self, data: &[u8]) -> Result<Self> {
        self.data = place(OP, Data::Answer, data, false)?;
        Ok(self)
    }

    /// Sends the answer. Nothing tells whether it arrives: if it is lost, the other side's kernel asks again, and the listener gets another
    /// [`Incoming`].
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone.
    ///
    /// # Kernel
    /// `ACCEPT` (`cma_send_sidr_rep`, cma.c, Linux 6.1).
    pub fn send(self) -> Result<()> {
        let (private_data, private_data_len) = self.data;
        let conn_param = ConnParam {
            qp_num: self.qp_num,
            private_data,
            private_data_len,
            valid: 1,
            ..ConnParam::default()
        };
        let (uid, id) = (self.id.uid, self.id.id);
        self.id.request(OP, &Accept { uid, conn_param, id, ..Accept::default() })
    }
}
