//! Attributes of a queue pair, to be changed together with its state.

use uverbs_abi::types::{AccessFlags, QpAttrMask};
use uverbs_abi::write::{ModifyQp, QpAttr, QpDest};
use zerocopy::FromZeros;

use super::QpState;
use crate::verbs::ah::Route;

/// The new state of a queue pair, and the attributes to set with it; see [`QueuePair::modify`](super::QueuePair::modify).
///
/// ```
/// use uverbs::{AccessFlags, Attributes, QpState};
///
/// let init = Attributes::to(QpState::Init).port(1).pkey_index(0).access(AccessFlags::REMOTE_WRITE);
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_qp_attr")]
#[must_use = "nothing happens before it is given to `modify`"]
pub struct Attributes {
    /// The request without the queue pair.
    request: ModifyQp,
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $field:ident, $bit:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(mut self, value: $type) -> Self {
                self.request.$field = value;
                self.with(QpAttrMask::$bit)
            }
        )*
    };
}

impl Attributes {
    /// Attributes for a transition to `state`.
    pub fn to(state: QpState) -> Self {
        let attr_mask = QpAttrMask::STATE.bits();
        Self { request: ModifyQp { qp_state: state.number(), attr_mask, ..ModifyQp::new_zeroed() } }
    }

    /// No attributes, and no transition.
    pub(crate) fn alone() -> Self {
        Self { request: ModifyQp::new_zeroed() }
    }

    /// The attributes that the connection manager returns.
    pub(crate) fn of_manager(attr: &QpAttr) -> Self {
        // The fields are narrower in the command than in the struct.
        let narrow = |field: u32| u8::try_from(field).unwrap_or(u8::MAX);
        let path = &attr.ah_attr;
        let dest = QpDest {
            dgid: path.grh.dgid,
            flow_label: path.grh.flow_label,
            dlid: path.dlid,
            sgid_index: path.grh.sgid_index,
            hop_limit: path.grh.hop_limit,
            traffic_class: path.grh.traffic_class,
            sl: path.sl,
            src_path_bits: path.src_path_bits,
            static_rate: path.static_rate,
            is_global: path.is_global,
            port_num: path.port_num,
            ..QpDest::new_zeroed()
        };
        Self {
            request: ModifyQp {
                attr_mask: attr.qp_attr_mask,
                qp_state: narrow(attr.qp_state),
                path_mtu: narrow(attr.path_mtu),
                qkey: attr.qkey,
                rq_psn: attr.rq_psn,
                sq_psn: attr.sq_psn,
                dest_qp_num: attr.dest_qp_num,
                qp_access_flags: attr.qp_access_flags,
                dest,
                pkey_index: attr.pkey_index,
                max_rd_atomic: attr.max_rd_atomic,
                max_dest_rd_atomic: attr.max_dest_rd_atomic,
                min_rnr_timer: attr.min_rnr_timer,
                port_num: attr.port_num,
                timeout: attr.timeout,
                retry_cnt: attr.retry_cnt,
                rnr_retry: attr.rnr_retry,
                ..ModifyQp::new_zeroed()
            },
        }
    }

    attributes! {
        /// Port, from 1.
        port: u8 => port_num, PORT;
        /// Index of the partition key in the port's table.
        pkey_index: u16 => pkey_index, PKEY_INDEX;
        /// The queue key that datagrams must contain.
        qkey: u32 => qkey, QKEY;
        /// Maximum packet size on the path: one of [`uverbs_abi::types::mtu`].
        path_mtu: u8 => path_mtu, PATH_MTU;
        /// Number of the queue pair on the other side: 24 bits.
        destination: u32 => dest_qp_num, DEST_QPN;
        /// The first packet sequence number that is received: 24 bits.
        receive_psn: u32 => rq_psn, RQ_PSN;
        /// The first packet sequence number that is sent: 24 bits.
        send_psn: u32 => sq_psn, SQ_PSN;
        /// Maximum number of outstanding reads and atomic operations from the other side.
        incoming_reads: u8 => max_dest_rd_atomic, MAX_DEST_RD_ATOMIC;
        /// Maximum number of outstanding reads and atomic operations to the other side.
        outgoing_reads: u8 => max_rd_atomic, MAX_QP_RD_ATOMIC;
        /// How long the other side must wait if no receive is posted: a code, 12 is 0.64 ms.
        rnr_timer: u8 => min_rnr_timer, MIN_RNR_TIMER;
        /// Time to wait for an acknowledgement: 4.096 µs * 2^n; 0 means forever.
        timeout: u8 => timeout, TIMEOUT;
        /// How often a request is sent again without an acknowledgement: up to 7.
        retries: u8 => retry_cnt, RETRY_CNT;
        /// How often a request is sent again if the other side has no receive posted: up to 6; 7 means forever.
        rnr_retries: u8 => rnr_retry, RNR_RETRY;
    }

    /// The access rights of the other side to this side's memory.
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.request.qp_access_flags = access.bits();
        self.with(QpAttrMask::ACCESS_FLAGS)
    }

    /// The route to the other side.
    pub fn route(mut self, route: &Route) -> Self {
        let attr = route.attr();
        self.request.dest = QpDest {
            dgid: attr.grh.dgid,
            flow_label: attr.grh.flow_label,
            dlid: attr.dlid,
            sgid_index: attr.grh.sgid_index,
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            sl: attr.sl,
            is_global: attr.is_global,
            port_num: attr.port_num,
            ..QpDest::new_zeroed()
        };
        self.with(QpAttrMask::AV)
    }

    fn with(mut self, attribute: QpAttrMask) -> Self {
        self.request.attr_mask |= attribute.bits();
        self
    }

    /// Which attributes are set.
    pub(super) fn mask(&self) -> QpAttrMask {
        QpAttrMask::from_bits_retain(self.request.attr_mask)
    }

    /// The request without the queue pair.
    pub(super) fn request(&self) -> &ModifyQp {
        &self.request
    }
}
