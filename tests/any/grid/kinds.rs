//! The kinds of failure: what is wrong, and over which transports.

use uverbs::abi::types::qp_state;
use uverbs::raw::Sge;
use uverbs::{AccessFlags, Remote};

use super::end::{End, LEN, RESULT, ROOM, Refusal, Transport};
use super::scene::{Operation, Post, Scene, Who};
use crate::common::ALL;
use Transport::{Rc, Uc, Ud};

const EACH: &[Transport] = &Transport::ALL;
const CONNECTED: &[Transport] = &[Rc, Uc];
const RELIABLE: &[Transport] = &[Rc];
const DATAGRAM: &[Transport] = &[Ud];

/// Prepares something.
type Prepare = Box<dyn Fn(&mut Scene) -> Result<(), Refusal>>;

/// A request that fails, or nearly.
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) over: &'static [Transport],
    /// Done before the two sides are connected.
    pub(super) link: Option<Prepare>,
    /// Posts receives that are not the usual ones.
    pub(super) receive: Option<Prepare>,
    /// Done when they are connected and receives are posted.
    pub(super) before: Option<Prepare>,
    pub(super) post: Box<dyn Fn(&mut Scene) -> Post>,
}

fn kind(
    name: impl Into<String>,
    over: &'static [Transport],
    post: impl Fn(&mut Scene) -> Post + 'static,
) -> Kind {
    Kind { name: name.into(), over, link: None, receive: None, before: None, post: Box::new(post) }
}

impl Kind {
    fn link(self, link: impl Fn(&mut Scene) + 'static) -> Self {
        let link = move |s: &mut Scene| {
            link(s);
            Ok(())
        };
        Self { link: Some(Box::new(link)), ..self }
    }

    fn receive(self, receive: impl Fn(&mut Scene) + 'static) -> Self {
        let receive = move |s: &mut Scene| {
            receive(s);
            Ok(())
        };
        Self { receive: Some(Box::new(receive)), ..self }
    }

    fn before(self, before: impl Fn(&mut Scene) -> Result<(), Refusal> + 'static) -> Self {
        Self { before: Some(Box::new(before)), ..self }
    }
}

/// A request over pieces of memory.
fn with(operation: Operation, pieces: &[Sge]) -> Post {
    Post { operation, pieces: pieces.to_vec(), inline: None }
}

/// A send of the first bytes of the sender's memory.
fn send(s: &Scene, len: u32) -> Post {
    with(Operation::Send, &[s.a.piece(0, len)])
}

/// An operation of eight bytes on the peer's memory.
fn operate(s: &Scene, operation: fn(Remote) -> Operation, remote: Remote) -> Post {
    with(operation(remote), &[s.a.piece(RESULT, 8)])
}

/// All kinds. The order is that of the stored table.
pub(super) fn all() -> Vec<Kind> {
    [lengths(), local(), receives(), remote(), rights(), states(), addresses(), rest()]
        .into_iter()
        .flatten()
        .collect()
}

fn lengths() -> Vec<Kind> {
    vec![
        kind("a send without memory", EACH, |_| with(Operation::Send, &[])),
        kind("a send of no bytes of a key of nothing", EACH, |s| {
            with(Operation::Send, &[Sge { lkey: s.key_of_nothing(), ..s.a.piece(0, 0) }])
        }),
        kind("a send shorter than its receive", EACH, |s| send(s, ROOM - 1)),
        kind("a send as long as its receive", EACH, |s| send(s, ROOM)),
        kind("a send longer than its receive", EACH, |s| send(s, ROOM + 1)),
        kind("a send with immediate data longer than its receive", EACH, |s| Post {
            operation: Operation::SendImmediate,
            ..send(s, ROOM + 1)
        }),
        kind("a send of two packets longer than its receive", CONNECTED, |s| send(s, 1024 + ROOM)),
        kind("a send longer than a receive without memory", EACH, |s| send(s, 1))
            .receive(|s| s.b.receive(20, &[])),
        kind("a datagram longer than a packet", DATAGRAM, |s| send(s, 4097)).receive(|s| {
            let room = s.b.piece(0, LEN as u32);
            s.b.receive(20, &[room]);
        }),
        kind("a write of no bytes with a key of nothing", CONNECTED, |s| {
            let remote = Remote { rkey: s.key_of_nothing(), ..s.b.remote(0) };
            with(Operation::Write(remote), &[])
        }),
        kind("a read of no bytes with a key of nothing", RELIABLE, |s| {
            let remote = Remote { rkey: s.key_of_nothing(), ..s.b.remote(0) };
            with(Operation::Read(remote), &[])
        }),
        kind("an addition into four bytes", RELIABLE, |s| {
            with(Operation::Add(s.b.remote(0)), &[s.a.piece(RESULT, 4)])
        }),
        kind("an addition into sixteen bytes", RELIABLE, |s| {
            with(Operation::Add(s.b.remote(0)), &[s.a.piece(RESULT, 16)])
        }),
        kind("an addition into nothing", RELIABLE, |s| with(Operation::Add(s.b.remote(0)), &[])),
        kind("more pieces than asked for", EACH, |s| {
            let pieces: Vec<_> = (0..65).map(|piece| s.a.piece(piece, 1)).collect();
            with(Operation::Send, &pieces)
        }),
        kind("more inline data than asked for", EACH, |_| Post {
            inline: Some(2048),
            ..with(Operation::Send, &[])
        }),
    ]
}

/// A bad piece of memory of this length on one side. `step` is how far it is beyond a bound.
type Bad = fn(&mut Scene, Who, u32) -> Sge;

/// Local memory that cannot be used.
const LOCAL: &[(&str, Bad)] = &[
    ("a key of nothing", |s, who, len| Sge { lkey: s.key_of_nothing(), ..s.end(who).piece(RESULT, len) }),
    ("an earlier or later key of its region", |s, who, len| {
        let piece = s.end(who).piece(RESULT, len);
        Sge { lkey: piece.lkey ^ 1, ..piece }
    }),
    ("the key of another domain", |s, who, length| {
        let region = s.more(who, ALL, true);
        Sge { addr: region.address(), length, lkey: region.lkey() }
    }),
    ("the key of another open device", |s, who, len| match who {
        Who::Sender => s.b.piece(RESULT, len),
        Who::Peer => s.a.piece(RESULT, len),
    }),
    ("the key of a destroyed region", |s, who, length| {
        let region = s.end(who).pd.register(LEN, ALL).unwrap();
        let piece = Sge { addr: region.address(), length, lkey: region.lkey() };
        region.destroy().unwrap();
        piece
    }),
    ("one byte behind its region", |s, who, len| s.end(who).piece(LEN + 1 - len as usize, len)),
    ("one byte before its region", |s, who, len| {
        let piece = s.end(who).piece(0, len);
        Sge { addr: piece.addr - 1, ..piece }
    }),
    ("the end of all addresses", |s, who, len| Sge { addr: u64::MAX, ..s.end(who).piece(0, len) }),
];

/// Memory to which the device may not write.
const NOT_WRITABLE: (&str, Bad) = ("a region that cannot be written to", |s, who, length| {
    let region = s.more(who, AccessFlags::empty(), false);
    Sge { addr: region.address(), length, lkey: region.lkey() }
});

fn local() -> Vec<Kind> {
    let mut all = Vec::new();
    for &(name, bad) in LOCAL {
        all.push(kind(format!("a send from {name}"), EACH, move |s| {
            let piece = bad(s, Who::Sender, 8);
            with(Operation::Send, &[piece])
        }));
        all.push(kind(format!("a write from {name}"), CONNECTED, move |s| {
            let piece = bad(s, Who::Sender, 8);
            with(Operation::Write(s.b.remote(0)), &[piece])
        }));
    }
    for &(name, bad) in LOCAL.iter().chain([&NOT_WRITABLE]) {
        all.push(kind(format!("a read into {name}"), RELIABLE, move |s| {
            let piece = bad(s, Who::Sender, 8);
            with(Operation::Read(s.b.remote(0)), &[piece])
        }));
        all.push(kind(format!("an addition into {name}"), RELIABLE, move |s| {
            let piece = bad(s, Who::Sender, 8);
            with(Operation::Add(s.b.remote(0)), &[piece])
        }));
    }
    all
}

fn receives() -> Vec<Kind> {
    let all = LOCAL.iter().chain([&NOT_WRITABLE]).map(|&(name, bad)| {
        kind(format!("a receive into {name}"), EACH, |s| send(s, 8)).receive(move |s| {
            let header = s.b.room(0).length - ROOM;
            let piece = bad(s, Who::Peer, header + 8);
            s.b.receive(20, &[piece]);
            let room = s.b.room(1);
            s.b.receive(21, &[room]);
        })
    });
    all.collect()
}

/// Memory of the peer that cannot be used. The last argument is the number of bytes by which it exceeds its bound.
type Wrong = fn(&mut Scene, u64) -> Remote;

const REMOTE: &[(&str, Wrong)] = &[
    ("a key of nothing", |s, _| Remote { rkey: s.key_of_nothing(), ..s.b.remote(0) }),
    ("an earlier or later key of its region", |s, _| {
        let remote = s.b.remote(0);
        Remote { rkey: remote.rkey ^ 1, ..remote }
    }),
    ("the key of another domain", |s, _| {
        let region = s.more(Who::Peer, ALL, true);
        Remote { address: region.address(), rkey: region.rkey() }
    }),
    ("a key of the sender", |s, _| s.a.remote(0)),
    ("the key of a destroyed region", |s, _| {
        let region = s.b.pd.register(LEN, ALL).unwrap();
        let remote = Remote { address: region.address(), rkey: region.rkey() };
        region.destroy().unwrap();
        remote
    }),
    ("a place that ends behind its region", |s, step| s.b.remote(LEN - 8 + step as usize)),
    ("a place that begins before its region", |s, step| {
        let remote = s.b.remote(0);
        Remote { address: remote.address - step, ..remote }
    }),
    ("the end of all addresses", |s, step| Remote { address: 0_u64.wrapping_sub(step), ..s.b.remote(0) }),
    ("a region without remote rights", |s, _| {
        let region = s.more(Who::Peer, AccessFlags::LOCAL_WRITE, false);
        Remote { address: region.address(), rkey: region.rkey() }
    }),
];

/// An operation on the peer's memory: what it is called, its transports, the step by which its addresses vary, and the right it needs.
type OnMemory = (&'static str, &'static [Transport], fn(Remote) -> Operation, u64, AccessFlags);
const OPERATIONS: &[OnMemory] = &[
    ("a write to", CONNECTED, Operation::Write, 1, AccessFlags::REMOTE_WRITE),
    ("a write with immediate data to", CONNECTED, Operation::WriteImmediate, 1, AccessFlags::REMOTE_WRITE),
    ("a read from", RELIABLE, Operation::Read, 1, AccessFlags::REMOTE_READ),
    ("an addition at", RELIABLE, Operation::Add, 8, AccessFlags::REMOTE_ATOMIC),
];

fn remote() -> Vec<Kind> {
    let mut all = Vec::new();
    for &(name, wrong) in REMOTE {
        for &(what, over, operation, step, _) in OPERATIONS {
            all.push(kind(format!("{what} {name}"), over, move |s| {
                let remote = wrong(s, step);
                operate(s, operation, remote)
            }));
        }
    }
    all
}

fn rights() -> Vec<Kind> {
    let mut all = Vec::new();
    for &(what, over, operation, _, right) in OPERATIONS {
        all.push(kind(format!("{what} a region with the other rights"), over, move |s| {
            let region = s.more(Who::Peer, ALL - right, false);
            let remote = Remote { address: region.address(), rkey: region.rkey() };
            operate(s, operation, remote)
        }));
        let forbidden = kind(format!("{what} a queue pair with the other rights"), over, move |s| {
            operate(s, operation, s.b.remote(0))
        });
        all.push(forbidden.link(move |s| s.b.link.access = ALL - right));
    }
    all.push(
        kind("a read from a peer that has none in flight", RELIABLE, |s| {
            operate(s, Operation::Read, s.b.remote(0))
        })
        .link(|s| s.b.link.reads_of_peer = 0),
    );
    all.push(
        kind("a read of a queue pair that has none in flight", RELIABLE, |s| {
            operate(s, Operation::Read, s.b.remote(0))
        })
        .link(|s| s.a.link.reads = 0),
    );
    all.push(kind("an addition at an odd address", RELIABLE, |s| operate(s, Operation::Add, s.b.remote(1))));
    all.push(kind("an addition at half an address", RELIABLE, |s| operate(s, Operation::Add, s.b.remote(4))));
    all.push(kind("a swap at half an address", RELIABLE, |s| operate(s, Operation::Swap, s.b.remote(4))));
    all.push(kind("an addition at half an address with a key of nothing", RELIABLE, |s| {
        let remote = Remote { rkey: s.key_of_nothing(), ..s.b.remote(4) };
        operate(s, Operation::Add, remote)
    }));
    all
}

/// Brings a queue pair back to its beginning and up to a state again.
fn again(end: &mut End, peer: u32, state: u8) -> Result<(), Refusal> {
    end.enter(qp_state::RESET, peer)?;
    end.raise(qp_state::INIT, state, peer)
}

/// A state, and how a queue pair that is ready gets there.
type Arrive = (&'static str, fn(&mut End, u32) -> Result<(), Refusal>);

const STATES: &[Arrive] = &[
    ("reset", |end, peer| end.enter(qp_state::RESET, peer)),
    ("initialized", |end, peer| again(end, peer, qp_state::INIT)),
    ("ready to receive", |end, peer| again(end, peer, qp_state::RTR)),
    ("in the error state", |end, peer| end.enter(qp_state::ERR, peer)),
];

fn states() -> Vec<Kind> {
    let mut all = Vec::new();
    for &(state, enter) in STATES {
        all.push(kind(format!("a send to a peer that is {state}"), EACH, |s| send(s, 8)).before(move |s| {
            let number = s.a.number();
            enter(&mut s.b, number)
        }));
        all.push(kind(format!("a send when {state}"), EACH, |s| send(s, 8)).before(move |s| {
            let number = s.b.number();
            enter(&mut s.a, number)
        }));
    }
    let write = |s: &mut Scene| operate(s, Operation::Write, s.b.remote(0));
    let read = |s: &mut Scene| operate(s, Operation::Read, s.b.remote(0));
    for (what, over, post) in [
        ("a write to", CONNECTED, write as fn(&mut Scene) -> Post),
        ("a read from", RELIABLE, read as fn(&mut Scene) -> Post),
    ] {
        for &(state, enter) in STATES {
            all.push(kind(format!("{what} a peer that is {state}"), over, post).before(move |s| {
                let number = s.a.number();
                enter(&mut s.b, number)
            }));
        }
    }
    let destroy = |s: &mut Scene| {
        s.b.destroy();
        Ok(())
    };
    all.push(kind("a send to a peer that is destroyed", EACH, |s| send(s, 8)).before(destroy));
    all.push(kind("a write to a peer that is destroyed", CONNECTED, write).before(destroy));
    all.push(kind("a read from a peer that is destroyed", RELIABLE, read).before(destroy));
    let hold = |s: &mut Scene| {
        let number = s.b.number();
        s.a.enter(qp_state::SQD, number)
    };
    all.push(kind("a send when sends are held back", EACH, |s| send(s, 8)).before(hold));
    all
}

fn addresses() -> Vec<Kind> {
    // Another queue pair of the peer, connected to itself.
    let third = |transport: Option<Transport>| {
        move |s: &mut Scene| {
            let transport = transport.unwrap_or(s.transport);
            let mut other = End::new(s.b.context(), transport, 0);
            let number = other.number();
            other.raise(qp_state::INIT, qp_state::RTS, number).unwrap();
            s.a.link.to = Some(number);
            s.other = Some(other);
        }
    };
    let post = |s: &mut Scene| send(s, 8);
    let mut all = vec![
        kind("a send to the number of no queue pair", EACH, post)
            .link(|s| s.a.link.to = Some(s.b.number() ^ 0x0010_0000)),
        kind("a send to a queue pair that is connected elsewhere", CONNECTED, post).link(third(None)),
        kind("a send to a queue pair of another transport", RELIABLE, post).link(third(Some(Uc))),
        kind("a send to a queue pair of another transport", &[Uc], post).link(third(Some(Rc))),
        kind("a send to a queue pair of another transport", DATAGRAM, post).link(third(Some(Rc))),
        kind("a send to another port", EACH, post).link(|s| s.a.link.is_astray = true),
        kind("a send to a peer that answers another port", CONNECTED, post)
            .link(|s| s.b.link.is_astray = true),
        kind("a send with a later number than expected", CONNECTED, post).link(|s| s.b.link.receive_psn = 99),
        kind("a send with an earlier number than expected", CONNECTED, post)
            .link(|s| s.b.link.receive_psn = 101),
        kind("a read with an earlier number than expected", RELIABLE, |s| {
            operate(s, Operation::Read, s.b.remote(0))
        })
        .link(|s| s.b.link.receive_psn = 101),
        kind("a send with another entry of the table of partitions", EACH, post)
            .link(|s| s.a.link.pkey_index = 1),
    ];
    let key = |s: &mut Scene, qkey: u32| {
        if let Some(to) = &mut s.to {
            to.qkey = qkey;
        }
        Ok(())
    };
    all.push(kind("a send with another queue key", DATAGRAM, post).before(move |s| key(s, 0x1235)));
    // The highest bit means the key of the sender's queue pair, which is the same here.
    all.push(
        kind("a send with the queue key of its queue pair", DATAGRAM, post).before(move |s| key(s, 1 << 31)),
    );
    all.push(kind("a send with an address of another domain", DATAGRAM, post).before(|s| {
        let pd = s.a.context().alloc_pd().unwrap();
        let address = pd.create_ah(&s.a.route(false)).unwrap();
        if let Some(to) = &mut s.to {
            to.address = address;
        }
        Ok(())
    }));
    all
}

fn rest() -> Vec<Kind> {
    let mut all = Vec::new();
    for tries in [0, 1, 6] {
        let name = format!("a send without a receive and with {tries} RNR retries");
        let without = kind(name, if tries == 0 { EACH } else { RELIABLE }, |s| send(s, 8)).receive(|_| {});
        all.push(without.link(move |s| s.a.link.rnr_retries = tries));
    }
    all.extend([
        kind("a send of two packets without a receive", CONNECTED, |s| send(s, 1032)).receive(|_| {}),
        kind("a write with immediate data without a receive", CONNECTED, |s| {
            operate(s, Operation::WriteImmediate, s.b.remote(0))
        })
        .receive(|_| {}),
        kind("a write with immediate data longer than its receive", CONNECTED, |s| {
            with(Operation::WriteImmediate(s.b.remote(0)), &[s.a.piece(0, ROOM + 1)])
        }),
        kind("a send that invalidates the key of a region", RELIABLE, |s| {
            with(Operation::SendInvalidate(s.b.memory().rkey()), &[s.a.piece(0, 8)])
        }),
        kind("a send that invalidates a key of nothing", RELIABLE, |s| {
            with(Operation::SendInvalidate(s.key_of_nothing()), &[s.a.piece(0, 8)])
        }),
        kind("a send that invalidates the key of a region of another domain", RELIABLE, |s| {
            let key = s.more(Who::Peer, ALL, true).rkey();
            with(Operation::SendInvalidate(key), &[s.a.piece(0, 8)])
        }),
        kind("an invalidation of the key of a region", CONNECTED, |s| {
            let key = s.more(Who::Sender, ALL, false).rkey();
            with(Operation::LocalInvalidate(key), &[])
        }),
    ]);
    all
}
