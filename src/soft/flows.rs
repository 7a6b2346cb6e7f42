//! Flows: from the request CREATE_FLOW to the steering table.
//!
//! Source: `ib_uverbs_ex_create_flow`, uverbs_cmd.c, and `mlx5_ib_create_flow`, fs.c, Linux 6.1. CAP_NET_RAW is not required here.

use nix::errno::Errno;
use uverbs_abi::flow::{CreateFlow, CreateFlowResp};
use uverbs_abi::ids::device::invoke_write::CORE_IN;
use uverbs_abi::types::qp_type;

use super::PORTS;
use super::call::Call;
use super::counters;
use super::flow_check::{self, Caller, Object, Specs};
use super::state::State;
use super::steering::Rule;
use super::table::Kind;

#[derive(Debug)]
pub(super) struct Flow {
    qp: u32,
    /// Counters objects, once for each COUNT spec: each is one use of the object.
    taken: Vec<u32>,
    /// The counters object of the rule. A rule that is not NORMAL has none, whatever its specs are.
    pub(super) counting: Option<u32>,
}

/// `ib_uverbs_ex_create_flow`.
pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let body = match call.find(CORE_IN) {
        Some(found) if usize::from(found.len) >= size_of::<CreateFlow>() => call.input(CORE_IN)?.to_vec(),
        _ => return Err(Errno::ENOSPC),
    };
    // If the device was removed, the port is not checked.
    let ports = if call.state.gone { u32::MAX } else { PORTS.into() };
    let (request, spec_bytes) = flow_check::header(&body, Caller { net_raw: true, ports })?;
    let flow_handle = call.begin(Kind::Flow)?;
    let qp = call.lookup(Kind::Qp, request.qp_handle.into())?.id;
    let kind = call.state.qps.get(&qp).map(|qp| qp.kind);
    if !kind.is_some_and(|kind| [qp_type::UD, qp_type::RAW_PACKET].contains(&kind)) {
        return Err(Errno::EINVAL);
    }

    let mut taken = Vec::new();
    let has_counters = call.state.profile.counters;
    let mut lookup = |object, handle: u32| match object {
        Object::Counters if has_counters => {
            let id = call.lookup(Kind::Counters, handle.into())?.id;
            if let Some(counters) = call.state.counters.get_mut(&id) {
                counters.uses += 1;
                taken.push(id);
            }
            Ok(())
        }
        // This device has no such objects.
        Object::Counters | Object::FlowAction => Err(Errno::EINVAL),
    };
    let specs = flow_check::specs(&request.flow_attr, spec_bytes, &mut lookup);
    let made = specs.and_then(|specs| insert(call, &request, &specs, qp, &taken));
    match made {
        Ok((id, counting)) => {
            call.state.flows.insert(id, Flow { qp, taken, counting });
            if let Some(qp) = call.state.qps.get_mut(&qp) {
                qp.uses += 1;
            }
            call.made(id);
        }
        Err(errno) => {
            call.state.unuse(&taken);
            return Err(errno);
        }
    }
    call.respond(&CreateFlowResp { comp_mask: 0, flow_handle })
}

/// The driver's part: its own request, the rule, the counters and the table, in this order.
fn insert(
    call: &mut Call<'_, '_, '_>,
    request: &CreateFlow,
    specs: &Specs,
    qp: u32,
    taken: &[u32],
) -> Result<(u32, Option<u32>), Errno> {
    let payload = counters::payload(call)?;
    let rule = Rule::compile(&request.flow_attr, specs, &call.state.rules)?;
    // A rule that counts has one COUNT spec, so the object whose use was taken is the named one.
    let counting = rule.counters().and_then(|_| taken.last().copied());
    if let Some(id) = counting {
        counters::bind(call, id, payload)?;
    }
    let id = call.state.number(|state| &state.flows);
    let full = call.state.flows.len() >= call.state.profile.max_flows as usize;
    let inserted =
        if full { Err(Errno::ENOSPC) } else { call.state.steering.insert(id, qp, &rule.counting(counting)) };
    if let Err(errno) = inserted {
        call.state.unbind(counting);
        return Err(errno);
    }
    Ok((id, counting))
}

impl State {
    /// Removes a flow: `mlx5_ib_destroy_flow` always succeeds.
    pub(super) fn destroy_flow(&mut self, id: u32) {
        let Some(flow) = self.flows.remove(&id) else { return };
        self.steering.remove(id);
        self.unbind(flow.counting);
        self.unuse(&flow.taken);
        if let Some(qp) = self.qps.get_mut(&flow.qp) {
            qp.uses = qp.uses.saturating_sub(1);
        }
    }
}
