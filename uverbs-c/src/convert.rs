//! Conversions for the library of the connection manager, and addresses from completions.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use nix::libc;
use uverbs::Route;
use uverbs::abi::write::{AhAttr, GlobalRoute, QpAttr as KernelQpAttr, QpCap, Wc};
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

fn way_back(context: &Context, port: u8, wc: &Wc, header: Option<&[u8; 40]>) -> Answer<AhAttr> {
    let attr = AhAttr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..AhAttr::new_zeroed()
    };
    if wc.wc_flags & HAS_HEADER == 0 {
        return Ok(attr);
    }
    let header = header.ok_or(EINVAL)?;
    // Neither an IPv6 header, which fills all 40 bytes, nor an IPv4 header.
    if header[0] >> 4 != 6 && header[20] >> 4 != 4 {
        return Err(Code::new(libc::EPROTONOSUPPORT));
    }
    let route = Route::back(port, &context.context.gid_table()?, header)?;
    // An IPv4 header is in the second half.
    let is_ipv4 = route.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff] && header[0] >> 4 != 6;
    let [_, first, second, third, ..] = *header;
    let flow_label = u32::from_be_bytes([0, first & 0xf, second, third]);
    let grh = GlobalRoute {
        dgid: route.gid,
        flow_label: if is_ipv4 { 0 } else { flow_label },
        sgid_index: route.gid_index,
        hop_limit: if is_ipv4 { header[28] } else { header[7] },
        traffic_class: route.traffic_class,
        reserved: 0,
    };
    Ok(AhAttr { grh, is_global: 1, ..attr })
}

pub(crate) extern "C" fn init_ah_from_wc(
    context: Option<&Context>,
    port: u8,
    wc: Option<&Wc>,
    header: Option<&[u8; 40]>,
    attr: Option<&mut MaybeUninit<AhAttr>>,
) -> c_int {
    let init = || {
        let way = way_back(context.ok_or(EINVAL)?, port, wc.ok_or(EINVAL)?, header)?;
        attr.ok_or(EINVAL)?.write(way);
        Ok(())
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
        way_back(context, port, wc.ok_or(EINVAL)?, header)
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

/// The same for calls that return an object.
pub(crate) extern "C" fn unsupported_object() -> Pointer {
    EOPNOTSUPP.set();
    Pointer::NULL
}

/// For calls that return nothing.
pub(crate) extern "C" fn nothing() {}

/// The same for calls that return a file descriptor.
pub(crate) extern "C" fn unsupported_minus_one() -> c_int {
    minus_one(Err(EOPNOTSUPP))
}

/// For calls that return whether something holds.
pub(crate) extern "C" fn no() -> bool {
    false
}
