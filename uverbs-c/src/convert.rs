//! Conversions for the library of the connection manager, and addresses from completions.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use nix::libc;
use uverbs::abi::write::{AhAttr, GlobalRoute, QpAttr as KernelQpAttr, QpCap, Wc};
use uverbs::raw::{NoRoute, RoutingHeader};
use zerocopy::FromZeros;

use crate::abi::{QpAttr, SaPathRec, UserPathRec};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, minus_one, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::pd::{Ah, Pd, create_ah};
use crate::qp::Qp;

pub(crate) extern "C" fn copy_ah_attr_from_kern(to: Option<&mut AhAttr>, from: Option<&AhAttr>) {
    if let (Some(to), Some(from)) = (to, from) {
        *to = AhAttr { reserved: 0, ..*from };
    }
}

/// `qp_state`, the state to which the queue pair is to change, keeps the caller's value.
pub(crate) extern "C" fn copy_qp_attr_from_kern(to: Option<&mut QpAttr>, from: Option<&KernelQpAttr>) {
    let (Some(to), Some(from)) = (to, from) else { return };
    *to = QpAttr {
        qp_state: to.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: QpCap {
            max_send_wr: from.max_send_wr,
            max_recv_wr: from.max_recv_wr,
            max_send_sge: from.max_send_sge,
            max_recv_sge: from.max_recv_sge,
            max_inline_data: from.max_inline_data,
        },
        ah_attr: from.ah_attr,
        alt_ah_attr: from.alt_ah_attr,
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        rate_limit: to.rate_limit,
        _rest: 0,
    };
}

macro_rules! path_records {
    ($from:ident as $to:ident: $($field:ident)*) => {
        $to { $($field: $from.$field as _,)* }
    };
    ($from:ident as $to:ident) => {
        path_records!($from as $to: dgid sgid dlid slid raw_traffic flow_label hop_limit traffic_class
            reversible numb_path pkey sl mtu_selector mtu rate_selector rate packet_life_time_selector
            packet_life_time preference)
    };
}

pub(crate) extern "C" fn copy_path_rec_from_kern(
    to: Option<&mut MaybeUninit<SaPathRec>>,
    from: Option<&UserPathRec>,
) {
    if let (Some(to), Some(from)) = (to, from) {
        to.write(path_records!(from as SaPathRec));
    }
}

pub(crate) extern "C" fn copy_path_rec_to_kern(
    to: Option<&mut MaybeUninit<UserPathRec>>,
    from: Option<&SaPathRec>,
) {
    if let (Some(to), Some(from)) = (to, from) {
        to.write(path_records!(from as UserPathRec));
    }
}

/// `IBV_WC_GRH`.
const HAS_HEADER: u32 = 1;

/// The parts of the address that do not depend on the kind of the header. As libibverbs does (`set_ah_attr_generic_fields`, verbs.c,
/// rdma-core 65), the flow label is that of the first bytes, even if the valid header is one of IPv4 behind them, or if there is none.
fn way_back(port: u8, wc: &Wc, header: Option<&[u8; 40]>) -> AhAttr {
    let [_, first, second, third, ..] = *header.unwrap_or(&[0; 40]);
    let flow_label = u32::from_be_bytes([0, first & 0xf, second, third]);
    AhAttr {
        grh: GlobalRoute { flow_label, ..GlobalRoute::new_zeroed() },
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        is_global: (wc.wc_flags & HAS_HEADER != 0).into(),
        ..AhAttr::new_zeroed()
    }
}

/// `ibv_query_gid`, with which libibverbs goes through the table, returns EINVAL at its end.
impl From<NoRoute> for Code {
    fn from(why: NoRoute) -> Self {
        match why {
            NoRoute::NoHeader => Self::new(libc::EPROTONOSUPPORT),
            NoRoute::Multicast | NoRoute::NotOurs => EINVAL,
        }
    }
}

/// Adds what the header says to an address that has one.
fn route_back(context: &uverbs::Context, attr: &mut AhAttr, header: Option<&[u8; 40]>) -> Answer {
    if attr.is_global != 0 {
        let header = RoutingHeader::parse(header.ok_or(EINVAL)?)?;
        let way = header.back(attr.port_num, &context.gid_table()?)?;
        attr.grh = GlobalRoute { flow_label: attr.grh.flow_label, ..way };
    }
    Ok(())
}

pub(crate) extern "C" fn init_ah_from_wc(
    context: Option<&Context>,
    port: u8,
    wc: Option<&Wc>,
    header: Option<&[u8; 40]>,
    attr: Option<&mut MaybeUninit<AhAttr>>,
) -> c_int {
    let init = || {
        let (context, wc, attr) = (context.ok_or(EINVAL)?, wc.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        route_back(&context.context, attr.write(way_back(port, wc, header)), header)
    };
    minus_one(init())
}

pub(crate) extern "C" fn create_ah_from_wc(
    pd: Option<&Pd>,
    wc: Option<&Wc>,
    header: Option<&[u8; 40]>,
    port: u8,
) -> Option<Box<Ah>> {
    let way = || {
        let context = pd.ok_or(EINVAL)?.c.context.get::<Context>().ok_or(EINVAL)?;
        let mut attr = way_back(port, wc.ok_or(EINVAL)?, header);
        route_back(&context.context, &mut attr, header)?;
        Ok(attr)
    };
    or_null(way()).and_then(|attr| create_ah(pd, Some(&attr)))
}

/// Enhanced connection establishment: vendor, options, and a mask of what is valid.
pub(crate) type Ece = [u32; 3];

/// No driver here supports it.
pub(crate) extern "C" fn query_ece(_qp: Option<&Qp>, _ece: Option<&mut Ece>) -> c_int {
    returned(Err(EOPNOTSUPP))
}

pub(crate) extern "C" fn set_ece(_qp: Option<&Qp>, ece: Option<&Ece>) -> c_int {
    returned(ece.ok_or(EINVAL).and(Err(EOPNOTSUPP)))
}

/// Returns EOPNOTSUPP, for calls that are not supported.
pub(crate) extern "C" fn unsupported() -> c_int {
    returned(Err(EOPNOTSUPP))
}

/// Returns null and sets `errno` to EOPNOTSUPP, for calls that are not supported and return an object.
pub(crate) extern "C" fn unsupported_object() -> Pointer {
    EOPNOTSUPP.set();
    Pointer::NULL
}

/// For calls that return nothing.
pub(crate) extern "C" fn nothing() {}

/// Returns -1 and sets `errno` to EOPNOTSUPP, for calls that are not supported and return a file descriptor.
pub(crate) extern "C" fn unsupported_minus_one() -> c_int {
    minus_one(Err(EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use uverbs::SoftDevice;

    use super::*;

    /// IPv4 to the soft device's second GID, behind what an IPv6 packet has left in the buffer.
    const BEHIND_IPV6: [u8; 40] = [
        0x6a, 0xb1, 0x23, 0x45, 0, 60, 17, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
        0x45, 0x68, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0x40, 192, 0, 2, 7, 192, 0, 2, 1,
    ];

    fn answer(port: u8, wc_flags: u32, header: Option<&[u8; 40]>) -> (Answer, AhAttr) {
        let context = SoftDevice::default().open().unwrap();
        let wc = Wc { wc_flags, slid: 5, sl: 6, dlid_path_bits: 7, ..Wc::new_zeroed() };
        let mut attr = way_back(port, &wc, header);
        (route_back(&context, &mut attr, header), attr)
    }

    /// What libibverbs 65 writes.
    #[test]
    fn each_field_is_that_of_libibverbs() {
        let (result, attr) = answer(1, HAS_HEADER, Some(&BEHIND_IPV6));
        assert_eq!(result, Ok(()));
        assert_eq!((attr.dlid, attr.sl, attr.src_path_bits, attr.port_num, attr.is_global), (5, 6, 7, 1, 1));
        let grh = attr.grh;
        assert_eq!(
            (grh.hop_limit, grh.traffic_class, grh.sgid_index, grh.flow_label),
            (64, 0x68, 1, 0x12345)
        );
        assert_eq!(grh.dgid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7]);
        let (result, attr) = answer(1, 0, Some(&BEHIND_IPV6));
        assert_eq!((result, attr.is_global, attr.dlid, attr.grh.flow_label), (Ok(()), 0, 5, 0x12345));
        assert_eq!((attr.grh.dgid, attr.grh.hop_limit), ([0; 16], 0));
    }

    #[test]
    fn each_errno_is_that_of_libibverbs() {
        let errno = |port, header: &[u8; 40]| answer(port, HAS_HEADER, Some(header)).0.unwrap_err();
        assert_eq!(errno(1, &[0; 40]), Code::new(libc::EPROTONOSUPPORT));
        assert_eq!(errno(2, &BEHIND_IPV6), EINVAL);
        let mut header = BEHIND_IPV6;
        header[0] = 0;
        header[36] = 198;
        assert_eq!(errno(1, &header), EINVAL, "not ours");
        header[36] = 239;
        assert_eq!(errno(1, &header), EINVAL, "multicast");
        let mut header = [0; 40];
        (header[0], header[6]) = (0x60, 6);
        assert_eq!(errno(1, &header), Code::new(libc::EPROTONOSUPPORT), "TCP");
        assert_eq!(answer(1, HAS_HEADER, None).0, Err(EINVAL));
        assert_eq!(answer(1, HAS_HEADER, Some(&header)).1.is_global, 1, "written, as far as it is known");
    }
}
