//! Devices, contexts, and the objects that every device has.

use std::time::Duration;

use uverbs::abi::types::port_state;
use uverbs::{AccessFlags, Completion, ErrorKind, Gid, Peer};

use super::{Destroyed, EINVAL, Ground, Held, Optional, busy, differs, holds, refused, same};

const ENETDOWN: i32 = 100;

pub(crate) fn an_open_device_answers_queries(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let device = context.query_device()?;
    same("query the device: ports", u32::from(device.base.phys_port_cnt), ground.device.ports())?;
    holds(
        "query the device: GUID",
        device.base.node_guid.get() == ground.device.node_guid().0,
        "that of the list of devices",
        "another",
    )?;
    let most = (device.base.max_cqe, device.base.max_qp);
    holds("query the device: limits", most.0 > 0 && most.1 > 0, "more than zero", format_args!("{most:?}"))?;
    let vectors = context.completion_vectors();
    holds("completion vectors", vectors > 0, "more than zero", vectors)?;
    let port = context.query_port(ground.port)?.legacy_resp;
    // The port of a card without a network interface has no MTU and no addresses.
    let is_active = port.state == port_state::ACTIVE;
    same("whether the port has an MTU", (1..=5).contains(&port.active_mtu), is_active)?;
    holds("the GID table", port.gid_tbl_len > 0 || !is_active, "a table", "none")?;
    // iWARP has no partitions.
    let has_partitions = port.pkey_tbl_len > 0;
    same("whether the port has partitions", context.pkey(ground.port, 0).is_ok(), has_partitions)?;
    holds("partitions", has_partitions || ground.is_iwarp(), "a table", "none")
}

pub(crate) fn a_port_tells_its_speed_where_kernel_and_driver_can(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    context.port_speed(ground.port.into()).optional()?;
    for port in absent(ground) {
        let step = format!("the speed of port {port}");
        holds(&step, context.port_speed(port.into()).is_err(), "an error", "success")?;
    }
    Ok(())
}

/// Numbers of ports that the device does not have.
fn absent(ground: &Ground<'_>) -> impl Iterator<Item = u8> {
    let ports = ground.device.ports();
    [9, 255].into_iter().filter(move |port| u32::from(*port) > ports)
}

pub(crate) fn a_port_that_is_not_there_is_refused(ground: &Ground<'_>) -> Held {
    let (context, ports) = (ground.open()?, ground.device.ports());
    let behind = u8::try_from(ports + 1).unwrap_or(u8::MAX);
    for port in [0, behind, 255] {
        let hint = format!("port: {port} given, 1 to {ports} allowed");
        let answer = context.query_port(port);
        refused(&format!("query port {port}"), answer, ErrorKind::InvalidInput, EINVAL, &hint)?;
    }
    for port in absent(ground) {
        let missing = context.pkey(port, 0).map_err(|error| error.kind());
        same(&format!("a partition key of port {port}"), missing, Err(ErrorKind::NotFound))?;
    }
    Ok(())
}

pub(crate) fn the_gid_table_holds_what_single_ports_have(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let all = context.gid_table()?;
    let table = of_port(&all, ground.port);
    let state = context.query_port(ground.port)?.legacy_resp.state;
    if ground.is_infiniband(&context)? {
        holds("the GID table", !table.is_empty(), "a GID", "none")?;
    } else {
        same("whether the GID table is empty", table.is_empty(), state != port_state::ACTIVE)?;
    }
    let ports = 1..=ground.device.ports();
    holds("ports of GIDs", all.iter().all(|gid| ports.contains(&gid.port)), "those of the device", "others")?;
    holds("GIDs", all.iter().all(|gid| gid.raw != [0; 16]), "none that is zero", "one")
}

fn of_port(table: &[Gid], port: u8) -> Vec<Gid> {
    table.iter().filter(|gid| gid.port == u32::from(port)).copied().collect()
}

pub(crate) fn the_chosen_gid_is_the_first_of_those_that_can_be_used(ground: &Ground<'_>) -> Held {
    let (context, port) = (ground.open()?, ground.port);
    let candidates = context.gid_candidates(port, Peer::Unknown)?;
    let mut rated: Vec<_> = candidates.iter().map(|candidate| candidate.gid.index).collect();
    rated.sort_unstable();
    let listed: Vec<_> = of_port(&context.gid_table()?, port).iter().map(|gid| gid.index).collect();
    same("the indices of candidates", rated, listed)?;
    match (context.check_port_active(port), context.gid_for(port, Peer::Unknown)) {
        (Ok(()), Ok(chosen)) => {
            let there = chosen.gid == context.gid(port, chosen.index.into())?;
            holds("the chosen GID", there, "the one at its index", "another")?;
            let first = candidates.first().is_some_and(|first| {
                first.gid == chosen.gid && first.rating.as_ref().ok() == Some(&chosen.reason)
            });
            holds("the chosen GID", first, "the first candidate", "another")?;
            // A peer with that GID is reached from it, or from one of the same family.
            let same_family = context.gid_for(port, chosen.gid.raw)?;
            let is_ipv4 = |gid: Gid| gid.raw[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
            same("the family for a peer", is_ipv4(same_family.gid), is_ipv4(chosen.gid))?;
        }
        // As on a virtual ConnectX with an Ethernet port and without a network interface.
        (Err(down), Err(error)) => {
            same("the error of a port that is not active", &down, &error)?;
            same("its errno", error.errno(), Some(ENETDOWN))?;
        }
        // No address can be used from here.
        (Ok(()), Err(error)) if error.kind() == ErrorKind::NotFound => {
            let any = candidates.iter().any(|candidate| candidate.rating.is_ok());
            holds("the chosen GID", !any, "a candidate that can be used", "none")?;
        }
        (_, Err(error)) => return Err(differs("choose a GID", "a GID", error)),
        (Err(error), Ok(_)) => return Err(differs("choose a GID", error, "a GID")),
    }
    let kind = context.gid_for(200, Peer::Unknown).map(drop).map_err(|error| error.kind());
    same("choose a GID of port 200", kind, Err(ErrorKind::InvalidInput))
}

pub(crate) fn objects_come_and_go_in_any_order(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let pd = context.alloc_pd()?;
    let region = pd.register(10_000, AccessFlags::LOCAL_WRITE)?;
    let channel = context.create_comp_channel()?;
    let cq = context.cq(100).channel(&channel).cookie(7).create().optional()?;
    holds("a completion queue for 100", cq.capacity() >= 100, "room for them", cq.capacity())?;
    drop(channel);
    drop(pd);
    drop(context);
    region.write(9_998, &[1, 2])?;
    drop(region);
    cq.destroy().destroyed()
}

pub(crate) fn an_object_in_use_is_given_back(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    let pd = context.alloc_pd()?;
    let region = pd.register(1, AccessFlags::empty())?;
    let pd = busy("destroy a domain with a region", pd.destroy())?;
    let clone = region.clone();
    let region = busy("destroy a region with a clone", region.destroy())?;
    drop(clone);
    region.destroy().destroyed()?;
    pd.destroy().destroyed()
}

pub(crate) fn event_files_do_not_wait(ground: &Ground<'_>) -> Held {
    let context = ground.open()?;
    // On a machine in use there may be events of the port.
    while context.next_event()?.is_some() {}
    let channel = context.create_comp_channel()?;
    same("the next event of a channel", channel.next_event()?, None::<u64>)?;
    same("a wait of a channel", channel.wait(Some(Duration::from_millis(1)))?, false)?;
    let mut cq = context.cq(4).channel(&channel).create().optional()?;
    cq.notify(false)?;
    same("completions of an empty queue", cq.poll(&mut Completion::batch::<4>()), 0)?;
    same("the next event after a request for one", channel.next_event()?, None::<u64>)
}
