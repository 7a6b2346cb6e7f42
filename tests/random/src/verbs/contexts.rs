//! Open devices, their queries and events, and protection domains.

use uverbs::transport::Fault;
use uverbs::{OpenOptions, Subject};

use super::{done, ends, verb};
use crate::language::Arg::{End, Has, New, One, Word};
use crate::language::Kind::{Context, Domain};
use crate::language::Verb;

pub(super) const VERBS: &[&[Verb]] = &[
    &[
        verb("open", 2, &[New(Context), Word(&["plain", "options", "options-devx", "handle"])], |w, a| {
            w.free_to_open(a[0])?;
            let device = &w.machine.device;
            let context = match (a[1], &w.machine.soft) {
                (1 | 2, _) => OpenOptions::new().devx(a[1] == 2 && w.machine.card.is_some()).open(device)?,
                (3, Some(soft)) => soft.open()?,
                _ => device.open()?,
            };
            w.contexts.put(a[0], context);
            done(())
        }),
        // The nth command on this file fails.
        verb(
            "open-failing",
            1,
            &[New(Context), One(&[4, 1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25]), One(&[5, 12, 4, 11])],
            |w, a| {
                w.free_to_open(a[0])?;
                let fault = Fault::new(a[1], a[2] as i32);
                let context = w.machine.device.open_with(fault)?;
                w.contexts.put(a[0], context);
                done(())
            },
        ),
        verb("describe", 1, &[], |w, _| {
            let device = &w.machine.device;
            // Each device has its own; it must be text.
            let own = format!("{:?} {:?}", device.index(), device.node());
            let own = format!("{own} {:?} {}", device.sysfs(), device.abi_version());
            let own = format!("{own} {:?} {:?}", device.node_guid(), device.sys_image_guid());
            let own =
                format!("{own} {} {:?} {:?}", device.firmware(), device.protocol(), device.interfaces());
            let soft = w.machine.soft.as_ref().map(|soft| format!("{} {:?}", soft.name(), soft.profile()));
            let is_text = own.is_ascii() && soft.is_none_or(|soft| soft.starts_with(device.name()));
            Ok(format!("{} {} {is_text}", device.node_type(), device.ports()))
        }),
        verb("refused", 1, &[Has(Context), Word(&["port", "cq", "gid"])], |w, a| {
            let context = w.contexts.get(a[0])?;
            let error = match a[1] {
                0 => context.query_port(255).err(),
                1 => context.create_cq(u32::MAX).err(),
                _ => context.gid(255, 0).err(),
            };
            Ok(error.map_or_else(
                || "done".to_owned(),
                |error| format!("{} {}", error.op(), error.hint().is_none_or(|hint| !hint.is_empty())),
            ))
        }),
        verb("drop-context", 1, &[End(Context)], |w, a| done(w.contexts.take(a[0])?)),
        verb("device", 1, &[Has(Context)], |w, a| done(w.contexts.get(a[0])?.query_device()?)),
        verb("device-mlx5", 1, &[Has(Context)], |w, a| {
            Ok(w.contexts.get(a[0])?.query_device_mlx5()?.is_some().to_string())
        }),
        verb("about", 1, &[Has(Context)], |w, a| {
            let context = w.contexts.get(a[0])?;
            let device = context.device();
            let is_same = device.name() == w.machine.device.name()
                && device.driver_id() == w.machine.device.driver_id();
            Ok(format!("{is_same} {} {:?}", context.completion_vectors() > 0, context.has_devx()))
        }),
        verb("port", 1, &[Has(Context), One(&[1, 0, 2, 255])], |w, a| {
            let context = w.contexts.get(a[0])?;
            let port = context.query_port(a[1] as u8)?;
            let limits = context.connection_limits(a[1] as u8)?;
            assert!((256..=4096).contains(&limits.mtu_bytes()));
            Ok(format!("{}", port.legacy_resp.state))
        }),
        verb("port-speed", 1, &[Has(Context), One(&[1, 0, 2, 255])], |w, a| {
            done(w.contexts.get(a[0])?.port_speed(a[1] as u32)?)
        }),
        verb("gid", 1, &[Has(Context), One(&[1, 0, 2]), One(&[0, 1, 15, 1023, 1024, 70000])], |w, a| {
            done(w.contexts.get(a[0])?.gid(a[1] as u8, a[2] as u32)?)
        }),
        verb("gids", 1, &[Has(Context)], |w, a| done(w.contexts.get(a[0])?.gid_table()?)),
        verb("pkey", 1, &[Has(Context), One(&[1, 0, 2]), One(&[0, 1, 63, 64, 65535])], |w, a| {
            let pkey = w.contexts.get(a[0])?.pkey(a[1] as u8, a[2] as u16)?;
            Ok(format!("{pkey:#x}"))
        }),
        verb("events", 2, &[Has(Context)], |w, a| {
            let at = a[0];
            w.settle();
            let events = w.collect(|w, all| {
                while let Some(event) = w.contexts.get(at)?.next_event()? {
                    all.push(event);
                }
                Ok(())
            })?;
            let name = |subject| match subject {
                Subject::CompletionQueue(cookie) => format!("q{cookie}"),
                Subject::QueuePair(cookie) => format!("x{cookie}"),
                Subject::SharedReceiveQueue(cookie) => format!("s{cookie}"),
                Subject::WorkQueue(cookie) => format!("b{cookie}"),
                Subject::Port(_) => "port".to_owned(),
                Subject::Device => "device".to_owned(),
                other => format!("{other}"),
            };
            let mut texts: Vec<_> =
                events.iter().map(|event| format!("{:?} {}", event.kind, name(event.subject()))).collect();
            texts.sort();
            Ok(format!("{} {}", texts.len(), texts.join("; ")))
        }),
        verb("pd", 3, &[New(Domain), Has(Context)], |w, a| {
            w.domains.free(a[0])?;
            let domain = w.contexts.get(a[1])?.alloc_pd()?;
            w.domains.put(a[0], domain);
            done(())
        }),
    ],
    &[verb("pd-context", 1, &[Has(Domain)], |w, a| {
        let context = w.domains.get(a[0])?.context();
        Ok((context.device().name() == w.machine.device.name()).to_string())
    })],
    &ends!(Domain, domains, "destroy-pd", "drop-pd"),
];
