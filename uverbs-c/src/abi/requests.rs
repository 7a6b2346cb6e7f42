//! Work requests.
//!
//! Unions of C are arrays of words here. Their contents depend on the operation:
//! - `wr`: remote address and key of reads and writes; remote address, operand, second operand and key of atomic operations; address
//!   handle, then queue pair number and queue key of datagrams.
//! - `bind_mw`: the window and its new key; for a large send, the address of the header, then its length and the segment size.

use super::Pointer;

c_structs! {
    values;

    struct SendWr = "ibv_send_wr", 128 {
        0 wr_id: u64;
        8 next: Pointer;
        16 sg_list: Pointer;
        24 num_sge: i32;
        28 opcode: u32;
        32 send_flags: u32;
        36 imm_data: u32;
        40 wr: [u64; 4];
        72 qp_type: u64;
        80 bind_mw: [u64; 2];
        96 bind_info ("bind_mw.bind_info"): MwBindInfo;
    }

    struct RecvWr = "ibv_recv_wr", 32 {
        0 wr_id: u64;
        8 next: Pointer;
        16 sg_list: Pointer;
        24 num_sge: i32;
    }

    struct MwBind = "ibv_mw_bind", 48 {
        0 wr_id: u64;
        8 send_flags: u32;
        16 bind_info: MwBindInfo;
    }

    struct MwBindInfo = "ibv_mw_bind_info", 32 {
        0 mr: Pointer;
        8 addr: u64;
        16 length: u64;
        24 mw_access_flags: u32;
    }

    struct DataBuf = "ibv_data_buf", 16 {
        0 addr: Pointer;
        8 length: usize;
    }

    struct PollCqAttr = "ibv_poll_cq_attr", 4 {
        0 comp_mask: u32;
    }
}
