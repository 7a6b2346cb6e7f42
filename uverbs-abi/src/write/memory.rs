//! Protection domains, memory, addresses, multicast.

layout! {
    /// Request of `ALLOC_PD`.
    struct AllocPd = "ib_uverbs_alloc_pd", 8 {
        0 response: u64, "Address of the response; used only by a write.";
    }

    /// Response of `ALLOC_PD`.
    struct AllocPdResp = "ib_uverbs_alloc_pd_resp", 4 {
        0 pd_handle: u32, "The new protection domain.";
    }

    /// Request of `DEALLOC_PD`.
    struct DeallocPd = "ib_uverbs_dealloc_pd", 4 {
        0 pd_handle: u32, "The protection domain.";
    }

    /// Request of `OPEN_XRCD`.
    struct OpenXrcd = "ib_uverbs_open_xrcd", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  fd: u32, "File that names the domain; all ones for none.";
        12 oflags: u32, "O_CREAT and O_EXCL, as in open.";
    }

    /// Response of `OPEN_XRCD`.
    struct OpenXrcdResp = "ib_uverbs_open_xrcd_resp", 4 {
        0 xrcd_handle: u32, "The domain.";
    }

    /// Request of `CLOSE_XRCD`.
    struct CloseXrcd = "ib_uverbs_close_xrcd", 4 {
        0 xrcd_handle: u32, "The domain.";
    }

    /// Request of `REG_MR`.
    struct RegMr = "ib_uverbs_reg_mr", 40 {
        0  response: u64, "Address of the response; used only by a write.";
        8  start: u64, "Address in the process.";
        16 length: u64, "Bytes.";
        24 hca_va: u64, "Address that the device shall use; same offset in its page as `start`.";
        32 pd_handle: u32, "Protection domain.";
        36 access_flags: u32, "See [`crate::types::AccessFlags`].";
    }

    /// Response of `REG_MR`.
    struct RegMrResp = "ib_uverbs_reg_mr_resp", 12 {
        0 mr_handle: u32, "The new region.";
        4 lkey: u32, "Local key.";
        8 rkey: u32, "Remote key.";
    }

    /// Request of `REREG_MR`.
    struct ReregMr = "ib_uverbs_rereg_mr", 48 {
        0  response: u64, "Address of the response; used only by a write.";
        8  mr_handle: u32, "The region; the response may say otherwise about its keys.";
        12 flags: u32, "What changes: bit 0 addresses, bit 1 protection domain, bit 2 access.";
        16 start: u64, "New address in the process.";
        24 length: u64, "New bytes.";
        32 hca_va: u64, "New address that the device shall use.";
        40 pd_handle: u32, "New protection domain.";
        44 access_flags: u32, "New access, see [`crate::types::AccessFlags`].";
    }

    /// Response of `REREG_MR`.
    struct ReregMrResp = "ib_uverbs_rereg_mr_resp", 8 {
        0 lkey: u32, "Local key.";
        4 rkey: u32, "Remote key.";
    }

    /// Request of `DEREG_MR`.
    struct DeregMr = "ib_uverbs_dereg_mr", 4 {
        0 mr_handle: u32, "The region.";
    }

    /// Request of `ALLOC_MW`.
    struct AllocMw = "ib_uverbs_alloc_mw", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  pd_handle: u32, "Protection domain.";
        12 mw_type: u8, "Type of window, 1 or 2.";
        13 reserved: [u8; 3], "Zero.";
    }

    /// Response of `ALLOC_MW`.
    struct AllocMwResp = "ib_uverbs_alloc_mw_resp", 8 {
        0 mw_handle: u32, "The new window.";
        4 rkey: u32, "Remote key.";
    }

    /// Request of `DEALLOC_MW`.
    struct DeallocMw = "ib_uverbs_dealloc_mw", 4 {
        0 mw_handle: u32, "The window.";
    }

    /// Routing part of an address.
    struct GlobalRoute = "ib_uverbs_global_route", 24 {
        0  dgid: [u8; 16], "GID of the destination.";
        16 flow_label: u32, "Flow label.";
        20 sgid_index: u8, "Index of the own GID.";
        21 hop_limit: u8, "Hop limit.";
        22 traffic_class: u8, "Traffic class.";
        23 reserved: u8, "Zero.";
    }

    /// An address.
    struct AhAttr = "ib_uverbs_ah_attr", 32 {
        0  grh: GlobalRoute, "Routing part, if `is_global`.";
        24 dlid: u16, "Local identifier of the destination.";
        26 sl: u8, "Service level.";
        27 src_path_bits: u8, "Low bits of the own local identifier.";
        28 static_rate: u8, "Limit of the rate, coded.";
        29 is_global: u8, "1 if the routing part is used.";
        30 port_num: u8, "Port, from 1.";
        31 reserved: u8, "Zero.";
    }

    /// Request of `CREATE_AH`.
    struct CreateAh = "ib_uverbs_create_ah", 56 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Not used.";
        16 pd_handle: u32, "Protection domain.";
        20 reserved: u32, "Zero.";
        24 attr: AhAttr, "The address.";
    }

    /// Response of `CREATE_AH`.
    struct CreateAhResp = "ib_uverbs_create_ah_resp", 4 {
        0 ah_handle: u32, "The new address handle.";
    }

    /// Request of `DESTROY_AH`.
    struct DestroyAh = "ib_uverbs_destroy_ah", 4 {
        0 ah_handle: u32, "The address handle.";
    }

    /// Request of `ATTACH_MCAST`.
    struct AttachMcast = "ib_uverbs_attach_mcast", 24 {
        0  gid: [u8; 16], "GID of the group.";
        16 qp_handle: u32, "The queue pair.";
        20 mlid: u16, "Local identifier of the group.";
        22 reserved: u16, "Zero.";
    }

    /// Request of `DETACH_MCAST`.
    struct DetachMcast = "ib_uverbs_detach_mcast", 24 {
        0  gid: [u8; 16], "GID of the group.";
        16 qp_handle: u32, "The queue pair.";
        20 mlid: u16, "Local identifier of the group.";
        22 reserved: u16, "Zero.";
    }
}
