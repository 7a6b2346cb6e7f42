//! Flows by matchers (`mlx5dv_create_flow`), and actions that change headers.

use std::ffi::c_int;

use uverbs::mlx5::{FlowAction, FlowMatcher, HeaderAction, RawMatching};

use super::devx::Object;
use super::known;
use crate::abi;
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::flow::{Flow, Rule};
use crate::owned::{Owned, end};
use crate::qp::Qp;

/// `struct mlx5dv_flow_matcher`, which callers only pass on.
pub(crate) struct Matcher {
    context: Pointer,
    matcher: Owned<FlowMatcher>,
}

/// The beginning of `struct mlx5dv_flow_matcher_attr`, which every version has.
#[repr(C)]
pub(crate) struct MatcherAttr {
    type_: u32,
    flags: u32,
    priority: u16,
    match_criteria_enable: u8,
    match_mask: Pointer,
    comp_mask: u64,
}

/// `enum mlx5dv_flow_matcher_attr_mask`, and the fields for which they ask.
mod matcher_mask {
    pub(super) const TABLE: u64 = 1 << 0;
    pub(super) const TABLE_AT: u64 = 32;
    pub(super) const PORT: u64 = 1 << 1;
    pub(super) const PORT_AT: u64 = 36;
}

/// `MLX5DV_FLOW_TABLE_TYPE_RDMA_TRANSPORT_RX` and `_TX`.
const TRANSPORT: std::ops::RangeInclusive<u32> = 5..=6;

/// The bytes of a `struct mlx5dv_flow_match_parameters`: a length, and the bytes.
fn parameters<'a>(place: Pointer) -> Answer<&'a [u8]> {
    let size = *place.get::<usize>().ok_or(EINVAL)?;
    let all = size.checked_add(size_of::<usize>()).and_then(|all| place.items::<u8>(all));
    all.and_then(|all| all.get(size_of::<usize>()..)).ok_or(EINVAL)
}

/// A word of 32 bits behind the beginning of a structure.
fn word(place: Pointer, at: u64) -> Answer<u32> {
    Pointer::from_word(place.word() + at).get::<u32>().copied().ok_or(EINVAL)
}

fn make(context: Option<&Context>, place: Pointer) -> Answer<Box<Matcher>> {
    let own = known(context)?;
    let attr = place.get::<MatcherAttr>().ok_or(EINVAL)?;
    let has = |bit: u64| attr.comp_mask & bit != 0;
    if has(!(matcher_mask::TABLE | matcher_mask::PORT)) || attr.type_ != 0 {
        return Err(EOPNOTSUPP);
    }
    let asked = |bit, at| if has(bit) { word(place, at).map(Some) } else { Ok(None) };
    let table = asked(matcher_mask::TABLE, matcher_mask::TABLE_AT)?;
    let port = asked(matcher_mask::PORT, matcher_mask::PORT_AT)?;
    match (table.is_some_and(|table| TRANSPORT.contains(&table)), port.is_some()) {
        (true, false) => return Err(EINVAL),
        (false, true) => return Err(EOPNOTSUPP),
        _ => {}
    }
    let matching = RawMatching {
        mask: parameters(attr.match_mask)?,
        criteria: attr.match_criteria_enable,
        priority: attr.priority,
        table: table.map(u64::from),
        flags: (attr.flags != 0).then_some(attr.flags),
        port,
    };
    let matcher = Owned::new(FlowMatcher::create_raw(own, &matching)?);
    Ok(Box::new(Matcher { context: context.map_or(Pointer::NULL, Pointer::to), matcher }))
}

pub(crate) extern "C" fn create_flow_matcher(
    context: Option<&Context>,
    attr: Pointer,
) -> Option<Box<Matcher>> {
    or_null(make(context, attr))
}

pub(crate) extern "C" fn destroy_flow_matcher(matcher: Option<Box<Matcher>>) -> c_int {
    returned(end(matcher, |matcher| matcher.matcher.destroy(FlowMatcher::destroy)))
}

/// The beginning of `struct mlx5dv_flow_action_attr`. Since rdma-core 41 an offset follows.
#[repr(C)]
struct ActionAttr {
    type_: u32,
    /// A pointer, or a number of 32 bits.
    what: u64,
}

const OFFSET_AT: u64 = 16;
const WITH_OFFSET: usize = 24;

/// `enum mlx5dv_flow_action_type`.
mod action {
    pub(super) const QP: u32 = 0;
    pub(super) const DROP: u32 = 1;
    pub(super) const FLOW_ACTION: u32 = 3;
    pub(super) const TAG: u32 = 4;
    pub(super) const OBJECT: u32 = 5;
    pub(super) const COUNTERS: u32 = 6;
    pub(super) const PASS: u32 = 7;
    pub(super) const COUNTERS_WITH_OFFSET: u32 = 8;
}

fn attr<'a>(list: Pointer, index: usize, size: usize) -> Answer<(&'a ActionAttr, Pointer)> {
    let at = index.checked_mul(size).ok_or(EINVAL)? as u64;
    let place = Pointer::from_word(list.word().checked_add(at).ok_or(EINVAL)?);
    Ok((place.get::<ActionAttr>().filter(|_| !list.is_null()).ok_or(EINVAL)?, place))
}

fn firmware_object<'a>(attr: &ActionAttr) -> Answer<&'a uverbs::mlx5::devx::FirmwareObject> {
    Pointer::from_word(attr.what).get::<Object>().ok_or(EINVAL)?.object.get()
}

fn flow(
    matcher: Option<&Matcher>,
    value: Pointer,
    list: Pointer,
    [count, size]: [usize; 2],
) -> Answer<Box<Flow>> {
    let matcher = matcher.ok_or(EINVAL)?;
    let value = parameters(value)?;
    if size < size_of::<ActionAttr>() {
        return Err(EINVAL);
    }
    // The queue pair is locked while the flow is created. It is the only destination.
    let mut qp = None;
    for index in 0..count {
        let (attr, _) = attr(list, index, size)?;
        if attr.type_ == action::QP {
            if qp.is_some() {
                return Err(EOPNOTSUPP);
            }
            qp = Some(Pointer::from_word(attr.what).get::<Qp>().ok_or(EINVAL)?.qp.lock()?);
        }
    }
    let mut actions = Vec::new();
    for index in 0..count {
        let (attr, place) = attr(list, index, size)?;
        actions.push(match attr.type_ {
            action::QP => FlowAction::ToQueuePair(qp.as_ref().ok_or(EINVAL)?.get()?),
            action::DROP => FlowAction::Drop,
            action::PASS => FlowAction::Pass,
            // The lower half of the union, wherever it is.
            action::TAG => FlowAction::Tag(word(place, 8)?),
            action::OBJECT => FlowAction::ToObject(firmware_object(attr)?),
            action::COUNTERS => FlowAction::Count(firmware_object(attr)?, 0),
            action::COUNTERS_WITH_OFFSET if size >= WITH_OFFSET => {
                FlowAction::Count(firmware_object(attr)?, word(place, OFFSET_AT)?)
            }
            action::FLOW_ACTION => {
                let change = Pointer::from_word(attr.what).get::<ActionObject>().ok_or(EINVAL)?;
                FlowAction::Change(change.action.get()?)
            }
            _ => return Err(EOPNOTSUPP),
        });
    }
    let flow = matcher.matcher.get()?.create_flow(value, &actions)?;
    let c = abi::Flow { comp_mask: 0, context: matcher.context, handle: flow.handle() };
    Ok(Box::new(Flow { c, flow: Owned::new(Rule::Matched(flow)) }))
}

pub(crate) extern "C" fn create_flow_sized(
    matcher: Option<&Matcher>,
    value: Pointer,
    count: usize,
    list: Pointer,
    size: usize,
) -> Option<Box<Flow>> {
    or_null(flow(matcher, value, list, [count, size]))
}

/// The version of programs whose actions have no offset.
pub(crate) extern "C" fn create_flow(
    matcher: Option<&Matcher>,
    value: Pointer,
    count: usize,
    list: Pointer,
) -> Option<Box<Flow>> {
    create_flow_sized(matcher, value, count, list, size_of::<ActionAttr>())
}

/// `struct ibv_flow_action`, and what it is for the library.
#[repr(C)]
pub(crate) struct ActionObject {
    context: Pointer,
    action: Owned<HeaderAction>,
}

fn made(context: Option<&Context>, action: HeaderAction) -> Box<ActionObject> {
    let context = context.map_or(Pointer::NULL, Pointer::to);
    Box::new(ActionObject { context, action: Owned::new(action) })
}

pub(crate) extern "C" fn create_modify_header(
    context: Option<&Context>,
    size: usize,
    changes: Pointer,
    table: u32,
) -> Option<Box<ActionObject>> {
    let make = || {
        let own = known(context)?;
        let changes = changes.items::<u8>(size).ok_or(EINVAL)?;
        Ok(made(context, HeaderAction::modify_raw(own, changes, table.into())?))
    };
    or_null(make())
}

pub(crate) extern "C" fn create_packet_reformat(
    context: Option<&Context>,
    size: usize,
    header: Pointer,
    kind: u32,
    table: u32,
) -> Option<Box<ActionObject>> {
    let make = || {
        let own = known(context)?;
        if header.is_null() != (size == 0) {
            return Err(EINVAL);
        }
        let header = header.items::<u8>(size).ok_or(EINVAL)?;
        Ok(made(context, HeaderAction::reformat_raw(own, kind.into(), header, table.into())?))
    };
    or_null(make())
}

/// Only this file creates such actions.
pub(crate) extern "C" fn destroy_flow_action(action: Option<Box<ActionObject>>) -> c_int {
    returned(end(action, |action| action.action.destroy(HeaderAction::destroy)))
}
