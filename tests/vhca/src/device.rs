//! The device: its state, and how it notifies the driver.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::command::{Capabilities, CommandRing, Faults, Trace};
use crate::counter::Counters;
use crate::lies::{Lie, Lies};
use crate::mkey::Mkeys;
use crate::object::Objects;
use crate::packet::VXLAN_PORT;
use crate::port::Port;
use crate::port_counter::PortCounts;
use crate::queue::{CompletionEntry, Cq, Eq, Opcode, Pages, Posted, ReceiveRing, Rq, Sq, Syndrome, event};
use crate::queue_counter::CounterSets;
use crate::rss::{Rqt, Tir};
use crate::server::LAYOUT;
use crate::steering::Steering;
use crate::transport::Transport;
use crate::wire::Wire;
use vpci::pci::Interrupts;
use vpci::{Fault, Memory};

/// The results of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) received: u64,
    /// No flow matched it.
    pub(crate) unclaimed: u64,
    pub(crate) delivered: u64,
    /// The queue had no request for it, or was not ready.
    pub(crate) no_request: u64,
    pub(crate) sent: u64,
    /// RoCE frames with an error.
    pub(crate) refused: u64,
    /// Accesses to addresses that are not memory of the guest.
    pub(crate) faults: u64,
}

/// A virtual ConnectX.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) memory: Memory,
    pub(crate) interrupts: Interrupts,
    pub(crate) commands: CommandRing,
    /// Passes the bits of rung commands to the thread that executes them.
    pub(crate) rung: Option<Sender<u32>>,
    pub(crate) capabilities: Capabilities,
    pub(crate) objects: Objects,
    pub(crate) eqs: BTreeMap<u32, Eq>,
    pub(crate) cqs: BTreeMap<u32, Cq>,
    /// More completions come at once.
    is_burst: bool,
    pub(crate) sqs: BTreeMap<u32, Sq>,
    pub(crate) rqs: BTreeMap<u32, Rq>,
    /// Requests that receive queues share, and the contexts with which they were created.
    pub(crate) pools: BTreeMap<u32, ReceiveRing>,
    pub(crate) tirs: BTreeMap<u32, Tir>,
    pub(crate) rqts: BTreeMap<u32, Rqt>,
    /// Contexts of objects that are only stored.
    pub(crate) contexts: BTreeMap<crate::object::Handle, Vec<u8>>,
    pub(crate) transport: Transport,
    pub(crate) port: Port,
    /// Memory of programs, by its number.
    pub(crate) umems: BTreeMap<u32, Pages>,
    pub(crate) mkeys: Mkeys,
    pub(crate) steering: Steering,
    pub(crate) counters: Counters,
    pub(crate) counter_sets: CounterSets,
    pub(crate) port_counts: PortCounts,
    pub(crate) vxlan_ports: Vec<u16>,
    pub(crate) faults: Faults,
    pub(crate) lies: Lies,
    pub(crate) trace: Trace,
    pub(crate) statistics: Statistics,
    pub(crate) wire: Wire,
    pub(crate) issi: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) port_is_up: bool,
    pub(crate) health: u32,
    pub(crate) started: Instant,
    /// The first half of a doorbell that is written in two halves, with its offset.
    pub(crate) half_doorbell: Option<(u64, u32)>,
}

impl Device {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self {
            memory: Memory::default(),
            interrupts: Interrupts::new(LAYOUT.vectors),
            commands: CommandRing::default(),
            rung: None,
            capabilities,
            objects: Objects::default(),
            eqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            is_burst: false,
            sqs: BTreeMap::new(),
            rqs: BTreeMap::new(),
            pools: BTreeMap::new(),
            tirs: BTreeMap::new(),
            rqts: BTreeMap::new(),
            contexts: BTreeMap::new(),
            transport: Transport::default(),
            port: Port::default(),
            umems: BTreeMap::new(),
            mkeys: Mkeys::default(),
            steering: Steering::default(),
            counters: Counters::default(),
            counter_sets: CounterSets::default(),
            port_counts: PortCounts::default(),
            vxlan_ports: vec![VXLAN_PORT],
            faults: Faults::default(),
            lies: Lies::default(),
            trace: Trace::default(),
            statistics: Statistics::default(),
            wire: Wire::default(),
            issi: 0,
            mac: [0x52, 0x54, 0x00, 0xca, 0xfe, 0x01],
            port_is_up: true,
            health: 0,
            started: Instant::now(),
            half_doorbell: None,
        }
    }

    /// The GUID of the port, derived from its hardware address.
    pub(crate) fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac;
        u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// Removes every object, as when the driver is unloaded. The settings of the control line stay, and so do the counters of the port.
    pub(crate) fn drop_objects(&mut self) {
        self.objects.clear();
        self.eqs.clear();
        self.cqs.clear();
        self.sqs.clear();
        self.rqs.clear();
        self.pools.clear();
        self.tirs.clear();
        self.rqts.clear();
        self.contexts.clear();
        self.transport = Transport::default();
        self.port.reset();
        self.umems.clear();
        self.mkeys = Mkeys::default();
        self.steering = Steering::default();
        self.counters = Counters::default();
        self.counter_sets = CounterSets::default();
        self.vxlan_ports = vec![VXLAN_PORT];
        self.issi = 0;
    }

    /// A reset by the bus.
    pub(crate) fn reset_by_bus(&mut self) {
        self.drop_objects();
        self.commands = CommandRing::default();
        self.half_doorbell = None;
    }

    /// Whether a queue gets events when commands are done.
    pub(crate) fn command_events(&self) -> bool {
        self.eqs.values().any(|eq| eq.gets(event::COMMAND))
    }

    pub(crate) fn command_done(&mut self, slot: u32) {
        self.event(event::COMMAND, 0, &(1_u32 << slot).to_be_bytes());
    }

    /// Sends an event to every queue that gets events of this kind.
    pub(crate) fn event(&mut self, kind: u8, subkind: u8, data: &[u8]) {
        let numbers: Vec<_> =
            self.eqs.iter().filter(|(_, eq)| eq.gets(kind)).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.event_to(number, kind, subkind, data));
    }

    fn event_to(&mut self, number: u32, kind: u8, subkind: u8, data: &[u8]) {
        let Some(eq) = self.eqs.get_mut(&number) else { return };
        match eq.post(&self.memory, kind, subkind, data) {
            Ok(()) => self.interrupts.raise(eq.vector),
            Err(_) => self.statistics.faults += 1,
        }
    }

    /// Sets the port's state, and notifies the driver.
    pub(crate) fn set_port(&mut self, up: bool) {
        if std::mem::replace(&mut self.port_is_up, up) != up {
            self.port_counts.link.downed += u64::from(!up);
            let mut data = [0; 12];
            data[8] = 1 << 4; // port 1
            self.event(event::PORT_CHANGE, if up { 4 } else { 1 }, &data);
        }
    }

    /// Completes a request.
    pub(crate) fn complete(&mut self, cqn: u32, completion: CompletionEntry) {
        let completion = self.told(completion);
        let is_receive = completion.opcode() == Opcode::Responder;
        let Some(cq) = self.cqs.get_mut(&cqn) else { return };
        let now = self.started.elapsed().as_nanos() as u64;
        let posted = cq.post(&self.memory, completion.at(now), self.is_burst);
        match posted {
            Ok(Posted::Event) if is_receive && self.lies.occurs(Lie::Event) => {}
            posted => self.completed(cqn, posted),
        }
    }

    /// A completion as the card tells it, which may be wrong on request.
    fn told(&mut self, mut completion: CompletionEntry) -> CompletionEntry {
        if completion.is_failure() && self.lies.occurs(Lie::Status) {
            return completion.error(Syndrome::RemoteOperation);
        }
        if completion.opcode() == Opcode::Responder && self.lies.occurs(Lie::Length) {
            completion.lengthen();
        }
        completion
    }

    fn completed(&mut self, cqn: u32, posted: Result<Posted, Fault>) {
        match posted {
            Ok(posted) => self.completion_event(cqn, posted),
            Err(_) => self.statistics.faults += 1,
        }
    }

    /// Several packets arrive at once: completions may be compressed.
    pub(crate) fn burst(&mut self, packets: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.is_burst, true);
        packets(self);
        self.is_burst = outer;
        if outer {
            return;
        }
        let numbers: Vec<_> = self.cqs.keys().copied().collect();
        for cqn in numbers {
            let Some(cq) = self.cqs.get_mut(&cqn) else { continue };
            let posted = cq.release(&self.memory);
            self.completed(cqn, posted);
        }
    }

    fn completion_event(&mut self, cqn: u32, posted: Posted) {
        match posted {
            Posted::Silently => {}
            Posted::Event => {
                let mut data = [0; 28];
                data[24..].copy_from_slice(&cqn.to_be_bytes());
                if let Some(eqn) = self.cqs.get(&cqn).map(|cq| cq.eqn) {
                    self.event_to(eqn, event::COMPLETION, 0, &data);
                }
            }
            Posted::Overrun => {
                let mut data = [0; 12];
                data[..4].copy_from_slice(&cqn.to_be_bytes());
                data[11] = 1; // overrun
                self.event(event::CQ_ERROR, 0, &data);
            }
        }
    }

    /// Arms a completion queue.
    pub(crate) fn arm(&mut self, cqn: u32, doorbell: u32) {
        if let Some(cq) = self.cqs.get_mut(&cqn) {
            let posted = cq.arm(doorbell);
            self.completion_event(cqn, posted);
        }
    }
}
