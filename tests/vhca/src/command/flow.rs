//! Commands for flow tables, their groups and entries.

use super::Status;
use crate::bits::{Bits, BitsMut, Field};
use crate::device::Device;
use crate::ifc::command::{add_vxlan_udp_dport_in, alloc_pd_in};
use crate::ifc::steering::{
    create_flow_group_in, create_flow_group_out, create_flow_table_in, create_flow_table_out, delete_fte_in,
    dest_format_struct, destroy_flow_group_in, destroy_flow_table_in, flow_context, flow_counter_list,
    flow_table_context, fte_match_param as param, modify_flow_table_in, query_flow_table_out,
    set_flow_table_root_in, set_fte_in,
};
use crate::object::{Handle, Kind};
use crate::packet::MATCH_SIZE;
use crate::steering::{Action, Destination, Domain, Entry, Group, Miss, Table};

/// The table that a command names, which is at the same place in all of them.
fn named_table(input: &[u8]) -> Result<(Domain, u32), Status> {
    let domain = Domain::new(input.num(destroy_flow_table_in::table_type))?;
    Ok((domain, input.num(destroy_flow_table_in::table_id)))
}

fn table_handle(number: u32) -> Handle {
    Handle(Kind::FlowTable, number.into())
}

/// The handle of an entry: its table and its index.
fn entry_handle(table: u32, index: u32) -> Handle {
    Handle(Kind::FlowEntry, u64::from(table) << 32 | u64::from(index))
}

/// The context of a table says what happens to packets that match nothing. The next table must have a higher level.
fn miss(
    device: &mut Device,
    domain: Domain,
    level: u32,
    context: &[u8],
) -> Result<(Miss, Vec<Handle>), Status> {
    match context.num(flow_table_context::table_miss_action) {
        0 => Ok((Miss::Default, Vec::new())),
        1 => {
            let next = context.num(flow_table_context::table_miss_id);
            if device.steering.table(domain, next)?.level <= level {
                return Err(Status::BadParameter);
            }
            Ok((Miss::Forward(next), vec![table_handle(next)]))
        }
        _ => Err(Status::BadParameter),
    }
}

pub(super) fn create_table(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let domain = Domain::new(input.num(create_flow_table_in::table_type))?;
    let context = input.part(create_flow_table_in::flow_table_context);
    let level = context.num(flow_table_context::level);
    let (miss, uses) = miss(device, domain, level, context)?;
    let table = Table::new(domain, level, context.num(flow_table_context::log_size), miss)?;
    let number = device.objects.create(Kind::FlowTable, uses)?;
    device.steering.tables.insert(number, table);
    output.set(create_flow_table_out::table_id, number);
    Ok(())
}

pub(super) fn modify_table(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    const MISS: u32 = 1 << 0;
    let (domain, number) = named_table(input)?;
    if input.num(modify_flow_table_in::modify_field_select) != MISS {
        return Err(Status::BadParameter);
    }
    let level = device.steering.table(domain, number)?.level;
    let (miss, uses) = miss(device, domain, level, input.part(modify_flow_table_in::flow_table_context))?;
    device.objects.rebind(table_handle(number), uses)?;
    device.steering.table(domain, number)?.miss = miss;
    Ok(())
}

pub(super) fn query_table(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    let table = device.steering.table(domain, number)?;
    let context = output.part_mut(query_flow_table_out::flow_table_context);
    context.set(flow_table_context::level, table.level);
    context.set(flow_table_context::log_size, table.log_size);
    if let Miss::Forward(next) = table.miss {
        context.set(flow_table_context::table_miss_action, 1_u32);
        context.set(flow_table_context::table_miss_id, next);
    }
    Ok(())
}

pub(super) fn destroy_table(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    device.steering.table(domain, number)?;
    device.objects.destroy(table_handle(number))?;
    device.steering.tables.remove(&number);
    // The driver destroys the last table of a domain while packets still enter it.
    if device.steering.root(domain) == Some(number) {
        device.steering.set_root(domain, None);
    }
    Ok(())
}

/// Makes a table the first of its domain; with modifier 1, the domain has none from then on.
pub(super) fn set_root(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let domain = Domain::new(input.num(set_flow_table_root_in::table_type))?;
    let number = input.num(set_flow_table_root_in::table_id);
    let root = match input.num(alloc_pd_in::op_mod) {
        0 => {
            device.steering.table(domain, number)?;
            Some(number)
        }
        1 => None,
        _ => return Err(Status::BadParameter),
    };
    device.steering.set_root(domain, root);
    Ok(())
}

/// Copies the match values of the parts that are enabled.
fn match_part(bytes: &[u8], enabled: u32) -> Box<[u8; MATCH_SIZE]> {
    let mut part = Box::new([0; MATCH_SIZE]);
    let parts = [
        param::outer_headers,
        param::misc_parameters,
        param::inner_headers,
        param::misc_parameters_2,
        param::misc_parameters_3,
    ];
    for (bit, field) in parts.into_iter().enumerate() {
        if enabled >> bit & 1 == 1 {
            part.put(field, bytes.part(field));
        }
    }
    part
}

pub(super) fn create_group(device: &mut Device, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    let enabled = input.num(create_flow_group_in::match_criteria_enable);
    let range =
        input.num(create_flow_group_in::start_flow_index)..=input.num(create_flow_group_in::end_flow_index);
    if enabled >> 5 != 0 {
        return Err(Status::BadParameter);
    }
    device.steering.table(domain, number)?.check_range(&range)?;
    let group = Group::new(range, match_part(input.part(create_flow_group_in::match_criteria), enabled))?;
    let id = device.objects.create(Kind::FlowGroup, vec![table_handle(number)])?;
    device.steering.table(domain, number)?.groups.insert(id, group);
    output.set(create_flow_group_out::group_id, id);
    Ok(())
}

pub(super) fn destroy_group(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    let id = input.num(destroy_flow_group_in::group_id);
    let table = device.steering.table(domain, number)?;
    if !table.groups.contains_key(&id) {
        return Err(Status::BadResource);
    }
    device.objects.destroy(Handle(Kind::FlowGroup, id.into()))?;
    device.steering.table(domain, number)?.groups.remove(&id);
    Ok(())
}

/// The destinations of an entry, and the counters that follow in the same list.
fn destinations(context: &[u8]) -> Result<(Vec<Destination>, Vec<u32>), Status> {
    const TABLE: u32 = 1;
    const RECEIVER: u32 = 2;
    if context.is(flow_context::extended_destination) {
        return Err(Status::BadParameter);
    }
    let (list, _) = context.part(flow_context::destination).as_chunks::<8>();
    let forward = context.num(flow_context::destination_list_size) as usize;
    let count = context.num(flow_context::flow_counter_list_size) as usize;
    let (forward, counters) = list.get(..forward + count).ok_or(Status::BadInputLength)?.split_at(forward);
    let destination = |entry: &[u8; 8]| {
        let number = entry[..].num(dest_format_struct::destination_id);
        match entry[..].num(dest_format_struct::destination_type) {
            TABLE => Ok(Destination::Table(number)),
            RECEIVER => Ok(Destination::Receiver(number)),
            _ => Err(Status::BadParameter),
        }
    };
    let counters = counters.iter().map(|entry| entry[..].num(flow_counter_list::flow_counter_id)).collect();
    Ok((forward.iter().map(destination).collect::<Result<_, _>>()?, counters))
}

/// The entry in a command. If an entry is changed, only the fields in the mask are taken.
fn entry(context: &[u8], before: Option<(&Entry, u32)>) -> Result<Entry, Status> {
    const ACTION: u32 = 1 << 0;
    const TAG: u32 = 1 << 1;
    const DESTINATIONS: u32 = 1 << 2;
    const COUNTERS: u32 = 1 << 3;
    let (destinations, counters) = destinations(context)?;
    let mut value = Box::new([0; MATCH_SIZE]);
    value.put(Field::new(0, 0), context.part(flow_context::match_value));
    let mut entry = Entry {
        group: context.num(flow_context::group_id),
        value,
        action: Action(context.num(flow_context::action)),
        tag: context.num(flow_context::flow_tag),
        destinations,
        counters,
    };
    if let Some((before, mask)) = before {
        let before = before.clone();
        (entry.group, entry.value) = (before.group, before.value);
        if mask & ACTION == 0 {
            entry.action = before.action;
        }
        if mask & TAG == 0 {
            entry.tag = before.tag;
        }
        if mask & DESTINATIONS == 0 {
            entry.destinations = before.destinations;
        }
        if mask & COUNTERS == 0 {
            entry.counters = before.counters;
        }
    }
    // Lists without the corresponding action are ignored.
    if !entry.action.contains(Action::FORWARD) {
        entry.destinations.clear();
    }
    if !entry.action.contains(Action::COUNT) {
        entry.counters.clear();
    }
    entry.action.check()?;
    if entry.action.contains(Action::FORWARD) && entry.destinations.is_empty() {
        return Err(Status::BadParameter);
    }
    Ok(entry)
}

pub(super) fn set_entry(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    let index = input.num(set_fte_in::flow_index);
    let mask = input.num(set_fte_in::modify_enable_mask);
    let table = device.steering.table(domain, number)?;
    let (level, before) = (table.level, table.entries.get(&index));
    let before = match (input.num(alloc_pd_in::op_mod), before) {
        (0, None) => None,
        (1, Some(before)) => Some((before, mask)),
        (0, Some(_)) => return Err(Status::BadResourceState),
        (1, None) => return Err(Status::BadResource),
        _ => return Err(Status::BadParameter),
    };
    let is_new = before.is_none();
    let entry = entry(input.rest(set_fte_in::flow_context), before)?;
    if !table.groups.get(&entry.group).ok_or(Status::BadResource)?.range.contains(&index) {
        return Err(Status::BadIndex);
    }
    let mut uses = vec![Handle(Kind::FlowGroup, entry.group.into())];
    for destination in &entry.destinations {
        uses.push(match *destination {
            Destination::Receiver(receiver) => Handle(Kind::Tir, receiver.into()),
            Destination::Table(next) if device.steering.table(domain, next)?.level > level => {
                table_handle(next)
            }
            Destination::Table(_) => return Err(Status::BadParameter),
        });
    }
    uses.extend(entry.counters.iter().map(|counter| Handle(Kind::Counter, (*counter).into())));
    if is_new {
        device.objects.create_at(entry_handle(number, index), uses)?;
    } else {
        device.objects.rebind(entry_handle(number, index), uses)?;
    }
    device.steering.table(domain, number)?.insert(index, entry)
}

pub(super) fn delete_entry(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let (domain, number) = named_table(input)?;
    let index = input.num(delete_fte_in::flow_index);
    device.steering.table(domain, number)?;
    device.objects.destroy(entry_handle(number, index))?;
    device.steering.table(domain, number)?.remove(index);
    Ok(())
}

pub(super) fn add_vxlan_port(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    device.vxlan_ports.push(input.num(add_vxlan_udp_dport_in::vxlan_udp_port) as u16);
    Ok(())
}

pub(super) fn delete_vxlan_port(device: &mut Device, input: &[u8], _: &mut [u8]) -> Result<(), Status> {
    let port = input.num(add_vxlan_udp_dport_in::vxlan_udp_port) as u16;
    let at = device.vxlan_ports.iter().position(|known| *known == port).ok_or(Status::BadResource)?;
    device.vxlan_ports.remove(at);
    Ok(())
}
