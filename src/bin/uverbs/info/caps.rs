//! Capabilities of a device.

use serde_json::{Value, json};
use uverbs::abi::mlx5;
use uverbs::abi::types::{DeviceCapFlags, qp_type};
use uverbs::abi::write::{ExQueryDeviceResp, TmCaps};

use super::section::{Section, named};

const DEVICE: &[(u64, &str)] = &[
    (DeviceCapFlags::RESIZE_MAX_WR.bits(), "RESIZE_MAX_WR"),
    (DeviceCapFlags::BAD_PKEY_CNTR.bits(), "BAD_PKEY_CNTR"),
    (DeviceCapFlags::BAD_QKEY_CNTR.bits(), "BAD_QKEY_CNTR"),
    (DeviceCapFlags::RAW_MULTI.bits(), "RAW_MULTI"),
    (DeviceCapFlags::AUTO_PATH_MIG.bits(), "AUTO_PATH_MIG"),
    (DeviceCapFlags::CHANGE_PHY_PORT.bits(), "CHANGE_PHY_PORT"),
    (DeviceCapFlags::UD_AV_PORT_ENFORCE.bits(), "UD_AV_PORT_ENFORCE"),
    (DeviceCapFlags::CURR_QP_STATE_MOD.bits(), "CURR_QP_STATE_MOD"),
    (DeviceCapFlags::SHUTDOWN_PORT.bits(), "SHUTDOWN_PORT"),
    // Not in the kernel's list of what user space may see, but libibverbs has a name for it.
    (1 << 9, "INIT_TYPE"),
    (DeviceCapFlags::PORT_ACTIVE_EVENT.bits(), "PORT_ACTIVE_EVENT"),
    (DeviceCapFlags::SYS_IMAGE_GUID.bits(), "SYS_IMAGE_GUID"),
    (DeviceCapFlags::RC_RNR_NAK_GEN.bits(), "RC_RNR_NAK_GEN"),
    (DeviceCapFlags::SRQ_RESIZE.bits(), "SRQ_RESIZE"),
    (DeviceCapFlags::N_NOTIFY_CQ.bits(), "N_NOTIFY_CQ"),
    (DeviceCapFlags::MEM_WINDOW.bits(), "MEM_WINDOW"),
    (DeviceCapFlags::UD_IP_CSUM.bits(), "UD_IP_CSUM"),
    (DeviceCapFlags::XRC.bits(), "XRC"),
    (DeviceCapFlags::MEM_MGT_EXTENSIONS.bits(), "MEM_MGT_EXTENSIONS"),
    (DeviceCapFlags::MEM_WINDOW_TYPE_2A.bits(), "MEM_WINDOW_TYPE_2A"),
    (DeviceCapFlags::MEM_WINDOW_TYPE_2B.bits(), "MEM_WINDOW_TYPE_2B"),
    (DeviceCapFlags::RC_IP_CSUM.bits(), "RC_IP_CSUM"),
    (DeviceCapFlags::RAW_IP_CSUM.bits(), "RAW_IP_CSUM"),
    (DeviceCapFlags::MANAGED_FLOW_STEERING.bits(), "MANAGED_FLOW_STEERING"),
];
const EXTENDED: &[(u64, &str)] = &[
    (DeviceCapFlags::RAW_SCATTER_FCS.bits(), "RAW_SCATTER_FCS"),
    (DeviceCapFlags::PCI_WRITE_END_PADDING.bits(), "PCI_WRITE_END_PADDING"),
    (DeviceCapFlags::FLUSH_GLOBAL.bits(), "FLUSH_GLOBAL"),
    (DeviceCapFlags::FLUSH_PERSISTENT.bits(), "FLUSH_PERSISTENT"),
    (DeviceCapFlags::ATOMIC_WRITE.bits(), "ATOMIC_WRITE"),
];
/// The number of bits that have names in the listing. ibv_devinfo prints the others as "unknown", in rdma-core 56 and later too, and
/// listings are compared. JSON has all names.
const EXTENDED_LISTED: usize = 2;
const PAGING: &[(u64, &str)] = &[(1, "ODP_SUPPORT"), (2, "ODP_SUPPORT_IMPLICIT")];
const PAGING_TRANSPORT: &[(u64, &str)] = &[
    (1 << 0, "SUPPORT_SEND"),
    (1 << 1, "SUPPORT_RECV"),
    (1 << 2, "SUPPORT_WRITE"),
    (1 << 3, "SUPPORT_READ"),
    (1 << 4, "SUPPORT_ATOMIC"),
    (1 << 5, "SUPPORT_SRQ"),
    (1 << 6, "SUPPORT_FLUSH"),
    (1 << 7, "SUPPORT_ATOMIC_WRITE"),
];
/// The number of bits of `PAGING_TRANSPORT` that have names in the listing, as [`EXTENDED_LISTED`].
const PAGING_LISTED: usize = 6;
const RAW_PACKET: &[(u64, &str)] = &[
    (1 << 0, "C-VLAN stripping offload"),
    (1 << 1, "Scatter FCS offload"),
    (1 << 2, "IP csum offload"),
    (1 << 3, "Delay drop"),
];

/// `device_cap_flags` of the older half.
pub(super) fn flags(section: &mut Section, flags: u32) {
    section.text("device_cap_flags", format_args!("{flags:#010x}"));
    names(section, "device_cap_flags_names", flags.into(), DEVICE, DEVICE.len());
}

/// Names below the previous line. The listing has only the first ones.
fn names(section: &mut Section, key: &str, bits: u64, known: &[(u64, &str)], listed: usize) {
    section.flags(named(bits, &known[..listed]).iter().map(String::as_str));
    section.json.insert(key.to_owned(), named(bits, known).into());
}

/// Everything from on-demand paging to device memory, in ibv_devinfo's order.
pub(super) fn extended(
    section: &mut Section,
    caps: &ExQueryDeviceResp,
    driver: Option<&mlx5::QueryDeviceResp>,
) {
    let paging = caps.odp_caps;
    section.flag_list("general_odp_caps", named(paging.general_caps, PAGING));
    let by_transport = paging.per_transport_caps;
    for (key, bits) in [
        ("rc_odp_caps", by_transport.rc_odp_caps),
        ("uc_odp_caps", by_transport.uc_odp_caps),
        ("ud_odp_caps", by_transport.ud_odp_caps),
        ("xrc_odp_caps", caps.xrc_odp_caps),
    ] {
        section.remark(&format!("{key}:"));
        if bits == 0 {
            section.flags(["NO SUPPORT"]);
        }
        names(section, key, bits.into(), PAGING_TRANSPORT, PAGING_LISTED);
    }
    match caps.timestamp_mask {
        0 => unsupported(section, "completion_timestamp_mask", "completion_timestamp_mask not supported"),
        mask => {
            // This section is indented by one tab more than the others.
            let mut wide = Section::new(1, 7);
            wide.text("completion timestamp_mask", format_args!("{mask:#018x}"));
            section.text.push_str(&wide.text);
            section.json.insert("completion_timestamp_mask".to_owned(), format!("{mask:#018x}").into());
        }
    }
    match caps.hca_core_clock {
        0 => unsupported(section, "hca_core_clock", "core clock not supported"),
        clock => section.text("hca_core_clock", format_args!("{clock}kHZ")),
    }
    if caps.raw_packet_caps != 0 {
        section.flag_list("raw packet caps", named(caps.raw_packet_caps.into(), RAW_PACKET));
    }
    let flags = caps.device_cap_flags_ex;
    section.text("device_cap_flags_ex", format_args!("{flags:#X}"));
    names(section, "device_cap_flags_ex_names", flags >> 32 << 32, EXTENDED, EXTENDED_LISTED);
    large_sends(section, driver);
    hashing(section, caps, driver);
    section.number("max_wq_type_rq", caps.max_wq_type_rq);
    pacing(section, driver);
    tags(section, &caps.tm_caps);
    let moderation = caps.cq_moderation_caps;
    if moderation.max_cq_moderation_count != 0 && moderation.max_cq_moderation_period != 0 {
        let mut inner = Section::new(2, 4);
        inner.number("max_cq_count", moderation.max_cq_moderation_count);
        let period = moderation.max_cq_moderation_period;
        inner.field("max_cq_period", format_args!("{period} us"), period);
        section.text.push('\n');
        section.nest("cq moderation caps", inner);
        section.text.push('\n');
    }
    if caps.max_dm_size != 0 {
        let size = caps.max_dm_size;
        section.field("maximum available device memory", format_args!("{size}Bytes"), size);
        section.text.push('\n');
    }
}

fn unsupported(section: &mut Section, key: &str, text: &str) {
    section.remark(text);
    section.json.insert(key.to_owned(), Value::Null);
}

/// The kinds of queue pairs in a set, if there are any.
fn queue_pairs(section: &mut Section, types: u32, connected: bool) {
    let bit = |number: u8| 1_u64 << number;
    let names = [
        (bit(qp_type::RAW_PACKET), "SUPPORT_RAW_PACKET"),
        (bit(qp_type::UD), "SUPPORT_UD"),
        (bit(qp_type::RC), "SUPPORT_RC"),
    ];
    let known = if connected { &names[..] } else { &names[..2] };
    section.flag_list("supported_qp", named(types.into(), known));
}

fn large_sends(section: &mut Section, driver: Option<&mlx5::QueryDeviceResp>) {
    let mut inner = Section::new(2, 6);
    let caps = driver.map(|driver| driver.tso_caps);
    inner.number("max_tso", caps.map_or(0, |caps| caps.max_tso));
    if let Some(caps) = caps.filter(|caps| caps.max_tso != 0) {
        queue_pairs(&mut inner, caps.supported_qpts, false);
    }
    section.nest("tso_caps", inner);
}

fn hashing(section: &mut Section, caps: &ExQueryDeviceResp, driver: Option<&mlx5::QueryDeviceResp>) {
    let mut inner = Section::new(2, 8);
    let tables = caps.rss_caps;
    inner.number("max_rwq_indirection_tables", tables.max_rwq_indirection_tables);
    inner.number("max_rwq_indirection_table_size", tables.max_rwq_indirection_table_size);
    let (function, fields) = driver
        .map_or((0, 0), |driver| (driver.rss_caps.rx_hash_function, driver.rss_caps.rx_hash_fields_mask));
    inner.text("rx_hash_function", format_args!("{function:#x}"));
    inner.text("rx_hash_fields_mask", format_args!("{fields:#X}"));
    if tables.supported_qpts != 0 {
        queue_pairs(&mut inner, tables.supported_qpts, false);
    }
    section.nest("rss_caps", inner);
}

fn pacing(section: &mut Section, driver: Option<&mlx5::QueryDeviceResp>) {
    let mut inner = Section::new(2, 5);
    let caps = driver.map(|driver| driver.packet_pacing_caps);
    let (least, most) = caps.map_or((0, 0), |caps| (caps.qp_rate_limit_min, caps.qp_rate_limit_max));
    inner.field("qp_rate_limit_min", format_args!("{least}kbps"), least);
    inner.field("qp_rate_limit_max", format_args!("{most}kbps"), most);
    if let Some(caps) = caps.filter(|_| most != 0) {
        queue_pairs(&mut inner, caps.supported_qpts, true);
    }
    section.nest("packet_pacing_caps", inner);
}

fn tags(section: &mut Section, caps: &TmCaps) {
    if caps.max_num_tags == 0 {
        return unsupported(section, "tag_matching", "tag matching not supported");
    }
    let mut inner = Section::new(1, 5);
    inner.number("max_rndv_hdr_size", caps.max_rndv_hdr_size);
    inner.number("max_num_tags", caps.max_num_tags);
    inner.number("max_ops", caps.max_ops);
    inner.number("max_sge", caps.max_sge);
    inner.flag_list("flags", named((caps.flags & 1).into(), &[(1, "IBV_TM_CAP_RC")]));
    // The device has fields with these names too, so JSON keeps them apart.
    section.text.push_str(&inner.text);
    section.json.insert("tag_matching".to_owned(), json!(inner.json));
}
