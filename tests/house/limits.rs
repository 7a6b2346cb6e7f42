//! Messages about a range, a count or a size: each names the number that was given and its limit.
//!
//! `cargo test --test house limits -- --nocapture` prints them, each with its file.

use super::assert_none;
use super::messages::messages;

/// Words of such messages.
const WORDS: &[&str] = &[
    "above", "below", "beyond", "outside", "exceeds", "maximum", "minimum", "limit", "limits", "more",
    "fewer", "less", "longer", "shorter", "larger", "smaller", "range", "depth", "depths", "segments",
    "many", "most", "least", "multiple", "digits", "bytes", "bits", "room",
];

/// How the code before a text ends that names a kind of number: the rest of the message has the number and the limit.
const NUMBERED: &[&str] = &["outside(", "beyond(", "limit(", "size(", "what:", "what =", "&str ="];

/// Messages with such a word that are about something else, or where the number is told in another way.
const OTHERS: &[(&str, &[&str])] = &[
    (
        "why a finding of `uverbs doctor` matters, and what mends it: what was seen has the numbers",
        &[
            "registered memory and queues are locked; beyond the limit registrations and queue pairs are refused with ENOMEM",
            "rxe has messages of 8 MiB at most",
            "send larger ones in parts, or use a newer kernel",
            "smaller packets cost bandwidth, and both sides must have one size",
            "the MTU of a switch or an interface between the hosts is smaller: make it larger, or let programs use smaller packets",
            "ulimit -l unlimited; systemd: LimitMEMLOCK=infinity; Docker: --ulimit memlock=-1; all users: /etc/security/limits.d",
            "| `max_msg_sz` of rxe | 8 MiB | 2 GiB | 2 GiB |",
        ],
    ),
    (
        "a step or a value of `uverbs verify`, which prints what was expected and seen beside it",
        &[
            "bytes out, read and received, and writes",
            "more than zero",
            "packets and bytes",
            "post a write of 8 bytes",
            "query the device: limits",
            "room for them",
            "the length of inline bytes",
            "the limit after that",
            "write 8 bytes, until it has completed",
        ],
    ),
    (
        "what `uverbs verify` looks for in a hint, which has the number",
        &["at least 6 allowed", "at most 8190 allowed"],
    ),
    (
        "a text: the parser that refuses it prints it before",
        &[
            "a MAC address has six parts, not more",
            "a MAC address is six pairs of hexadecimal digits with colons between",
            "a tag of up to 24 bits",
            "it must be at least one packet per second, or `unlimited`",
            "it must be at most a year",
            "it must be longer than zero",
            "limits are MTU:OUTGOING:INCOMING in decimal digits: an MTU of 256, 512, 1024, 2048 or 4096, and numbers of reads up to 255",
            "the maximum is 1G",
        ],
    ),
    (
        "what is refused is of another kind or form, not too large",
        &[
            "VXLAN can only be matched outside a tunnel",
            "an atomic operation is of 8 bytes",
            "an endpoint is LID:QPN:PSN:GID in hexadecimal digits, 4, 6, 6 and 32 of them",
            "mlx5 cannot match the first 16 bits of GRE",
            "mlx5 cannot match the hop limit of IPv6",
            "only packets and bytes can be counted",
            "reads and atomic operations return data to registered memory: give segments, not bytes",
            "the device does not allow this combination of queue, limit and domain",
            "the first 40 bytes are not a routing header",
        ],
    ),
    (
        "a state: it changes without another number",
        &[
            "not everything has completed; a completion queue without room loses completions",
            "the device has no counter or no room for the rule left, or the kernel no memory",
            "the queue has no room for all of these; nothing was posted: poll completions first, or create a deeper queue",
            "too many reads are under way; take their answers first",
        ],
    ),
    (
        "the device or the kernel gives no number",
        &[
            "a limit is exceeded",
            "a port below 1024 needs CAP_NET_BIND_SERVICE",
            "the kernel has no more memory for connections",
            "the device has no such request of so many bytes in total; nothing was posted",
        ],
    ),
    (
        "a wrong answer of the kernel or a wrong file, not a refusal",
        &[
            "a block is shorter than its type and lengths",
            "a doorbell outside of its page",
            "a page of registers with a number above 65535",
            "a receive ring smaller than was asked for",
            "more entries than requested",
        ],
    ),
    (
        "no refusal",
        &[
            "For more information",
            "at least one byte",
            "bytes of inline data",
            "has fewer requests left than its limit",
            "its index is larger than 255",
            "maximum available device memory",
            "supported: packets, bytes",
            "takes nothing more from its shared receive queue",
            "requests of a receive queue (max_recv_wr)",
            "requests of a send queue (max_send_wr)",
            "a queue pair without room",
        ],
    ),
];

fn speaks_of_a_number(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| WORDS.contains(&word) || word.starts_with("max_"))
}

/// A message about a number is written by `Error::outside`, `Error::beyond` or `limit`, which name both numbers, or has places for
/// numbers itself.
#[test]
fn messages_about_a_number_name_it() {
    let mut bad = Vec::new();
    for (text, name, before) in messages().iter().filter(|(text, ..)| speaks_of_a_number(text)) {
        println!("{name}: {text}");
        let before: Vec<_> = before.split_whitespace().collect();
        let before = before.join(" ");
        let last = before.char_indices().rev().nth(59).map_or(&*before, |(at, _)| &before[at..]);
        let is_numbered = NUMBERED.iter().any(|end| last.contains(end));
        let is_other = OTHERS.iter().any(|(_, texts)| texts.contains(&&**text));
        if !text.contains('{') && !is_numbered && !is_other {
            bad.push(format!("{name}: {text}"));
        }
    }
    assert_none("messages about a number without the number", &bad);
}
