//! Counters objects: their binding to flows, and reading them.
//!
//! The behaviour of `mlx5_ib_flow_counters_set_data`, `counters_set_description` and `mlx5_ib_read_counters`
//! (drivers/infiniband/hw/mlx5/counters.c, Linux 6.1; the same in 7.2). Where those do not check their input, the result here is
//! EINVAL.

use nix::errno::Errno;
use uverbs_abi::ids::counters::read::{BUFF, FLAGS, HANDLE};
use uverbs_abi::ioctl::UHW_IN;
use uverbs_abi::mlx5::{CreateFlow, FlowCountersData, FlowCountersDesc};
use uverbs_abi::types::{ReadCountersFlags, counter_description};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::call::Call;
use super::state::State;

/// `MAX_COUNTERS_NUM`.
const MAX_MAP: u32 = 8191;

/// The hardware counter of a counters object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hardware {
    /// Not allocated: no flow has used the object.
    None,
    /// It counts from then on, until the object is destroyed.
    Counts { packets: u64, bytes: u64 },
    /// No counter was available. The kernel keeps the error in place of the counter, and the object cannot be used.
    Failed,
}

#[derive(Debug)]
pub(super) struct Counters {
    /// Number of COUNT specs of existing flows that name it.
    pub(super) uses: u32,
    hardware: Hardware,
    /// The position of each value when it is read; `None` while no flow has set it.
    map: Option<Vec<FlowCountersDesc>>,
    /// The highest index of the map, plus one. Zero means "not bound".
    max_index: u32,
    /// Number of entries of the last map, stored before the map was checked.
    entries: usize,
}

impl Counters {
    pub(super) fn is_bound(&self) -> bool {
        matches!(self.hardware, Hardware::Counts { .. })
    }

    /// A frame matched a flow that counts here. Its length does not include its check sequence.
    #[inline]
    pub(super) fn count(&mut self, len: usize) {
        if let Hardware::Counts { packets, bytes } = &mut self.hardware {
            *packets = packets.wrapping_add(1);
            *bytes = bytes.wrapping_add(len as u64);
        }
    }

    /// The last flow was destroyed, or its creation failed: `mlx5_ib_counters_clear_description`.
    fn unmap(&mut self) {
        if self.uses == 1 {
            self.map = None;
            self.max_index = 0;
        }
    }
}

/// The driver's request of CREATE_FLOW: a map for a counters object, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    data: Option<FlowCountersData>,
    /// The attribute that contains the payload.
    index: usize,
}

/// `UVERBS_METHOD_COUNTERS_CREATE`.
pub(super) fn create(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.state.number(|state| &state.counters);
    let counters = Counters { uses: 0, hardware: Hardware::None, map: None, max_index: 0, entries: 0 };
    call.state.counters.insert(id, counters);
    call.made(id);
    Ok(())
}

/// `UVERBS_METHOD_COUNTERS_READ`.
pub(super) fn read(call: &mut Call<'_, '_, '_>) -> Result<(), Errno> {
    let id = call.object(HANDLE)?.id;
    if call.state.counters.get(&id).is_none_or(|counters| counters.uses == 0) {
        return Err(Errno::EINVAL);
    }
    // The flag for cached values is accepted and has no effect.
    call.flags(FLAGS, ReadCountersFlags::PREFER_CACHED.bits())?;
    let len = call.find(BUFF).map_or(0, |found| usize::from(found.len)) / size_of::<u64>();
    let values = call.state.counters.get(&id).ok_or(Errno::EINVAL)?.values(len)?;
    call.copy_to(BUFF, values.as_bytes())
}

impl Counters {
    /// The values for a buffer of `len` values.
    fn values(&self, len: usize) -> Result<Vec<u64>, Errno> {
        let (Hardware::Counts { packets, bytes }, Some(map)) = (self.hardware, &self.map) else {
            return Err(Errno::EINVAL);
        };
        if self.max_index as usize > len || self.entries != map.len() {
            return Err(Errno::EINVAL);
        }
        let mut values = vec![0_u64; len];
        for entry in map {
            let value = values.get_mut(entry.index as usize).ok_or(Errno::EINVAL)?;
            let add = if entry.description == counter_description::BYTES { bytes } else { packets };
            *value = value.wrapping_add(add);
        }
        Ok(values)
    }
}

/// Checks the driver's request of CREATE_FLOW: the first lines of `mlx5_ib_create_flow`, fs.c.
pub(super) fn payload(call: &Call<'_, '_, '_>) -> Result<Payload, Errno> {
    let none = Payload { data: None, index: usize::MAX };
    let Some(found) = call.find(UHW_IN).filter(|found| found.len > 0) else { return Ok(none) };
    if usize::from(found.len) < size_of::<CreateFlow>() {
        return Err(Errno::EOPNOTSUPP);
    }
    let bytes = call.input(UHW_IN)?;
    let (head, rest) = CreateFlow::read_from_prefix(bytes).map_err(|_| Errno::EFAULT)?;
    if head.ncounters_data > 1 {
        return Err(Errno::EINVAL);
    }
    let used = if head.ncounters_data == 1 { size_of::<FlowCountersData>() } else { 0 };
    if rest.iter().skip(used).any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if used == 0 {
        return Ok(none);
    }
    // The kernel does not detect a request that is too short, and reads beyond it.
    let (data, _) = FlowCountersData::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
    Ok(Payload { data: Some(data), index: found.index })
}

/// The map to which the address in a payload refers.
fn map_of(call: &Call<'_, '_, '_>, payload: Payload) -> Result<Option<Vec<FlowCountersDesc>>, Errno> {
    const ADDRESS: usize = size_of::<CreateFlow>();
    let Some(data) = payload.data else { return Ok(None) };
    if data.ncounters > MAX_MAP {
        return Err(Errno::EINVAL);
    }
    if data.ncounters == 0 {
        return Ok(Some(Vec::new()));
    }
    let nested = call.command.nested_bytes(payload.index).filter(|(at, _)| *at == ADDRESS);
    let (_, bytes) = nested.ok_or(Errno::EFAULT)?;
    let mut map = vec![FlowCountersDesc::new_zeroed(); data.ncounters as usize];
    let room = map.as_mut_bytes();
    room.copy_from_slice(bytes.get(..room.len()).ok_or(Errno::EFAULT)?);
    Ok(Some(map))
}

/// Binds a counters object to a flow that is being created: `mlx5_ib_flow_counters_set_data`.
pub(super) fn bind(call: &mut Call<'_, '_, '_>, id: u32, payload: Payload) -> Result<(), Errno> {
    let map = map_of(call, payload)?;
    let state = &mut *call.state;
    let counters = state.counters.get_mut(&id).ok_or(Errno::EINVAL)?;
    let fresh = match counters.hardware {
        Hardware::Failed => return Err(Errno::EINVAL),
        Hardware::Counts { .. } => false,
        Hardware::None if state.bound >= state.profile.max_bound_counters => {
            counters.hardware = Hardware::Failed;
            return Err(Errno::ENOMEM);
        }
        Hardware::None => {
            counters.hardware = Hardware::Counts { packets: 0, bytes: 0 };
            state.bound += 1;
            true
        }
    };
    let answer = counters.describe(map);
    if answer.is_err() && fresh {
        counters.hardware = Hardware::None;
        state.bound -= 1;
    }
    answer
}

impl Counters {
    /// Takes the map of a flow; none if there is one already: `counters_set_description`.
    fn describe(&mut self, map: Option<Vec<FlowCountersDesc>>) -> Result<(), Errno> {
        let bound = self.max_index != 0;
        let Some(map) = map else {
            return if bound { Ok(()) } else { Err(Errno::EINVAL) };
        };
        if bound {
            return Err(Errno::EINVAL);
        }
        self.entries = map.len();
        let mut max_index = 0;
        for entry in &map {
            if entry.description > counter_description::BYTES {
                return Err(Errno::EINVAL);
            }
            if max_index <= entry.index {
                // The kernel has the same overflow: the highest possible index makes this zero again.
                max_index = entry.index.wrapping_add(1);
            }
        }
        self.map = Some(map);
        self.max_index = max_index;
        Ok(())
    }
}

impl State {
    /// Undoes the binding of a flow to its counters, before its uses are released.
    pub(super) fn unbind(&mut self, counting: Option<u32>) {
        if let Some(counters) = counting.and_then(|id| self.counters.get_mut(&id)) {
            counters.unmap();
        }
    }

    /// Releases the uses of a flow's COUNT specs.
    pub(super) fn unuse(&mut self, taken: &[u32]) {
        for id in taken {
            if let Some(counters) = self.counters.get_mut(id) {
                counters.uses = counters.uses.saturating_sub(1);
            }
        }
    }
}
