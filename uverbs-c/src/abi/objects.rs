//! The objects that callers hold pointers to.

use std::cell::Cell;
use std::sync::atomic::AtomicI32;

use super::{Cond, ContextOps, Function, Mutex, Pointer};

c_structs! {
    objects;

    struct Device = "ibv_device", 664 {
        0 _ops: [usize; 2];
        16 node_type: u32;
        20 transport_type: u32;
        24 name: [u8; 64];
        88 dev_name: [u8; 64];
        152 dev_path: [u8; 256];
        408 ibdev_path: [u8; 256];
    }

    struct Context = "ibv_context", 328 | 336 {
        0 device: Pointer;
        8 ops: ContextOps;
        264 cmd_fd: i32;
        268 async_fd: i32;
        272 num_comp_vectors: i32;
        280 mutex: Mutex;
        320 | 328 abi_compat: Pointer;
    }

    struct Pd = "ibv_pd", 16 {
        0 context: Pointer;
        8 handle: u32;
    }

    struct Mr = "ibv_mr", 48 {
        0 context: Pointer;
        8 pd: Cell<Pointer>;
        16 addr: Cell<Pointer>;
        24 length: Cell<usize>;
        32 handle: u32;
        36 lkey: Cell<u32>;
        40 rkey: Cell<u32>;
    }

    struct CompChannel = "ibv_comp_channel", 16 {
        0 context: Pointer;
        8 fd: i32;
        12 refcnt: AtomicI32;
    }

    struct CqEx = "ibv_cq_ex", 288 | 296 {
        0 context: Pointer;
        8 channel: Pointer;
        16 cq_context: Pointer;
        24 handle: u32;
        28 cqe: Cell<i32>;
        32 mutex: Mutex;
        72 | 80 cond: Cond;
        120 | 128 comp_events_completed: u32;
        124 | 132 async_events_completed: u32;
        128 | 136 comp_mask: u32;
        132 | 140 status: Cell<u32>;
        136 | 144 wr_id: Cell<u64>;
        144 | 152 start_poll: Function;
        152 | 160 next_poll: Function;
        160 | 168 end_poll: Function;
        168 | 176 read_opcode: Function;
        176 | 184 read_vendor_err: Function;
        184 | 192 read_byte_len: Function;
        192 | 200 read_imm_data: Function;
        200 | 208 read_qp_num: Function;
        208 | 216 read_src_qp: Function;
        216 | 224 read_wc_flags: Function;
        224 | 232 read_slid: Function;
        232 | 240 read_sl: Function;
        240 | 248 read_dlid_path_bits: Function;
        248 | 256 read_completion_ts: Function;
        256 | 264 read_cvlan: Function;
        264 | 272 read_flow_tag: Function;
        272 | 280 read_tm_info: Function;
        280 | 288 read_completion_wallclock_ns: Function;
    }

    struct Qp = "ibv_qp", 160 | 168 {
        0 context: Pointer;
        8 qp_context: Pointer;
        16 pd: Pointer;
        24 send_cq: Pointer;
        32 recv_cq: Pointer;
        40 srq: Pointer;
        48 handle: u32;
        52 qp_num: u32;
        56 state: Cell<u32>;
        60 qp_type: u32;
        64 mutex: Mutex;
        104 | 112 cond: Cond;
        152 | 160 events_completed: u32;
    }

    struct QpEx = "ibv_qp_ex", 360 | 368 {
        0 qp_base: Qp;
        160 | 168 comp_mask: u64;
        168 | 176 wr_id: Cell<u64>;
        176 | 184 wr_flags: Cell<u32>;
        184 | 192 wr_atomic_cmp_swp: Function;
        192 | 200 wr_atomic_fetch_add: Function;
        200 | 208 wr_bind_mw: Function;
        208 | 216 wr_local_inv: Function;
        216 | 224 wr_rdma_read: Function;
        224 | 232 wr_rdma_write: Function;
        232 | 240 wr_rdma_write_imm: Function;
        240 | 248 wr_send: Function;
        248 | 256 wr_send_imm: Function;
        256 | 264 wr_send_inv: Function;
        264 | 272 wr_send_tso: Function;
        272 | 280 wr_set_ud_addr: Function;
        280 | 288 wr_set_xrc_srqn: Function;
        288 | 296 wr_set_inline_data: Function;
        296 | 304 wr_set_inline_data_list: Function;
        304 | 312 wr_set_sge: Function;
        312 | 320 wr_set_sge_list: Function;
        320 | 328 wr_start: Function;
        328 | 336 wr_complete: Function;
        336 | 344 wr_abort: Function;
        344 | 352 wr_atomic_write: Function;
        352 | 360 wr_flush: Function;
    }

    struct Srq = "ibv_srq", 128 | 136 {
        0 context: Pointer;
        8 srq_context: Pointer;
        16 pd: Pointer;
        24 handle: u32;
        32 mutex: Mutex;
        72 | 80 cond: Cond;
        120 | 128 events_completed: u32;
    }

    struct Xrcd = "ibv_xrcd", 8 {
        0 context: Pointer;
    }

    struct Td = "ibv_td", 8 {
        0 context: Pointer;
    }

    struct Ah = "ibv_ah", 24 {
        0 context: Pointer;
        8 pd: Pointer;
        16 handle: u32;
    }

    struct Mw = "ibv_mw", 32 {
        0 context: Pointer;
        8 pd: Pointer;
        16 rkey: Cell<u32>;
        20 handle: u32;
        24 type_: u32;
    }

    struct Flow = "ibv_flow", 24 {
        0 comp_mask: u32;
        8 context: Pointer;
        16 handle: u32;
    }

    struct Counters = "ibv_counters", 8 {
        0 context: Pointer;
    }

    struct CompCntr = "ibv_comp_cntr", 16 {
        0 context: Pointer;
        8 handle: u32;
    }

    struct Wq = "ibv_wq", 152 | 160 {
        0 context: Pointer;
        8 wq_context: Pointer;
        16 pd: Pointer;
        24 cq: Pointer;
        32 wq_num: u32;
        36 handle: u32;
        40 state: Cell<u32>;
        44 wq_type: u32;
        48 post_recv: Function;
        56 mutex: Mutex;
        96 | 104 cond: Cond;
        144 | 152 events_completed: u32;
        148 | 156 comp_mask: u32;
    }

    struct RwqIndTable = "ibv_rwq_ind_table", 24 {
        0 context: Pointer;
        8 ind_tbl_handle: i32;
        12 ind_tbl_num: i32;
        16 comp_mask: u32;
    }
}
