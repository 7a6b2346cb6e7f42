//! Capabilities: what the device reports that it can do.

use super::Status;
use super::port::ROCE_ADDRESSES;
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::capability::{
    atomic_caps, cmd_hca_cap, flow_table_fields_supported, flow_table_nic_cap, flow_table_prop_layout,
    per_protocol_networking_offload_caps, qos_cap, roce_cap,
};
use crate::ifc::command::{alloc_pd_in, query_hca_cap_in, query_hca_cap_out, set_hca_cap_in};
use crate::object::COUNTER_SETS;
use crate::port::LinkLayer;
use crate::queue::MOST_COMPRESSED;
use crate::steering::LOG_TABLE_SIZE;
use crate::transport::PORT;

const GENERAL: u32 = 0;
const ETHERNET: u32 = 1;
const PAGING: u32 = 2;
const ATOMIC: u32 = 3;
const ROCE: u32 = 4;
const FLOW_TABLE: u32 = 7;
const QOS: u32 = 0xc;
const GENERAL_2: u32 = 0x20;

/// `log_reserved_qpn_granularity` of `cmd_hca_cap_2`, which is in the header of rdma-core 65 and not in that of the kernel.
pub(crate) const LOG_RESERVED_QPNS: Field = Field::new(0x93, 5);

/// The fields of the two directions of flow tables.
const DOMAINS: [Field; 2] = [
    flow_table_nic_cap::flow_table_properties_nic_receive,
    flow_table_nic_cap::flow_table_properties_nic_transmit,
];

/// Bytes of one kind of capability.
const SIZE: usize = 4096;

/// If the device has paging (`pg`), it has it for no transport. The driver then creates an event queue for faults, which never occur, and
/// accepts memory of other devices.
static PAGING_VALUES: [u8; SIZE] = [0; SIZE];

/// The capabilities of a ConnectX-5 function without RoCE, without an embedded switch and without paging. Fields that are not listed are
/// zero, because each of them would enable a part of the driver that is not needed here.
#[rustfmt::skip]
const GENERAL_VALUES: &[(Field, u64)] = {
    use cmd_hca_cap::*;
    &[
        (port_type, 1), (num_ports, 1), (cqe_version, 1), (nic_flow_table, 1), (eth_net_offloads, 1),
        // Without this, the driver registers a memory region by a work request on a queue pair.
        (umr_modify_entity_size_disabled, 1),
        (xrc, 1), (ud, 1), (uc, 1), (rc, 1), (cd, 1), (cq_oi, 1), (cq_resize, 1), (cq_moderation, 1), (end_pad, 1),
        (log_max_qp_sz, 15), (log_max_qp, 16), (log_max_ra_req_qp, 4), (log_max_ra_res_qp, 4), (log_max_msg, 30),
        (log_max_srq_sz, 14), (log_max_srq, 16), (log_max_cq_sz, 22), (log_max_cq, 16), (log_max_eq_sz, 22), (log_max_eq, 7),
        (max_num_eqs, 64), (log_max_mkey, 16), (log_max_mrw_sz, 40), (log_max_klm_list_size, 16), (max_indirection, 4),
        (log_max_pd, 16), (log_max_xrcd, 16), (log_max_transport_domain, 16), (log_max_mcg, 12),
        (log_max_rq, 16), (log_max_sq, 16), (log_max_tir, 16), (log_max_tis, 16), (log_max_rmp, 16), (log_max_rqt, 16),
        (log_max_rqt_size, 11), (log_max_tis_per_sq, 3), (log_max_wq_sz, 15),
        (log_max_stride_sz_rq, 13), (log_min_stride_sz_rq, 4), (log_max_stride_sz_sq, 6), (log_min_stride_sz_sq, 6),
        (max_wqe_sz_sq, 1024), (max_wqe_sz_rq, 512),
        (uar_sz, 5), (log_pg_sz, 12), (num_of_uars_per_page, 1), (bf, 1), (log_bf_reg_size, 9),
        (max_flow_counter_15_0, 0xffff), (flow_counter_bulk_alloc, 0xff), (log_max_flow_counter_bulk, 15),
        (log_max_vlan_list, 8), (log_max_current_uc_list, 5), (log_max_current_mc_list, 5), (log_max_l2_table, 10),
        (device_frequency_mhz, 156), (device_frequency_khz, 156_250),
        // Sets of queue counters, which queues can change; and other counters.
        (max_qp_cnt, COUNTER_SETS - 1), (rts2rts_qp_counters_set_id, 1), (modify_rq_counter_set_id, 1),
        (out_of_seq_cnt, 1), (retransmission_q_counters, 1), (enhanced_error_q_counters, 1),
        (vport_counters, 1), (cc_query_allowed, 1),
        (cqe_compression, 1), (cqe_compression_max_num, MOST_COMPRESSED as u64),
    ]
};

/// Differences on an InfiniBand port. The sizes of its tables are codes: zero means 128 partition keys and 8 addresses.
#[rustfmt::skip]
const INFINIBAND_VALUES: &[(Field, u64)] = {
    use cmd_hca_cap::*;
    // Commands describe the port, not packets of subnet management.
    &[
        (port_type, 0), (ib_virt, 1), (eth_net_offloads, 0), (atomic, 1), (pkey_table_size, 0), (gid_table_size, 0), (max_qp_mcg, 240), (sctr_data_cqe, 1), (imaicl, 1),
    ]
};

/// Differences on a port with RoCE.
#[rustfmt::skip]
const ON_ROCE_VALUES: &[(Field, u64)] = {
    use cmd_hca_cap::*;
    &[(roce, 1), (atomic, 1), (max_qp_mcg, 240), (sctr_data_cqe, 1), (imaicl, 1)]
};

/// RoCE over UDP, by the bits of versions and of lower protocols: only the second version, over IPv4 and IPv6.
#[rustfmt::skip]
const ROCE_VALUES: &[(Field, u64)] = {
    use roce_cap::*;
    &[
        (roce_version, 1 << 2), (l3_type, 0b110), (roce_address_table_size, ROCE_ADDRESSES as u64),
        (r_roce_dest_udp_port, PORT as u64), (r_roce_min_src_udp_port, 0xc000), (r_roce_max_src_udp_port, 0xffff),
    ]
};

/// A table of 15 rates, in 1000 bits per second, if the general capabilities announce it (`qos`).
#[rustfmt::skip]
const QOS_VALUES: &[(Field, u64)] = {
    use qos_cap::*;
    &[
        (packet_pacing, 1), (packet_pacing_uid, 1), (packet_pacing_burst_bound, 1), (packet_pacing_typical_size, 1),
        (packet_pacing_min_rate, 1024), (packet_pacing_max_rate, 100_000_000), (packet_pacing_rate_table_size, 16),
    ]
};

/// Large sends are needed for the network interface, whose addresses RoCE uses.
const LOG_LARGE_SEND: u32 = 18;

/// Compare-and-swap and fetch-and-add of eight bytes, whose responses can be in the host's byte order.
#[rustfmt::skip]
const ATOMIC_VALUES: &[(Field, u64)] = {
    use atomic_caps::*;
    &[(supported_atomic_req_8B_endianness_mode_1, 1), (atomic_operations, 0b11), (atomic_size_qp, 8)]
};

#[rustfmt::skip]
const ETHERNET_VALUES: &[(Field, u64)] = {
    use per_protocol_networking_offload_caps::*;
    // No large sends: without them the driver creates no network interface, and does not use that part of its code.
    &[(csum_cap, 1), (vlan_cap, 1), (self_lb_en_modifiable, 1), (scatter_fcs, 1), (wqe_inline_mode, 1), (rss_ind_tbl_cap, 11), (tunnel_stateless_vxlan, 1), (tunnel_stateless_gre, 1)]
};

#[rustfmt::skip]
const FLOW_TABLE_VALUES: &[(Field, u64)] = {
    use flow_table_prop_layout::*;
    &[
        (ft_support, 1), (flow_counter, 1), (flow_modify_en, 1), (modify_root, 1), (identified_miss_table_mode, 1), (flow_table_modify, 1),
        (log_max_ft_size, LOG_TABLE_SIZE as u64), (max_ft_level, 255), (log_max_ft_num, 16), (log_max_flow, LOG_TABLE_SIZE as u64),
        (log_max_flow_counter, 0), (log_max_destination, 8),
    ]
};

/// The capabilities: the maximum values, and the current ones.
#[derive(Debug)]
pub(crate) struct Capabilities {
    general: [Vec<u8>; 2],
    ethernet: Vec<u8>,
    atomic: [Vec<u8>; 2],
    roce: Vec<u8>,
    flow_table: Vec<u8>,
    qos: Vec<u8>,
    general_2: Vec<u8>,
}

impl Default for Capabilities {
    fn default() -> Self {
        let filled = |values: &[(Field, u64)]| {
            let mut bytes = vec![0; SIZE];
            values.iter().for_each(|(field, value)| bytes.set(*field, *value));
            bytes
        };
        let mut flow_table = vec![0; SIZE];
        flow_table.set(flow_table_nic_cap::nic_rx_multi_path_tirs, 1_u32);
        for domain in DOMAINS {
            for (field, value) in FLOW_TABLE_VALUES {
                flow_table.set(field.within(domain), *value);
            }
            // The structure has a row for each field that can be matched, and no others.
            for (_, field) in flow_table_fields_supported::ALL {
                flow_table
                    .set(field.within(flow_table_prop_layout::ft_field_support.within(domain)), u64::MAX);
            }
        }
        let (general, atomic) = (filled(GENERAL_VALUES), filled(ATOMIC_VALUES));
        Self {
            general: [general.clone(), general],
            ethernet: filled(ETHERNET_VALUES),
            atomic: [atomic.clone(), atomic],
            roce: filled(ROCE_VALUES),
            flow_table,
            qos: filled(QOS_VALUES),
            // Only read if the general capabilities announce it (`hca_cap_2`).
            general_2: filled(&[(LOG_RESERVED_QPNS, 2)]),
        }
    }
}

impl Capabilities {
    /// Sets the capabilities that depend on the link of the port.
    pub(crate) fn set_link(&mut self, link: LinkLayer) {
        let values = match link {
            LinkLayer::Ethernet => &[],
            LinkLayer::Roce => ON_ROCE_VALUES,
            LinkLayer::InfiniBand => INFINIBAND_VALUES,
        };
        if link == LinkLayer::Roce {
            self.ethernet.set(per_protocol_networking_offload_caps::max_lso_cap, LOG_LARGE_SEND);
        }
        for (field, value) in values {
            self.general.iter_mut().for_each(|bytes| bytes.set(*field, *value));
        }
    }

    /// Whether the card claims to have the first version of RoCE.
    pub(super) fn has_roce_v1(&self) -> bool {
        self.roce.num(roce_cap::roce_version) & 1 != 0
    }

    /// Sets a field, as in `cmd_hca_cap.log_max_uctx=20`.
    ///
    /// # Errors
    /// A text that describes the mistake.
    pub(crate) fn set_by_text(&mut self, setting: &str) -> Result<(), String> {
        let parts = setting.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
        let ((structure, field), value) =
            parts.ok_or_else(|| format!("{setting}: STRUCTURE.FIELD=VALUE is wanted"))?;
        let value = vpci::control::number(value).ok_or_else(|| format!("{setting}: not a number"))?;
        self.set_by_name(structure, field, value)
    }

    /// Sets a field by the names of its structure and itself; the flow tables' fields for both directions.
    ///
    /// # Errors
    /// A text with the existing names.
    pub(crate) fn set_by_name(&mut self, structure: &str, name: &str, value: u64) -> Result<(), String> {
        let field =
            crate::ifc::find(structure, name).ok_or_else(|| format!("no field {structure}.{name}"))?;
        if field.width > 64 || field.width < 64 && value >> field.width != 0 {
            return Err(format!("{structure}.{name} has {} bits", field.width));
        }
        match structure {
            "cmd_hca_cap" => self.general.iter_mut().for_each(|bytes| bytes.set(field, value)),
            "atomic_caps" => self.atomic.iter_mut().for_each(|bytes| bytes.set(field, value)),
            "roce_cap" => self.roce.set(field, value),
            "qos_cap" => self.qos.set(field, value),
            "per_protocol_networking_offload_caps" => self.ethernet.set(field, value),
            "flow_table_nic_cap" => self.flow_table.set(field, value),
            "flow_table_prop_layout" => DOMAINS.into_iter().for_each(|domain| {
                self.flow_table.set(field.within(domain), value);
            }),
            "flow_table_fields_supported" => DOMAINS.into_iter().for_each(|domain| {
                let fields = flow_table_prop_layout::ft_field_support.within(domain);
                self.flow_table.set(field.within(fields), value);
            }),
            _ => return Err(format!("{structure} is no capability")),
        }
        Ok(())
    }

    /// Maximum payload of a large send in bytes; zero if there are none.
    pub(crate) fn most_large_send(&self) -> usize {
        match self.ethernet.num(per_protocol_networking_offload_caps::max_lso_cap) {
            0 => 0,
            log => 1 << log,
        }
    }

    /// A bit for each kind of general object.
    pub(super) fn general_objects(&self) -> u64 {
        self.general[1].wide(cmd_hca_cap::general_obj_types)
    }

    /// Most numbers of queue pairs that are reserved at once, as a power of two.
    pub(super) fn log_reserved_qpns(&self) -> u32 {
        if self.general[1].is(cmd_hca_cap::hca_cap_2) { self.general_2.num(LOG_RESERVED_QPNS) } else { 0 }
    }

    /// The size of the rate table, the least and the greatest rate, if there is a table.
    pub(super) fn rates(&self) -> Option<[u32; 3]> {
        use qos_cap::{packet_pacing_max_rate, packet_pacing_min_rate, packet_pacing_rate_table_size};
        let fields = [packet_pacing_rate_table_size, packet_pacing_min_rate, packet_pacing_max_rate];
        self.general[1].is(cmd_hca_cap::qos).then(|| fields.map(|field| self.qos.num(field)))
    }

    fn find(&self, kind: u32, current: bool) -> Option<&[u8]> {
        match kind {
            GENERAL => Some(&self.general[usize::from(current)]),
            ETHERNET => Some(&self.ethernet),
            // Only read if the general capabilities announce it.
            PAGING => Some(&PAGING_VALUES),
            ATOMIC => Some(&self.atomic[usize::from(current)]),
            ROCE => Some(&self.roce),
            FLOW_TABLE => Some(&self.flow_table),
            QOS => Some(&self.qos),
            GENERAL_2 => Some(&self.general_2),
            _ => None,
        }
    }
}

/// The lowest bit of the modifier selects the current or the maximum values.
pub(super) fn query(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let modifier = input.num(alloc_pd_in::op_mod);
    if input.is(query_hca_cap_in::other_function) {
        return Err(Status::BadParameter);
    }
    let found = device.capabilities.find(modifier >> 1, modifier & 1 == 1).ok_or(Status::BadParameter)?;
    output.put(query_hca_cap_out::capability, found);
    Ok(())
}

/// The driver may set the general capabilities: it sends back what it has read, with small changes. It may also set the byte order of
/// atomic responses, and then sends nothing else.
pub(super) fn set(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let wanted = input.part(set_hca_cap_in::capability);
    match input.num(alloc_pd_in::op_mod) >> 1 {
        GENERAL => {
            let len = wanted.len().min(SIZE);
            device.capabilities.general[1][..len].copy_from_slice(&wanted[..len]);
        }
        ATOMIC => {
            let mode = atomic_caps::atomic_req_8B_endianness_mode;
            device.capabilities.atomic[1].set(mode, wanted.wide(mode));
        }
        _ => return Err(Status::BadParameter),
    }
    Ok(())
}
