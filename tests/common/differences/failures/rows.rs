//! The rows: in which cells a device differs, how, and why.

use super::super::{ALWAYS, NEVER, Version};
use super::{EVENTS, MEMORY, NEXT, PEER, SENDER, STATES};

/// A difference in some cells.
pub(super) struct Row {
    /// Its name in the table.
    pub(super) what: &'static str,
    /// The cells, with `*` for anything. Those without the soft device's text in a field do not have that change.
    pub(super) cells: &'static [&'static str],
    pub(super) changes: &'static [Change],
    pub(super) from: Version,
    pub(super) below: Version,
    /// The kernel's function and what it does, or the part of the virtual card.
    pub(super) why: &'static str,
}

/// One field.
pub(super) struct Change {
    pub(super) field: usize,
    /// What the soft device has in it, or a part of that.
    pub(super) soft: &'static str,
    /// What the device has instead.
    pub(super) here: &'static str,
}

const fn row(
    what: &'static str,
    cells: &'static [&'static str],
    changes: &'static [Change],
    why: &'static str,
) -> Row {
    Row { what, cells, changes, from: ALWAYS, below: NEVER, why }
}

const fn is(field: usize, soft: &'static str, here: &'static str) -> Change {
    Change { field, soft, here }
}

impl Row {
    const fn since(self, from: Version) -> Self {
        Self { from, ..self }
    }

    const fn before(self, below: Version) -> Self {
        Self { below, ..self }
    }
}

const KEY_RC: &[&str] = &["RC a send from *key of *", "RC a write from *key of *"];
const KEY_OTHERS: &[&str] =
    &["UC a send from *key of *", "UC a write from *key of *", "UD a send from *key of *"];
const BOUNDS_RC: &[&str] = &[
    "RC a send from one *",
    "RC a send from the end *",
    "RC a write from one *",
    "RC a write from the end *",
];
const BOUNDS_OTHERS: &[&str] = &[
    "UC a send from one *",
    "UC a send from the end *",
    "UC a write from one *",
    "UC a write from the end *",
    "UD a send from one *",
    "UD a send from the end *",
];
const INVALID_OTHERS: &[&str] =
    &["UC an invalidation of the key of a region", "UD a send with an address of another domain"];
const LATER: Version = (6, 12);
const KEYS: &str = "a key that leads nowhere has another status than bounds (`copy_data`, rxe_mr.c, 6.1)";
const FLUSHES: &str = "the requester moves the queue pair to the error state, and flushes the request with the others (`rxe_requester`, rxe_req.c, 6.12)";
const NO_SQE: &str =
    "rxe has no state in which sends alone have failed (`rxe_completer`, rxe_comp.c, 6.1 and 7.3)";
const MALFORMED: &str =
    "a receive that cannot take its message is malformed (RESPST_ERR_MALFORMED_WQE, rxe_resp.c, 6.1 and 7.3)";
const CHECKS: &str =
    "datagrams that are too long are dropped (`rxe_resp_check_length`, rxe_resp.c, 6.12 and 7.3)";
const PARTITIONS: &str =
    "the index is not compared with the table (`rxe_qp_chk_attr`, rxe_qp.c, 6.1 and 7.3)";

pub(super) const ON_RXE: &[Row] = &[
    row("a local key that leads nowhere, over RC", KEY_RC, &[is(SENDER, "1 LocalProtection", "1 LocalQpOperation")], KEYS)
        .before(LATER),
    row("a local key that leads nowhere, over RC", KEY_RC, &[is(SENDER, "1 LocalProtection", "1 Flushed")], FLUSHES)
        .since(LATER),
    row("local memory out of bounds, over RC", BOUNDS_RC, &[is(SENDER, "1 LocalProtection", "1 Flushed")], FLUSHES)
        .since(LATER),
    row(
        "an invalid request of its own, over RC",
        &["RC an invalidation of the key of a region"],
        &[is(SENDER, "1 LocalQpOperation", "1 Flushed")],
        FLUSHES,
    )
    .since(LATER),
    row(
        "a local key that leads nowhere, over UC and UD",
        KEY_OTHERS,
        &[is(SENDER, "1 LocalProtection", "1 LocalQpOperation, 10 Flushed")],
        NO_SQE,
    )
    .before(LATER),
    row(
        "a local key that leads nowhere, over UC and UD",
        KEY_OTHERS,
        &[is(SENDER, "1 LocalProtection", "1 Flushed, 10 Flushed")],
        NO_SQE,
    )
    .since(LATER),
    row(
        "local memory out of bounds, over UC and UD",
        BOUNDS_OTHERS,
        &[is(SENDER, "1 LocalProtection", "1 LocalProtection, 10 Flushed")],
        NO_SQE,
    )
    .before(LATER),
    row(
        "local memory out of bounds, over UC and UD",
        BOUNDS_OTHERS,
        &[is(SENDER, "1 LocalProtection", "1 Flushed, 10 Flushed")],
        NO_SQE,
    )
    .since(LATER),
    row(
        "an invalid request of its own, over UC and UD",
        INVALID_OTHERS,
        &[is(SENDER, "1 LocalQpOperation", "1 LocalQpOperation, 10 Flushed")],
        NO_SQE,
    )
    .before(LATER),
    row(
        "an invalid request of its own, over UC and UD",
        INVALID_OTHERS,
        &[is(SENDER, "1 LocalQpOperation", "1 Flushed, 10 Flushed")],
        NO_SQE,
    )
    .since(LATER),
    row(
        "an error of the sender's own, over UC and UD",
        &["UC a*", "UD a send from *", "UD a send with an address of another domain"],
        &[is(STATES, "SQE RTS", "ERR RTS"), is(NEXT, "SQE RTS", "ERR RTS")],
        NO_SQE,
    ),
    row(
        "a remote access error",
        &["RC *"],
        &[is(EVENTS, "peer QpAccessError", "-")],
        "a responder that enters the error state without a completion has no event (`rxe_responder`, rxe_resp.c, 6.1 and 6.12)",
    )
    .before((7, 2)),
    row(
        "an invalid request",
        &["RC *"],
        &[is(EVENTS, "peer QpRequestError", "-")],
        "as before; later kernels have an event for access errors alone (`do_qp_event`, rxe_resp.c, 7.3)",
    ),
    row(
        "a message too long for its receive over RC",
        &["RC a send*longer than *"],
        &[
            is(SENDER, "1 RemoteInvalidRequest", "1 RemoteOperation"),
            is(PEER, "20 LocalLength", "20 LocalQpOperation"),
        ],
        MALFORMED,
    ),
    row(
        "a message too long for its receive over UC",
        &["UC a send*longer than *"],
        &[is(PEER, "20 LocalLength", "20 LocalQpOperation")],
        MALFORMED,
    ),
    row(
        "a datagram too long for its receive",
        &["UD a send longer than its receive", "UD a send with immediate data longer than its receive"],
        &[is(PEER, "20 LocalLength, 21 Flushed", "20 LocalQpOperation, 21 Flushed")],
        MALFORMED,
    )
    .before(LATER),
    row(
        "a datagram and a receive without memory",
        &["UD a send longer than a receive without memory"],
        &[is(PEER, "20 LocalLength", "20 LocalQpOperation")],
        MALFORMED,
    )
    .before(LATER),
    row(
        "a datagram too long for its receive",
        &["UD a send longer than its receive", "UD a send with immediate data longer than its receive"],
        &[
            is(PEER, "20 LocalLength, 21 Flushed", "-"),
            is(STATES, "RTS ERR", "RTS RTS"),
            is(NEXT, "2 sent; -; RTS ERR", "2 sent; 20 received of 40; RTS RTS"),
        ],
        CHECKS,
    )
    .since(LATER),
    row(
        "a datagram and a receive without memory",
        &["UD a send longer than a receive without memory"],
        &[is(PEER, "20 LocalLength", "-"), is(STATES, "RTS ERR", "RTS RTS"), is(NEXT, "RTS ERR", "RTS RTS")],
        CHECKS,
    )
    .since(LATER),
    row(
        "a receive into memory that cannot be used",
        &["* a receive into *"],
        &[is(PEER, "20 LocalProtection", "20 LocalQpOperation")],
        MALFORMED,
    ),
    row(
        "a datagram that exceeds the region of its receive",
        &["UD a receive into one byte behind its region"],
        &[is(MEMORY, "-", "peer 16337+40")],
        "the header is written before the data is looked at (`execute`, rxe_resp.c, 6.1 and 7.3)",
    ),
    row(
        "an addition without room for its result",
        &["RC an addition into four bytes", "RC an addition into nothing"],
        &[is(SENDER, "1 LocalLength", "1 LocalProtection"), is(MEMORY, "-", "peer 0+1")],
        "the room is looked at when the result arrives (`do_atomic`, rxe_comp.c, 6.1 and 7.3)",
    ),
    row(
        "a read of a queue pair that has none in flight",
        &["RC a read of a queue pair that has none in flight"],
        &[
            is(SENDER, "1 LocalQpOperation, 10 Flushed", "-"),
            is(STATES, "ERR RTS", "RTS RTS"),
            is(NEXT, "2 Flushed; -; ERR RTS", "-; -; RTS RTS"),
        ],
        "it waits for the end of another one (`check_init_depth`, rxe_req.c, 6.1 and 7.3)",
    ),
    row(
        "a datagram longer than a packet",
        &["UD a datagram longer than a packet"],
        &[
            is(SENDER, "1 LocalLength", "1 sent"),
            is(STATES, "SQE RTS", "RTS RTS"),
            is(NEXT, "2 Flushed; -; SQE RTS", "2 sent; 20 received of 40; RTS RTS"),
        ],
        "it is dropped and reported as sent (`rxe_requester`, rxe_req.c, 6.1 and 7.3)",
    ),
    row(
        "a datagram to another port",
        &["UD a send to another port"],
        &[
            is(PEER, "-", "20 received of 48"),
            is(MEMORY, "-", "peer 8232+8"),
            is(NEXT, "20 received", "21 received"),
        ],
        "an interface of the kind dummy reaches itself by any address, and a datagram's destination is not looked at (`rxe_prepare`, rxe_net.c, and `check_addr`, rxe_recv.c, 6.1 and 7.3)",
    ),
    row(
        "the queue key of the sender's queue pair",
        &["UD a send with the queue key of its queue pair"],
        &[
            is(PEER, "20 received of 48", "-"),
            is(MEMORY, "peer 8232+8", "-"),
            is(NEXT, "21 received", "20 received"),
        ],
        "the number is sent as it is (`init_req_packet`, rxe_req.c, 6.1 and 7.3)",
    ),
    row(
        "a send with an earlier number than expected",
        &["RC a send with an earlier number than expected"],
        &[
            is(SENDER, "1 sent", "1 RetryExceeded, 10 Flushed"),
            is(STATES, "RTS RTS", "ERR RTS"),
            is(NEXT, "2 sent; 20 received of 0; RTS RTS", "2 Flushed; -; ERR RTS"),
        ],
        "it is acknowledged with the number of the last message, and there was none (`duplicate_request`, rxe_resp.c, 6.1 and 7.3)",
    ),
    row(
        "a read with an earlier number than expected",
        &["RC a read with an earlier number than expected"],
        &[
            is(SENDER, "1 read", "1 RetryExceeded, 10 Flushed"),
            is(STATES, "RTS RTS", "ERR RTS"),
            is(MEMORY, "sender 4096+8", "-"),
            is(NEXT, "2 sent; 20 received of 0; RTS RTS", "2 Flushed; -; ERR RTS"),
        ],
        "only a read that was executed is repeated (`find_resource`, rxe_resp.c, 6.1 and 7.3)",
    ),
    row(
        "another entry of the table of partitions",
        &["RC a send with another entry *", "UC a send with another entry *"],
        &[
            is(SENDER, "refused EINVAL", "1 sent"),
            is(PEER, "-", "20 received of 8"),
            is(STATES, "-", "RTS RTS"),
            is(MEMORY, "-", "peer 8192+8"),
            is(NEXT, "-", "2 sent; 21 received of 0; RTS RTS"),
        ],
        PARTITIONS,
    ),
    row(
        "another entry of the table of partitions, for datagrams",
        &["UD a send with another entry *"],
        &[
            is(SENDER, "refused EINVAL", "1 sent"),
            is(PEER, "-", "20 received of 48"),
            is(STATES, "-", "RTS RTS"),
            is(MEMORY, "-", "peer 8232+8"),
            is(NEXT, "-", "2 sent; 21 received of 40; RTS RTS"),
        ],
        PARTITIONS,
    ),
];

pub(super) const ON_MLX5: &[Row] = &[
    row(
        "a message too long for its receive",
        &["RC a send*longer than *"],
        &[is(EVENTS, "-", "peer QpRequestError")],
        "the virtual card has an event beside the status of the receive (`receive_reliable`, tests/vhca/src/transport/responder.rs)",
    ),
    row(
        "a write with immediate data that is refused",
        &["RC a write with immediate data to *"],
        &[is(PEER, "20 RemoteAccess", "20 Flushed"), is(EVENTS, "-", "peer QpAccessError")],
        "the virtual card refuses it before it takes a receive (`take_message`, tests/vhca/src/transport/responder.rs)",
    ),
    row(
        "a send that invalidates a key which cannot be invalidated",
        &["RC a send that invalidates *"],
        &[
            is(SENDER, "1 sent", "1 RemoteAccess, 10 Flushed"),
            is(PEER, "20 RemoteInvalidRequest", "20 Flushed"),
            is(STATES, "RTS ERR", "ERR ERR"),
            is(EVENTS, "-", "peer QpAccessError"),
            is(NEXT, "2 RetryExceeded, 10 Flushed", "2 Flushed"),
        ],
        "the virtual card refuses it (`take_message`, tests/vhca/src/transport/responder.rs); InfiniBand has it acknowledged first",
    ),
    row(
        "an invalidation of the key of a region",
        &["* an invalidation of the key of a region"],
        &[
            is(SENDER, "1 LocalQpOperation, 10 Flushed", "1 invalidated"),
            is(SENDER, "1 LocalQpOperation", "1 invalidated"),
            is(STATES, "ERR RTS", "RTS RTS"),
            is(STATES, "SQE RTS", "RTS RTS"),
            is(NEXT, "2 Flushed; -; ERR RTS", "2 sent; 20 received of 0; RTS RTS"),
            is(NEXT, "2 Flushed; -; SQE RTS", "2 sent; 20 received of 0; RTS RTS"),
        ],
        "the virtual card invalidates any key of the domain (`invalidate`, tests/vhca/src/mkey)",
    ),
    row(
        "an addition whose result has no place",
        &["RC an addition into a*", "RC an addition into the *", "RC an addition into one byte *"],
        &[is(MEMORY, "peer 0+1", "-")],
        "the virtual card looks at the place of the result first (`build`, tests/vhca/src/transport/requester.rs)",
    ),
    row(
        "a read of a queue pair that has none in flight",
        &["RC a read of a queue pair that has none in flight"],
        &[
            is(SENDER, "1 LocalQpOperation, 10 Flushed", "1 read"),
            is(STATES, "ERR RTS", "RTS RTS"),
            is(MEMORY, "-", "sender 4096+8"),
            is(NEXT, "2 Flushed; -; ERR RTS", "2 sent; 20 received of 0; RTS RTS"),
        ],
        "the card gets the logarithm of the number, which is not set for zero and then means one (`__mlx5_ib_modify_qp`, qp.c, 6.1)",
    ),
    row(
        "sends that are held back",
        &["* a send when sends are held back"],
        &[
            is(SENDER, "-", "refused EINVAL"),
            is(STATES, "SQD RTS", "-"),
            is(EVENTS, "sender SqDrained", "-"),
            is(NEXT, "-; -; SQD RTS", "-"),
        ],
        "the driver has no transition from RTS to SQD (`__mlx5_ib_modify_qp`, qp.c, 6.1)",
    ),
    row(
        "another entry of the table of partitions",
        &["RC a send with another entry *", "UC a send with another entry *"],
        &[
            is(SENDER, "refused EINVAL", "1 sent"),
            is(PEER, "-", "20 received of 8"),
            is(STATES, "-", "RTS RTS"),
            is(MEMORY, "-", "peer 8192+8"),
            is(NEXT, "-", "2 sent; 21 received of 0; RTS RTS"),
        ],
        "an InfiniBand port of the virtual card has 128 entries (`mlx5_query_hca_vport_pkey`, vport.c, 6.1)",
    ),
    row(
        "another entry of the table of partitions, for datagrams",
        &["UD a send with another entry *"],
        &[
            is(SENDER, "refused EINVAL", "1 sent"),
            is(PEER, "-", "20 received of 48"),
            is(STATES, "-", "RTS RTS"),
            is(MEMORY, "-", "peer 8232+8"),
            is(NEXT, "-", "2 sent; 21 received of 40; RTS RTS"),
        ],
        "as before",
    ),
    row(
        "a peer that answers another port",
        &["RC a send to a peer that answers another port", "UC a send to a peer that answers another port"],
        &[
            is(PEER, "-", "20 received of 8"),
            is(MEMORY, "-", "peer 8192+8"),
            is(NEXT, "2 sent; -;", "2 sent; 21 received of 0;"),
        ],
        "an InfiniBand port of the virtual card does not compare the sender's identifier with that of the connection (`receive`, tests/vhca/src/transport)",
    ),
    row(
        "an address of another domain",
        &["UD a send with an address of another domain"],
        &[
            is(SENDER, "1 LocalQpOperation", "1 sent"),
            is(PEER, "-", "20 received of 48"),
            is(STATES, "SQE RTS", "RTS RTS"),
            is(MEMORY, "-", "peer 8232+8"),
            is(NEXT, "2 Flushed; -; SQE RTS", "2 sent; 21 received of 40; RTS RTS"),
        ],
        "an address is no object of the card: it is a part of each request (`set_datagram_seg`, wr.c, 6.1)",
    ),
    row(
        "a datagram that exceeds the region of its receive",
        &["UD a receive into one byte behind its region"],
        &[is(MEMORY, "-", "peer 16337+40")],
        "the virtual card has written the header by then (`receive_datagram`, tests/vhca/src/transport/datagram.rs)",
    ),
];
