//! The one list of the cases in which a real device answers differently from the soft device.
//!
//! The answer in a row is asserted as strictly as any other. Each row that occurs is printed as `differs: WHAT | SOFT DEVICE | THIS
//! DEVICE`; `tests/vm/run` makes a table of these lines.

mod failures;

use std::fmt::Debug;

pub use self::failures::{Outcome, Outcomes};
use super::Target;

/// A version of the kernel.
type Version = (u32, u32);

/// The case, the kernels from the first version up to but not including the second, and their answer.
type Row = (&'static str, Version, Version, &'static str);

const ALWAYS: Version = (0, 0);
const NEVER: Version = (u32::MAX, 0);

const ON_RXE: &[Row] = &[
    // Features of later kernels.
    ("REG_MR, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    ("QUERY_PORT_SPEED, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    ("a capability array, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    ("paging on demand", (6, 12), (7, 2), "EOPNOTSUPP"),
    ("paging on demand", (7, 2), NEVER, "success"),
    ("advice", (7, 2), NEVER, "EINVAL"),
    // Its table of GIDs has 1024 entries, more than the number in a path can name.
    ("a GID beyond the table", ALWAYS, NEVER, "ENODATA"),
    // rxe does not check these (`rxe_qp_chk_attr`, rxe_qp.c); a card refuses them.
    ("a partition key that is not there", ALWAYS, NEVER, "success"),
    ("an MTU of 0", ALWAYS, NEVER, "success"),
    ("a number of 25 bits", ALWAYS, NEVER, "success"),
    ("too many reads in flight towards it", ALWAYS, NEVER, "success"),
    ("an RNR timer of 32", ALWAYS, NEVER, "success"),
    ("8 retries", ALWAYS, NEVER, "success"),
    ("8 RNR retries", ALWAYS, NEVER, "success"),
    ("a state assumed that it is not in", ALWAYS, NEVER, "success"),
    // Local errors: 6.1 has one status less than cards; later kernels do not keep the status and flush the request.
    ("a key of nothing: the sender", ALWAYS, (6, 12), "Some((1, LocalQpOperation))"),
    ("another file's key: the sender", ALWAYS, (6, 12), "Some((1, LocalQpOperation))"),
    ("a key of nothing: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    ("another file's key: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    ("the end of the region: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    ("an address that wraps: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    ("a region that cannot be invalidated: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    ("a memory window: the sender", (6, 12), NEVER, "Some((1, Flushed))"),
    // rxe treats this differently (RESPST_ERR_MALFORMED_WQE, rxe_resp.c).
    ("a message too long: the sender", ALWAYS, NEVER, "Some((1, RemoteOperation))"),
    ("a message too long: the receiver", ALWAYS, NEVER, "Some((20, LocalQpOperation))"),
    // The event of a responder that enters the error state without a completion; 7.2 has one for a wrong key or right.
    ("the event of a remote access error", ALWAYS, (7, 2), "None"),
    ("the event of an invalid request", ALWAYS, NEVER, "None"),
    // It finds no route (`rxe_requester`, rxe_req.c), which is a local error.
    ("a request on a link that is down", ALWAYS, (6, 12), "(4, LocalQpOperation)"),
    ("a request on a link that is down", (6, 12), NEVER, "(4, Flushed)"),
    // It loses the completion and continues. On a card the queue cannot be used any more, and queue pairs that complete in it enter the
    // error state.
    ("a full completion queue: a second event", ALWAYS, NEVER, "None"),
    ("a full completion queue: the sender", ALWAYS, NEVER, "\"RTS\""),
    ("a full completion queue: what is sent afterwards", ALWAYS, NEVER, "[(99, 0)]"),
];

/// On arm64, Debian's kernels have other data behind a template that is read beyond its end (`create_leftovers_rule`, fs.c, 7.3).
const ON_ARM: bool = cfg!(target_arch = "aarch64");

/// mlx5's driver on the virtual device of `tests/vhca`.
const ON_MLX5: &[Row] = &[
    // Features of later kernels.
    ("REG_MR, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    ("QUERY_PORT_SPEED, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    ("a capability array, which came with 7.2", (7, 2), NEVER, "EINVAL"),
    // Other errnos of later kernels.
    ("paging on demand", (6, 12), NEVER, "EOPNOTSUPP"),
    // Features that the soft device does not have.
    ("work queues, which this device lacks", ALWAYS, NEVER, "EINVAL"),
    ("a driver's object", ALWAYS, NEVER, "EINVAL"),
    ("a driver's method of DEVICE", ALWAYS, NEVER, "EINVAL"),
    ("QUERY_CONTEXT, which only mlx5 has", ALWAYS, NEVER, "EINVAL"),
    ("handles of an object that the device lacks", ALWAYS, NEVER, "success"),
    ("a command that the device lacks", ALWAYS, NEVER, "ENOSPC"),
    // Its table of GIDs is shorter.
    ("an empty GID entry", ALWAYS, NEVER, "EINVAL"),
    // Capabilities that it does not have: sniffing, and more than one counter per entry (`log_max_flow_counter`). The driver does not
    // detect that two flows have the same counter (`mlx5_flow_dests_cmp`, fs_core.c).
    ("a copy of everything", ALWAYS, NEVER, "EOPNOTSUPP"),
    ("the same rule again", ALWAYS, NEVER, "EINVAL"),
    ("two counters on one match", ALWAYS, NEVER, "Some(22)"),
    // Observed only on a device that is configured with this capability. There the driver removes the count action from the whole entry
    // (`del_sw_hw_rule`, fs_core.c).
    ("the second counter when the first is gone", ALWAYS, NEVER, "[1, 60]"),
    // Broken on these kernels: the driver reads its templates for these rules at the wrong place, and on arm64 finds the template for
    // unicast there.
    ("what no other rule takes", (7, 0), NEVER, "EINVAL"),
    ("multicast that no other rule takes", (7, 0), NEVER, if ON_ARM { "success" } else { "EINVAL" }),
    ("a rule for all others", (7, 0), NEVER, "\"refused\""),
    ("a rule for other multicast", (7, 0), NEVER, if ON_ARM { "\"success\"" } else { "\"refused\"" }),
    ("of a frame for the card, and one of other multicast, it takes", (7, 0), NEVER, "[1, 0]"),
];

fn kernel() -> Version {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's version");
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (parts.next().expect("a major version"), parts.next().expect("a minor version"))
}

/// Compares the answers of one device with the expected ones, and reports all wrong ones at the end.
pub struct Answers<'a> {
    target: &'a Target,
    wrong: Vec<String>,
}

impl<'a> Answers<'a> {
    pub fn of(target: &'a Target) -> Self {
        Self { target, wrong: Vec::new() }
    }

    /// In the case `what` the device answered `got`; the soft device answers `expected`.
    pub fn is<T: Debug + PartialEq>(&mut self, what: &str, got: T, expected: T) {
        let kernel = kernel();
        let rows = match self.target.device.driver() {
            "rxe" => ON_RXE,
            "mlx5" => ON_MLX5,
            _ => &[],
        };
        let is_met = |row: &&Row| row.0 == what && (row.1..row.2).contains(&kernel);
        match rows.iter().find(is_met) {
            None if got == expected => {}
            None => self.wrong.push(format!("{what}: {got:?}, not {expected:?}")),
            Some((.., answer)) => {
                let got = format!("{got:?}");
                println!("differs: {what} | {expected:?} | {got}");
                if got != *answer {
                    self.wrong.push(format!("{what}: {got}, not {answer}, as listed for this kernel"));
                }
            }
        }
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let name = self.target.device.name();
            assert!(self.wrong.is_empty(), "wrong on {name}:\n{}", self.wrong.join("\n"));
        }
    }
}
