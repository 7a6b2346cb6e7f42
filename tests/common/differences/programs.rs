//! The cases in which random programs (`tests/random`) have another result on a device of the kernel than on the soft device.

/// A version of the kernel.
pub type Version = (u32, u32);

const ALWAYS: Version = (0, 0);
const NEVER: Version = (u32::MAX, 0);

/// A step, with `*` for anything, its two results, and the reason of the difference.
#[derive(Debug)]
pub struct Row {
    pub step: &'static str,
    pub soft: &'static str,
    pub device: &'static str,
    pub from: Version,
    pub below: Version,
    /// The program is the same after it: the following steps are compared.
    pub goes_on: bool,
    /// Everything that the device reports, the soft device reports too.
    pub fewer: bool,
    /// The same in the other direction.
    pub more: bool,
    /// The device has executed one of these steps before.
    pub behind: &'static [&'static str],
    /// The kernel's function, and what it does.
    pub why: &'static str,
}

const fn row(step: &'static str, soft: &'static str, device: &'static str, why: &'static str) -> Row {
    Row {
        step,
        soft,
        device,
        from: ALWAYS,
        below: NEVER,
        goes_on: false,
        fewer: false,
        more: false,
        behind: &[],
        why,
    }
}

impl Row {
    const fn goes_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    const fn fewer(self) -> Self {
        Self { fewer: true, ..self }
    }

    const fn more(self) -> Self {
        Self { more: true, ..self }
    }

    const fn since(self, from: Version) -> Self {
        Self { from, ..self }
    }

    const fn behind(self, behind: &'static [&'static str]) -> Self {
        Self { behind, ..self }
    }
}

const LAST: &str = "it says so each time that it looks at a broken queue pair, and forgets it with the queue pair (`flush_recv_queue`, rxe_resp.c)";

/// Which of the two kinds of retries ends first, for a message of several packets without a receive.
const fn timers(step: &'static str) -> Row {
    let why = "a receiver that is not ready refuses the packets behind the first as out of order (`check_psn`, rxe_resp.c, and `COMPST_ERROR_RETRY`, rxe_comp.c)";
    row(step, "ok* RnrRetryExceeded*", "ok* RetryExceeded*", why).since((6, 12)).goes_on()
}

const LATER: &str = "the kernel has the method, and the driver has not";
const PAGING: &str = "rxe pages on demand (`rxe_odp_mr_init_user`, rxe_odp.c)";
const PINNED: &str = "the memory was pinned for reading alone (`ib_umem_check_rereg`, umem.c)";

pub const ON_RXE: &[Row] = &[
    row(
        "send* send-inv *",
        "ok",
        "InvalidInput EINVAL",
        "the crate sends an invalidate only for what it knows to be bound (`rxe_do_invalidate_mw`, rxe_mw.c)",
    ),
    row("counter-caps *", "Unsupported EPROTONOSUPPORT", "Unsupported EOPNOTSUPP", LATER)
        .since((7, 3))
        .goes_on(),
    row("port-speed *", "Unsupported EPROTONOSUPPORT", "Unsupported EOPNOTSUPP", LATER)
        .since((7, 2))
        .goes_on(),
    row("mr* ondemand", "Unsupported EOPNOTSUPP", "ok", PAGING).since((7, 2)),
    row("poll*", "ok 1 *", "ok 1 *", "which of two completions comes first, and is not lost, means nothing")
        .behind(&["cq-resize * 1", "cq * * 1 *", "cq-plain * * 1"]),
    timers("poll*"),
    timers("drain*"),
    row("mr-access *", "*", "PermissionDenied EACCES", PINNED).since((6, 12)).goes_on(),
    row("events *", "ok*", "ok*QpLastWqeReached*", LAST).since((6, 12)).goes_on(),
    row("events *", "ok*QpLastWqeReached*", "ok*", LAST).since((6, 12)).goes_on(),
    row("events-awaited *", "ok*", "ok*16*", LAST).since((6, 12)).goes_on(),
    row("events-awaited *", "ok*16*", "ok*", LAST).since((6, 12)).goes_on(),
];

const ONLY_MLX5: &str = "mlx5 alone has these objects";
const BUSY: &str = "a work queue, which mlx5 alone has, uses it (`uverbs_try_lock_object` and usecnt, rdma_core.c and verbs.c)";

const STOPPED: &str = "a queue that stopped by itself is in another state than the driver tells the card (`modify_raw_packet_qp`, qp.c)";
const STOPS: &[&str] = &["frame *", "large-frame *", "inject *"];
const UNTOLD: &str =
    "nothing tells the virtual card of receives in a queue that has ended, as no doorbell does";
const ENDS: &[&str] = &["qp-fail *", "usual * err *", "modify * err *", "drain *"];
// A frame may be too long for its receive.
const FRAMES: &[&str] = &["inject*", "frame *"];

const ONE_QUEUE: &str =
    "of a queue pair with one queue the kernel says what it was brought to (`sqrq_state_to_qp_state`, qp.c)";
const WITHOUT_RECEIVES: &[&str] = &["qp * raw* * * * * * 0 *"];

const NAMELESS: &str = "the kernel has no name for the state in which the receive queue alone has stopped (`sqrq_state_to_qp_state`, qp.c)";
const DEFAULTS: &str =
    "the driver reads its template of these rules in the wrong place (docs/internals/kernels.md)";
const CLEANED: &str = "a reset, or the end, takes the queue pair's completions out of mlx5's queue, as the kernel does in its own (`__mlx5_ib_cq_clean`, cq.c)";
const RESETS: &[&str] = &["qp-reset *", "usual * reset *", "modify * reset *", "destroy-qp *", "drop-qp *"];

/// A family of verbs that the soft device does not have.
const fn family(step: &'static str, soft: &'static str) -> Row {
    row(step, soft, "*", ONLY_MLX5).goes_on()
}

const NO_ADDRESS: &str =
    "the soft device has none beside a card whose port has no address, which leads to no message";

/// For any port.
pub const ON_MLX5: &[Row] = &[
    family("pool *", "Unsupported EOPNOTSUPP"),
    family("pool-* *", "-"),
    family("*-pool* *", "-"),
    family("wq *", "Unsupported EOPNOTSUPP"),
    family("wq-* *", "-"),
    family("*-wq *", "-"),
    family("table *", "-"),
    family("table *", "Unsupported EOPNOTSUPP"),
    family("*-table *", "-"),
    family("rss *", "-"),
    family("*-rss *", "-"),
    // Snapshots of both kinds share their places.
    row("snapshot*", "*", "*", ONLY_MLX5).goes_on().behind(&["pool-snapshot *"]),
    row("sampler*", "*", "*", ONLY_MLX5).goes_on().behind(&["pool-snapshot *"]),
    row("drop-snapshot *", "*", "*", ONLY_MLX5).goes_on().behind(&["pool-snapshot *"]),
    row("rates *", "*", "*", ONLY_MLX5).goes_on().behind(&["pool-snapshot *"]),
    row("destroy-cq *", "ok", "Busy EBUSY", BUSY).behind(&["wq *"]),
    row("destroy-pd *", "ok", "Busy EBUSY", BUSY).behind(&["wq *"]),
    // Which step gets a fault depends on the number of commands that each step needs: mlx5 has one more for its first queue, and other
    // devices have commands that announce requests.
    row("open-failing *", "*", "*", "mlx5's queues need other commands"),
    row("*", "*", "*", "mlx5's queues need other commands").behind(&["open-failing *"]),
    row("device-mlx5 *", "ok false", "ok true", "a question to mlx5's driver").goes_on(),
    row("about *", "ok true true false", "ok true true true", "the soft device has no DEVX").goes_on(),
    row(
        "cq *",
        "InvalidInput EBADF",
        "InvalidInput EINVAL",
        "the crate looks at the size before the kernel looks at the channel",
    )
    .goes_on(),
    row("destroy-mr *", "ok", "Busy EBUSY", "requests of a work queue have it").behind(&["wq-recv *"]),
    row(
        "recv *",
        "Exhausted ENOMEM",
        "InvalidInput EINVAL",
        "without room for receives there is no queue for them",
    )
    .goes_on()
    .behind(&["qp * * * * * * * 0 *"]),
    row("recv *", "Exhausted ENOMEM", "ok", "the card's ring has more room than was asked for"),
    row(
        "drain *",
        "TimedOut ETIMEDOUT",
        "ok *",
        "the card's completion queue has more room than was asked for",
    )
    .behind(&["cq *", "cq-plain *", "cq-resize *"]),
    row("recv *", "ok", "Exhausted ENOMEM", "the soft device's ring has more room than was asked for"),
    row("recv *", "InvalidInput EINVAL", "*", "a receive of no segments has room for one on mlx5")
        .behind(&["qp * * * * * * * * 0 *"]),
    row("poll *", "ok *", "ok *", CLEANED).fewer().behind(RESETS),
    row("progress *", "ok *", "ok *", CLEANED).behind(RESETS),
    row("drain *", "ok *", "ok *", CLEANED).fewer().behind(RESETS),
    row("counter-caps *", "Unsupported EPROTONOSUPPORT", "Unsupported EOPNOTSUPP", LATER)
        .since((7, 3))
        .goes_on(),
    row("port-speed *", "Unsupported EPROTONOSUPPORT", "*", "QUERY_PORT_SPEED came with 7.2")
        .since((7, 2))
        .goes_on(),
    row(
        "mr* * ondemand",
        "InvalidInput EINVAL",
        "Unsupported EOPNOTSUPP",
        "what a later kernel says of paging on demand",
    )
    .since((6, 12))
    .goes_on(),
    row(
        "mr-dmabuf *",
        "Unsupported EOPNOTSUPP",
        "InvalidInput EINVAL",
        "the file is no dma-buf (`dma_buf_get`, dma-buf.c); the soft device, like rxe, does not look",
    )
    .goes_on(),
];

pub const ON_ETHERNET: &[Row] = &[
    // Frames are delivered to their receivers, so what follows is another program.
    row("pool-flow *", "-", "ok*", ONLY_MLX5),
    row("flow-rss *", "-", "ok*", ONLY_MLX5),
    row(
        "qp * raw* * * * * 0 *",
        "InvalidInput EINVAL",
        "ok*",
        "without a send queue mlx5 looks at no inline bytes (`calc_sq_size`, qp.c)",
    ),
    row("srq *", "Unsupported EOPNOTSUPP", "*", NO_ADDRESS),
    row("qp * rc *", "Unsupported EOPNOTSUPP", "*", NO_ADDRESS),
    row("qp * uc *", "Unsupported EOPNOTSUPP", "*", NO_ADDRESS),
    row("qp * ud *", "Unsupported EOPNOTSUPP", "*", NO_ADDRESS),
    row("qp * raw-strip *", "Unsupported EOPNOTSUPP", "*", "the soft device strips no tags"),
    row("qp * raw-large *", "Unsupported EOPNOTSUPP", "*", "the soft device cuts no frames"),
    row(
        "poll *",
        "ok * LocalLength*",
        "ok * LocalQpOperation*",
        "of a frame that is too short the virtual card says another error",
    )
    .behind(&["frame *"]),
    row(
        "frame *",
        "Exhausted ENOMEM",
        "InvalidInput EINVAL",
        "without room for sends there is no queue for them",
    )
    .goes_on()
    .behind(&["qp * raw* * * * * 0 *"]),
    row("frame *", "Unsupported EOPNOTSUPP", "*", "the soft device computes no checksums"),
    row(
        "flow* *",
        "ok*",
        "InvalidInput EINVAL",
        "one match with two counters is beyond `log_max_flow_counter` (`mlx5_add_flow_rules`, fs_core.c)",
    )
    .behind(&["flow *", "flow-of *"]),
    row("qp-fail *", "ok", "InvalidInput EINVAL", STOPPED).behind(STOPS),
    row("usual * *", "InvalidInput EINVAL", "ok", STOPPED).behind(STOPS),
    row("modify * *", "InvalidInput EINVAL", "ok", STOPPED).behind(STOPS),
    row("qp-query *", "ok 5 *", "ok 3 *", ONE_QUEUE).goes_on().behind(WITHOUT_RECEIVES),
    row("qp-state *", "ok SendQueueError", "ok ReadyToSend", ONE_QUEUE).goes_on().behind(WITHOUT_RECEIVES),
    row("qp-reset *", "ok", "InvalidInput EINVAL", STOPPED).behind(STOPS),
    row("usual * *", "ok", "InvalidInput EINVAL", STOPPED).behind(STOPS),
    row("modify * *", "ok", "InvalidInput EINVAL", STOPPED).behind(STOPS),
    row("drain *", "ok *", "InvalidInput EINVAL", STOPPED).behind(STOPS),
    row("poll *", "ok *", "ok *", UNTOLD).behind(ENDS),
    row("events *", "ok * CqError*", "ok *", UNTOLD).behind(ENDS),
    row("poll *", "ok * Flushed*", "ok *", UNTOLD).behind(FRAMES),
    row("drain *", "ok * Flushed*", "ok *", UNTOLD).behind(FRAMES),
    row("progress *", "ok *", "ok *", UNTOLD).behind(FRAMES),
    row("qp-state *", "ok Error", "InvalidInput EINVAL", NAMELESS).goes_on().behind(&["inject *", "frame *"]),
    row("qp-query *", "ok 6 *", "InvalidInput EINVAL", NAMELESS).goes_on().behind(&["inject *", "frame *"]),
    row("flow-default *", "ok*", "InvalidInput EINVAL", DEFAULTS).since((7, 0)),
    row("flow * all-default *", "ok*", "InvalidInput EINVAL", DEFAULTS).since((7, 0)),
    row("flow * mc-default *", "ok*", "InvalidInput EINVAL", DEFAULTS).since((7, 0)),
    row("progress *", "ok *", "ok *", UNTOLD).behind(ENDS),
    row("drain *", "ok *", "ok *", UNTOLD).behind(ENDS),
    row(
        "port *",
        "ok 4",
        "ok 1",
        "without a network interface the card's port is down (tests/vhca/README.md)",
    )
    .goes_on(),
];

const NO_DRAINING: &str = "the driver has no step there (`optab` in `__mlx5_ib_modify_qp`, qp.c)";
const UNGUARDED: &str =
    "the crate holds such a request back only from a device that its key could harm (`Driver::guarded_keys`)";
const OF_GROUP: &str =
    "a group of InfiniBand has a local identifier of its own (`is_valid_mcast_lid`, verbs.c)";
const LIMIT: &str = "the driver arms no queue that it makes, so it is done behind that, and then the kernel looks at the limit (`mlx5_ib_modify_srq`, srq.c)";
const NO_FLOWS: &str = "a port of InfiniBand has no table for them (`get_flow_table`, fs.c)";
const UNSEEN: &str = "a card makes the event for what came before it was asked for one, too, if nobody has polled it (`mlx5_cq_arm`, cq.h, names the last that was)";
const KEY_FIRST: &str = "a card looks at the key of a write before it takes a receive; the soft device, as rxe, takes the receive first (`check_resource`, rxe_resp.c)";
const WITH_IMMEDIATE: &[&str] = &["send * write-imm *", "send-window * write-imm *"];
const ANSWERS: &[&str] = &["send* read *", "send* swap *", "send* add *"];
const PLACE_FIRST: &str = "the virtual card looks at where an answer goes to before it asks for it; the soft device, as rxe, when the answer is there (`do_read`, rxe_comp.c)";
const TOO_LONG: &str = "of a message that is too long for its receive the virtual card tells by an event too, besides the completion";
const CQ_ROOM: &str = "the card's completion queue has more room than was asked for";
const SMALL_CQ: &[&str] =
    &["cq * * 1 *", "cq * * 2 *", "cq * * 3 *", "cq-plain * * 1", "cq-resize * 1", "cq-resize * 4"];
const SEND_ROOM: &str =
    "more than was asked for fits into the one's ring or the other's: the card's is in blocks of 64 bytes";

pub const ON_INFINIBAND: &[Row] = &[
    row("modify * sqd *", "ok", "InvalidInput EINVAL", NO_DRAINING),
    row("usual * sqd *", "ok", "InvalidInput EINVAL", NO_DRAINING),
    row("send* send-inv *", "InvalidInput EINVAL", "ok", UNGUARDED),
    row("join * 0", "ok true", "InvalidInput EINVAL", OF_GROUP),
    row("join * 1", "ok true", "InvalidInput EINVAL", OF_GROUP),
    row("srq-resize *", "ok", "Unsupported EINVAL", "the driver resizes none (`mlx5_ib_modify_srq`, srq.c)"),
    row(
        "srq-resize *",
        "InvalidInput EINVAL",
        "Unsupported EINVAL",
        "the driver resizes none (`mlx5_ib_modify_srq`, srq.c)",
    )
    .goes_on(),
    row("srq * 4", "ok*", "InvalidInput EINVAL", LIMIT),
    row("srq * 17", "ok*", "InvalidInput EINVAL", LIMIT),
    row(
        "mr-access *",
        "Unsupported EOPNOTSUPP",
        "ok",
        "the soft device changes to the rights that rxe knows (`rxe_rereg_user_mr`, rxe_verbs.c), mlx5 to others too",
    ),
    row("mr-access *", "ok", "PermissionDenied EACCES", PINNED).since((6, 12)),
    row("flow *", "ok*", "Unsupported EOPNOTSUPP", NO_FLOWS),
    row("flow-of *", "ok*", "Unsupported EOPNOTSUPP", NO_FLOWS),
    row("channel-next *", "ok nothing", "ok q*", UNSEEN).behind(&["notify *"]),
    row("poll *", "ok *", "ok *RemoteAccess*", KEY_FIRST).behind(WITH_IMMEDIATE),
    row("drain *", "ok *", "ok *RemoteAccess*", KEY_FIRST).behind(WITH_IMMEDIATE),
    row("progress *", "ok *", "ok *", KEY_FIRST).behind(WITH_IMMEDIATE),
    row("events *", "ok*", "ok*QpAccessError*", KEY_FIRST).behind(WITH_IMMEDIATE),
    row("poll *", "ok *", "ok *LocalProtection*", PLACE_FIRST).behind(ANSWERS),
    row("drain *", "ok *", "ok *LocalProtection*", PLACE_FIRST).behind(ANSWERS),
    row("datagram *", "ok", "Exhausted ENOMEM", SEND_ROOM),
    row("datagram *", "Exhausted ENOMEM", "ok", SEND_ROOM),
    row("send* *", "ok", "Exhausted ENOMEM", SEND_ROOM),
    row("send* *", "Exhausted ENOMEM", "ok", SEND_ROOM),
    row("poll-invalidated *", "ok *", "ok *", CLEANED).behind(RESETS),
    row("mr-memory *", "Busy EBUSY", "ok", CLEANED).behind(RESETS),
    row("mr-domain *", "Busy EBUSY", "ok", CLEANED).behind(RESETS),
    row("mr-access *", "Busy EBUSY", "ok", CLEANED).behind(RESETS),
    row("destroy-mr *", "Busy EBUSY", "ok", CLEANED).behind(RESETS),
    row("events-awaited *", "ok*", "ok*2*", TOO_LONG).goes_on().behind(&["send *", "send-window *"]),
    row("poll *", "ok *", "ok *", CQ_ROOM).more().behind(SMALL_CQ),
    row("drain *", "ok *", "ok *", CQ_ROOM).more().behind(SMALL_CQ),
    row(
        "send* *",
        "ok",
        "InvalidInput EINVAL",
        "the soft device's slots have room for as many pieces as for inline bytes",
    )
    .behind(&["qp * * * * * * * * 0 *"]),
    row("events *", "ok*", "ok*QpRequestError*", TOO_LONG).goes_on().behind(&["send *", "send-window *"]),
    row(
        "qp * 0 * 1048576",
        "InvalidInput EINVAL",
        "ok*",
        "without a send queue mlx5 looks at no inline bytes (`calc_sq_size`, qp.c)",
    ),
    row("pkey * 1 *", "NotFound ENOENT", "ok 0x0", "the card's table has room for more partitions").goes_on(),
    row(
        "gid * 1 *",
        "InvalidInput EINVAL",
        "NotFound ENODATA",
        "the card's table has room for more addresses",
    )
    .goes_on(),
];
