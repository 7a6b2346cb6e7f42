//! The ports, and their GIDs.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde_json::json;
use uverbs::abi::types::link_layer;
use uverbs::{Context, Gid, GidKind};

use super::section::Section;
use super::words;
use crate::Outcome;

/// One port; `transport` is libibverbs' number of the device's transport.
pub(super) fn port(context: &Context, number: u8, gids: &[Gid], transport: u8) -> Outcome<Section> {
    let answer = context.query_port(number)?;
    let attr = answer.legacy_resp;
    let mut port = Section::new(3, 6);
    port.text.push_str(&format!("\t\tport:\t{number}\n"));
    port.json.insert("port".to_owned(), number.into());
    port.coded("state", words::state(attr.state), attr.state);
    port.coded("max_mtu", words::bytes(attr.max_mtu), attr.max_mtu);
    port.coded("active_mtu", words::bytes(attr.active_mtu), attr.active_mtu);
    port.number("sm_lid", attr.sm_lid);
    port.number("port_lid", attr.lid);
    port.text("port_lmc", format_args!("{:#04x}", attr.lmc));
    port.text("link_layer", words::link(attr.link_layer));
    port.text("max_msg_sz", format_args!("{:#x}", attr.max_msg_sz));
    port.text("port_cap_flags", format_args!("{:#010x}", attr.port_cap_flags));
    port.text("port_cap_flags2", format_args!("{:#06x}", answer.port_cap_flags2));
    port.coded("max_vl_num", words::lanes(attr.max_vl_num), attr.max_vl_num);
    port.text("bad_pkey_cntr", format_args!("{:#x}", attr.bad_pkey_cntr));
    port.text("qkey_viol_cntr", format_args!("{:#x}", attr.qkey_viol_cntr));
    port.number("sm_sl", attr.sm_sl);
    port.number("pkey_tbl_len", attr.pkey_tbl_len);
    port.number("gid_tbl_len", attr.gid_tbl_len);
    port.number("subnet_timeout", attr.subnet_timeout);
    port.number("init_type_reply", attr.init_type_reply);
    let width = format!("{}X", words::width(attr.active_width));
    port.coded("active_width", &width, attr.active_width);
    // The wider field is zero on kernels that do not have it.
    let speed = match answer.active_speed_ex {
        0 => u32::from(attr.active_speed),
        speed => speed,
    };
    port.coded("active_speed", words::speed(speed), speed);
    if transport == 0 {
        port.coded("phys_state", words::physical(attr.phys_state), attr.phys_state);
    }
    let mut list = Vec::new();
    let here = gids.iter().filter(|gid| gid.port == u32::from(number) && gid.raw[8..] != [0; 8]);
    for gid in here {
        let ethernet = attr.link_layer == link_layer::ETHERNET;
        let (address, kind) = (address(gid), kind(gid.kind));
        let suffix = if ethernet { format!(", {kind}") } else { String::new() };
        let key = format!("GID[{:3}]", gid.index);
        port.text(&key, format_args!("{address}{suffix}"));
        port.json.remove(&key);
        list.push(json!({
            "index": gid.index,
            "gid": address,
            "type": kind,
            "interface": (gid.interface != 0).then_some(gid.interface),
        }));
    }
    port.json.insert("gids".to_owned(), list.into());
    port.text.push('\n');
    Ok(port)
}

fn kind(kind: GidKind) -> &'static str {
    match kind {
        GidKind::InfiniBand => "IB",
        GidKind::RoceV1 => "RoCE v1",
        GidKind::RoceV2 => "RoCE v2",
        _ => "unknown",
    }
}

/// RoCE v2 has addresses of IPv6; the others are printed in full.
fn address(gid: &Gid) -> String {
    let words: [u16; 8] =
        std::array::from_fn(|at| u16::from_be_bytes([gid.raw[2 * at], gid.raw[2 * at + 1]]));
    if gid.kind != GidKind::RoceV2 {
        return words.map(|word| format!("{word:04x}")).join(":");
    }
    match words {
        // As the C library prints an embedded address of IPv4; the standard library only knows ::ffff:a.b.c.d.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
            format!("::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => Ipv6Addr::from(gid.raw).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str, kind: GidKind) -> Gid {
        let raw = text.parse::<Ipv6Addr>().expect("an address").octets();
        Gid { raw, port: 1, index: 0, kind, interface: 0 }
    }

    #[test]
    fn addresses_look_as_the_c_library_prints_them() {
        for (text, wanted) in [
            ("fe80::a866:21ff:fe67:2270", "fe80::a866:21ff:fe67:2270"),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
            ("::192.0.2.1", "::192.0.2.1"),
            ("::1", "::1"),
            ("2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
        ] {
            assert_eq!(address(&gid(text, GidKind::RoceV2)), wanted);
        }
        assert_eq!(address(&gid("fe80::1", GidKind::RoceV1)), "fe80:0000:0000:0000:0000:0000:0000:0001");
    }
}
