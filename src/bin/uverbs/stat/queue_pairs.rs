//! Counters that queue pairs are bound to.

use serde_json::{Value, json};
use uverbs::Device;
use uverbs::statistics::{BindBy, CounterMode, QueuePairCounter, QueuePairCounters};

use super::counters::counter;
use super::{Page, section, words};
use crate::Outcome;
use crate::table::{Cell, Table};

/// Those of one port.
pub(super) struct QueuePairs {
    port: u32,
    counters: QueuePairCounters,
    mode: CounterMode,
    found: Vec<QueuePairCounter>,
}

impl QueuePairs {
    pub(super) fn new(device: &Device, port: u32) -> Outcome<Self> {
        let counters = device.queue_pair_counters(port)?;
        Ok(Self { port, counters, mode: CounterMode::Off, found: Vec::new() })
    }

    pub(super) fn read(&mut self) -> Outcome {
        self.mode = self.counters.mode()?;
        self.found = self.counters.list()?;
        Ok(())
    }

    pub(super) fn write(&self, text: &mut String, page: &Page) {
        section(text, format_args!("port {}, queue pairs: {}", self.port, mode(self.mode)));
        for found in &self.found {
            text.push_str(&format!("    counter {}: {}\n", found.id, of_whom(found)));
            let mut table = Table::default();
            for row in found.counters.iter().filter(|row| page.all || row.raw() != 0) {
                let name = row.name().escape_debug().to_string();
                table.push(vec![name.into(), Cell::number(row.value()), row.unit().as_str().into()]);
            }
            match table.is_empty() {
                true => text.push_str("      all zero\n"),
                false => table.write(text, "      ", page.colours),
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        let found = self.found.iter().map(|found| {
            let counters: Vec<_> = found.counters.iter().map(|row| counter(row, None, false)).collect();
            json!({
                "id": found.id,
                "queue_pairs": found.queue_pairs,
                "type": found.qp_type.map(words::qp_type),
                "pid": found.owner.as_ref().and_then(|owner| owner.pid()),
                "owner": found.owner.as_ref().map(ToString::to_string),
                "counters": counters,
            })
        });
        json!({ "port": self.port, "mode": mode(self.mode), "counters": found.collect::<Vec<_>>() })
    }
}

/// What the queue pairs of a counter have in common, and their numbers.
fn of_whom(found: &QueuePairCounter) -> String {
    let mut parts = Vec::new();
    parts.extend(found.qp_type.map(|kind| format!("type {}", words::qp_type(kind))));
    parts.extend(found.owner.as_ref().map(|owner| format!("of {owner}")));
    let numbers: Vec<_> = found.queue_pairs.iter().map(ToString::to_string).collect();
    parts.push(match numbers.as_slice() {
        [] => "no queue pair now".to_owned(),
        [one] => format!("queue pair {one}"),
        many => format!("queue pairs {}", many.join(", ")),
    });
    parts.join(", ")
}

fn mode(mode: CounterMode) -> String {
    match mode {
        CounterMode::Off => "not counted one by one".to_owned(),
        CounterMode::ByRule { by, .. } if by.is_empty() => "not counted one by one".to_owned(),
        CounterMode::ByRule { by, with_optional } => {
            let names = [(BindBy::TYPE, "type"), (BindBy::PROCESS, "process")];
            let names: Vec<_> =
                names.into_iter().filter(|(bit, _)| by.contains(*bit)).map(|(_, name)| name).collect();
            let more = if with_optional { ", with optional counters" } else { "" };
            format!("counted by {}{more}", names.join(" and "))
        }
        CounterMode::OneByOne => "some are counted one by one".to_owned(),
        other => format!("counted in another way ({other:?})"),
    }
}
