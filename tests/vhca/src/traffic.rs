//! The path of packets through the device.

use crate::counter::Counters;
use crate::device::Device;
use crate::lies::Lie;
use crate::packet::{Headers, complete, cut, header_flags, match_value, received_sum};
use crate::port_counter::Cast;
use crate::queue::{Receive, Send, state};
use crate::queue_counter::QueueEvent;
use crate::rss::Target;
use crate::steering::Domain;

impl Device {
    /// A packet arrives from the wire.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.port_counts.link.frames.received.count(Cast::of_frame(bytes), bytes.len());
        self.steer(bytes);
    }

    /// A packet that does not belong to a queue pair passes the flow tables.
    pub(crate) fn steer(&mut self, bytes: &[u8]) {
        self.statistics.received += 1;
        let cast = Cast::of_frame(bytes);
        self.port_counts.function.ethernet.received.count(cast, bytes.len());
        let headers = Headers::parse(bytes, &self.vxlan_ports);
        let value = match_value(&headers, 0);
        // Counters that do not exist count nothing.
        let mut none = Counters::default();
        let counters = if self.lies.occurs(Lie::Count) { &mut none } else { &mut self.counters };
        let verdict = self.steering.run(Domain::Receive, &value, bytes.len(), counters);
        if verdict.receivers.is_empty() {
            self.statistics.unclaimed += 1;
        }
        for (receiver, tag) in verdict.receivers {
            let Some(tir) = self.tirs.get(&receiver) else { continue };
            let (queue, hash) = match &tir.target {
                Target::Queue(queue) => (Some(*queue), 0),
                Target::Table { number, hash } => {
                    let hash = hash.of(&headers);
                    (self.rqts.get(number).and_then(|table| table.queue(hash)), hash)
                }
            };
            let (headers, sum) = (header_flags(bytes, &headers), received_sum(bytes, &headers));
            let packet = Receive { bytes, tag, hash, headers, sum };
            if let Some(queue) = queue {
                self.deliver(queue, &packet);
            }
        }
    }

    /// A packet arrives at a receive queue.
    pub(crate) fn deliver(&mut self, number: u32, packet: &Receive<'_>) {
        let Some(rq) = self.rqs.get_mut(&number) else { return };
        if rq.state() != state::READY {
            self.statistics.no_request += 1;
            return;
        }
        let ring = match rq.pool {
            Some(pool) => self.pools.get_mut(&pool),
            None => rq.ring.as_mut(),
        };
        let Some(ring) = ring else { return };
        match ring.take(&self.memory) {
            Ok(Some(request)) => {
                let pd = ring.work.pd;
                let completion = rq.fill(&self.memory, &self.mkeys, pd, request, packet);
                let (cqn, failed) = (rq.cqn, completion.is_error());
                self.statistics.delivered += 1;
                self.complete(cqn, completion);
                if failed {
                    self.set_rq_state(number, state::ERROR);
                }
            }
            Ok(None) => {
                self.statistics.no_request += 1;
                self.counter_sets.count(rq.counter_set(), QueueEvent::OutOfBuffer);
            }
            Err(_) => self.statistics.faults += 1,
        }
    }

    /// Changes the state of a receive queue. If it enters the error state, the remaining requests end.
    pub(crate) fn set_rq_state(&mut self, number: u32, to: u32) {
        let Some(rq) = self.rqs.get_mut(&number) else { return };
        rq.set_state(to);
        if to != state::ERROR {
            return;
        }
        let mut flushed = Vec::new();
        if let Some(mut ring) = rq.ring.take() {
            while let Ok(Some((counter, _))) = ring.take(&self.memory) {
                flushed.push(rq.flushed(counter));
            }
            rq.ring = Some(ring);
        }
        let cqn = rq.cqn;
        flushed.into_iter().for_each(|completion| self.complete(cqn, completion));
    }

    /// Executes the requests in a send queue.
    pub(crate) fn send_all(&mut self, number: u32) {
        self.burst(|device| device.send_each(number));
    }

    fn send_each(&mut self, number: u32) {
        let most_large = self.capabilities.most_large_send();
        while let Some(sq) = self.sqs.get_mut(&number).filter(|sq| sq.state() != state::RESET) {
            let work = match sq.take(&self.memory, &self.mkeys, most_large) {
                Ok(Some(work)) => work,
                Ok(None) => return,
                Err(_) => {
                    self.statistics.faults += 1;
                    return;
                }
            };
            if work.result.is_err() {
                sq.set_state(state::ERROR);
            }
            let (cqn, completion) = (sq.cqn, sq.completion(number, &work));
            if let Ok(Some(send)) = work.result {
                self.send(number, send);
            }
            if let Some(completion) = completion {
                self.complete(cqn, completion);
            }
        }
    }

    fn send(&mut self, number: u32, send: Send) {
        let frames = match send.large {
            Some(large) => cut(&send.bytes, large, &self.vxlan_ports),
            None => vec![send.bytes],
        };
        for mut bytes in frames {
            let headers = Headers::parse(&bytes, &self.vxlan_ports);
            complete(&mut bytes, &headers, send.l3_checksum, send.l4_checksum);
            self.transmit(number, bytes, &headers);
        }
    }

    /// Sends a packet to the wire, if the flow tables let it pass.
    fn transmit(&mut self, number: u32, bytes: Vec<u8>, headers: &Headers) {
        let value = match_value(headers, number);
        let verdict = self.steering.run(Domain::Transmit, &value, bytes.len(), &mut self.counters);
        if !verdict.passes {
            return;
        }
        self.statistics.sent += 1;
        let cast = Cast::of_frame(&bytes);
        self.port_counts.link.frames.sent.count(cast, bytes.len());
        self.port_counts.function.ethernet.sent.count(cast, bytes.len());
        if self.wire.is_loop {
            self.receive(&bytes);
        }
        self.wire.send(&bytes);
        self.wire.keep(bytes);
    }
}
