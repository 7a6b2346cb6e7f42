//! Memory windows.

use uverbs::{Bind, WindowType};

use super::memory::{LENGTHS, OFFSETS, rights};
use super::{done, ends, verb};
use crate::language::Arg::{Bits, Has, New, One, Word};
use crate::language::Kind::{Domain, Pair as Pairs, Region, Window};
use crate::language::Verb;
use crate::world::{Miss, Pair};

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("mw", 2, &[New(Window), Has(Domain), Word(&["two", "one"])], |w, a| {
            w.windows.free(a[0])?;
            let kind = if a[2] == 0 { WindowType::Two } else { WindowType::One };
            let window = w.domains.get(a[1])?.alloc_window(kind)?;
            w.windows.put(a[0], window);
            done(())
        }),
        verb("mw-facts", 2, &[Has(Window)], |w, a| {
            let window = w.windows.get(a[0])?;
            Ok(format!("{:?} {} {}", window.kind(), window.remote().is_some(), window.rkey().is_some()))
        }),
        verb("mw-release", 1, &[Has(Window)], |w, a| done(w.windows.get_mut(a[0])?.release()?)),
        verb(
            "bind",
            3,
            &[
                Has(Pairs),
                Has(Window),
                Has(Region),
                OFFSETS,
                LENGTHS,
                Word(&["all", "write", "read", "atomic", "zero-based", "none", "local"]),
                Bits(3),
                One(&[1000, 1001]),
            ],
            |w, a| {
                let access = match a[5] {
                    0 => rights(0) - rights(1) - uverbs::AccessFlags::MW_BIND,
                    1 => uverbs::AccessFlags::REMOTE_WRITE,
                    2 => uverbs::AccessFlags::REMOTE_READ,
                    3 => uverbs::AccessFlags::REMOTE_ATOMIC,
                    4 => uverbs::AccessFlags::REMOTE_READ | uverbs::AccessFlags::ZERO_BASED,
                    5 => uverbs::AccessFlags::empty(),
                    _ => uverbs::AccessFlags::LOCAL_WRITE,
                };
                let region = w.regions.get(a[2])?;
                let mut bind =
                    Bind::new(a[7], region, a[3] as usize..a[3].saturating_add(a[4]) as usize).access(access);
                if a[6] & 1 == 0 {
                    bind = bind.signaled();
                }
                if a[6] & 2 != 0 {
                    bind = bind.fenced();
                }
                if a[6] & 4 != 0 {
                    bind = bind.zero_based();
                }
                let window = w.windows.get_mut(a[1])?;
                match w.pairs.get_mut(a[0])? {
                    Pair::Rc(qp) => qp.bind(window, bind)?,
                    Pair::Uc(qp) => qp.bind(window, bind)?,
                    _ => return Err(Miss::Absent),
                }
                w.settle();
                done(())
            },
        ),
        verb("unbind", 2, &[Has(Pairs), Has(Window), One(&[1002])], |w, a| {
            let window = w.windows.get_mut(a[1])?;
            match w.pairs.get_mut(a[0])? {
                Pair::Rc(qp) => qp.unbind(window, a[2])?,
                Pair::Uc(qp) => qp.unbind(window, a[2])?,
                _ => return Err(Miss::Absent),
            }
            w.settle();
            done(())
        }),
    ],
    &ends!(Window, windows, "destroy-mw", "drop-mw"),
];
