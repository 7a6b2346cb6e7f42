//! Faults of the device during a program, chosen only with `--faults`.

use super::{done, verb};
use crate::language::Arg::{New, One, Word};
use crate::language::Kind::Context;
use crate::language::Verb;
use crate::starved::{Scarce, Starved};
use crate::world::Miss;

/// Firmware commands that may be refused. `ALLOC_FLOW_COUNTER` and `SET_FLOW_TABLE_ROOT` are not included, because the kernel does not survive
/// that (docs/internals/kernels.md). Commands that destroy flows, receivers and
/// queues are not included either: the driver ignores the error, and the firmware keeps what they use until the driver is unloaded.
const COMMANDS: &[&str] = &[
    "CREATE_CQ",
    "ALLOC_TRANSPORT_DOMAIN",
    "ALLOC_UAR",
    "ALLOC_PD",
    "CREATE_MKEY",
    "CREATE_TIS",
    "CREATE_SQ",
    "CREATE_RQ",
    "CREATE_RQT",
    "CREATE_TIR",
    "MODIFY_SQ",
    "MODIFY_RQ",
    "MODIFY_CQ",
    "QUERY_SQ",
    "QUERY_RQ",
    "CREATE_FLOW_TABLE",
    "CREATE_FLOW_GROUP",
    "SET_FLOW_TABLE_ENTRY",
    "QUERY_FLOW_COUNTER",
    "DESTROY_MKEY",
    "DESTROY_CQ",
    "DEALLOC_PD",
];

pub(super) const VERBS: &[&[Verb]] = &[&[
    // A firmware command is refused, after a number of successful ones. The statuses are those of an internal error, a bad parameter, a
    // busy resource, a limit, and "again".
    verb("refuse", 0, &[Word(COMMANDS), One(&[8, 1, 3, 6, 15]), One(&[0, 1, 2])], |w, a| {
        let card = w.machine.card.ok_or(Miss::Absent)?;
        let request = format!("fail {} {} 1 0 {}", COMMANDS[a[0] as usize], a[1], a[2]);
        done(card.ask(&request))
    }),
    // In every nth command the kernel has no memory, if it supports this.
    verb("open-starved", 0, &[New(Context), One(&[1, 2, 3, 5]), One(&[0, 1, 2, 3, 5, 8])], |w, a| {
        w.free_to_open(a[0])?;
        let device = &w.machine.device;
        let starved = Starved::new(a[1], a[2]).filter(|_| w.machine.soft.is_none());
        let context = match starved {
            Some(starved) => device.open_with(starved)?,
            None => device.open()?,
        };
        w.contexts.put(a[0], context);
        done(())
    }),
    // From here on the program gets little more memory than it has.
    verb("scarce", 0, &[One(&[2, 4, 8, 16])], |w, a| {
        w.scarce = Some(Scarce::new(a[0]));
        done(())
    }),
    // The device is removed. The driver's own cleanup must not be refused, because the kernel then warns (`ib_free_cq`, cq.c, 7.3).
    verb("unplug", 0, &[], |w, _| {
        w.machine.card.into_iter().for_each(crate::card::heal);
        done(w.machine.unplug()?)
    }),
]];
