//! The objects that exist on a device.

use std::net::SocketAddr;

use serde_json::{Map, Value, json};
use uverbs::resources::{Count, Owner, Resources};
use uverbs::{Device, ErrorKind};

use super::{Page, section, words};
use crate::Outcome;
use crate::table::{Cell, Table};

/// The objects of one device; of one port only those that belong to it.
pub(super) struct Objects {
    resources: Resources,
    port: Option<u32>,
    counts: Vec<Count>,
    lists: Vec<List>,
}

/// One kind of objects.
struct List {
    name: &'static str,
    table: Table,
    rows: Vec<Value>,
}

impl List {
    fn new(name: &'static str, head: &[&str]) -> Self {
        Self { name, table: Table::with_head(head), rows: Vec::new() }
    }

    fn push(&mut self, owner: &Owner, mut line: Vec<Cell>, mut row: Map<String, Value>) {
        line.push(owner.to_string().into());
        self.table.push(line);
        row.insert("pid".to_owned(), owner.pid().into());
        row.insert("owner".to_owned(), owner.to_string().into());
        self.rows.push(row.into());
    }
}

/// The members of a JSON object.
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        Map::from_iter([$(($name.to_owned(), json!($value)),)*])
    };
}

impl Objects {
    pub(super) fn new(device: &Device, port: Option<u32>) -> Outcome<Self> {
        Ok(Self { resources: device.resources()?, port, counts: Vec::new(), lists: Vec::new() })
    }

    pub(super) fn read(&mut self) -> Outcome {
        self.counts = self.resources.summary()?;
        self.lists.clear();
        match self.queue_pairs() {
            // A soft device has only the counts.
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
            list => self.lists.push(list?),
        }
        if self.port.is_none() {
            let lists = [self.completion_queues()?, self.memory_regions()?, self.protection_domains()?];
            self.lists.extend(lists);
            let lists = [self.contexts()?, self.shared_receive_queues()?];
            self.lists.extend(lists);
        }
        let ids = self.connection_ids()?;
        self.lists.push(ids);
        Ok(())
    }

    fn is_of_port(&self, port: Option<u32>) -> bool {
        self.port.is_none_or(|wanted| port == Some(wanted))
    }

    fn queue_pairs(&mut self) -> uverbs::Result<List> {
        let head = ["NUMBER", "PORT", "TYPE", "STATE", "REMOTE", "SEND PSN", "RECEIVE PSN", "PD", "OWNER"];
        let mut list = List::new("queue_pairs", &head);
        for row in self.resources.queue_pairs()? {
            if !self.is_of_port(row.port) {
                continue;
            }
            let (kind, state) = (words::qp_type(row.qp_type), words::qp_state(row.state));
            let object = object! {
                "number": row.number, "port": row.port, "type": kind, "state": state, "remote": row.remote,
                "send_psn": row.send_psn, "receive_psn": row.receive_psn, "protection_domain": row.protection_domain,
            };
            let line = vec![
                Cell::number(row.number),
                Cell::or_dash(row.port),
                kind.into(),
                state.into(),
                Cell::or_dash(row.remote),
                Cell::number(row.send_psn),
                Cell::or_dash(row.receive_psn),
                Cell::or_dash(row.protection_domain),
            ];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    fn completion_queues(&mut self) -> uverbs::Result<List> {
        let head = ["NUMBER", "ENTRIES", "USERS", "MODERATION", "CONTEXT", "OWNER"];
        let mut list = List::new("completion_queues", &head);
        for row in self.resources.completion_queues()? {
            let object = object! {
                "number": row.number, "entries": row.entries, "users": row.users, "adaptive": row.adaptive,
                "context": row.context,
            };
            let line = vec![
                Cell::number(row.number),
                Cell::number(row.entries),
                Cell::number(row.users),
                if row.adaptive { "adaptive" } else { "-" }.into(),
                Cell::or_dash(row.context),
            ];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    fn memory_regions(&mut self) -> uverbs::Result<List> {
        let head = ["NUMBER", "BYTES", "LOCAL KEY", "REMOTE KEY", "PD", "OWNER"];
        let mut list = List::new("memory_regions", &head);
        let key = |key: Option<u32>| Cell::or_dash(key.map(|key| format!("{key:#x}")));
        for row in self.resources.memory_regions()? {
            let object = object! {
                "number": row.number, "bytes": row.length, "local_key": row.local_key,
                "remote_key": row.remote_key, "protection_domain": row.protection_domain,
            };
            let line = vec![
                Cell::number(row.number),
                Cell::number(row.length),
                key(row.local_key),
                key(row.remote_key),
                Cell::or_dash(row.protection_domain),
            ];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    fn protection_domains(&mut self) -> uverbs::Result<List> {
        let mut list = List::new("protection_domains", &["NUMBER", "USERS", "CONTEXT", "OWNER"]);
        for row in self.resources.protection_domains()? {
            let object = object! { "number": row.number, "users": row.users, "context": row.context };
            let line = vec![Cell::number(row.number), Cell::number(row.users), Cell::or_dash(row.context)];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    fn contexts(&mut self) -> uverbs::Result<List> {
        let mut list = List::new("contexts", &["NUMBER", "OWNER"]);
        for row in self.resources.contexts()? {
            list.push(&row.owner, vec![Cell::number(row.number)], object! { "number": row.number });
        }
        Ok(list)
    }

    fn shared_receive_queues(&mut self) -> uverbs::Result<List> {
        let head = ["NUMBER", "TYPE", "PD", "CQ", "QUEUE PAIRS", "OWNER"];
        let mut list = List::new("shared_receive_queues", &head);
        for row in self.resources.shared_receive_queues()? {
            let kind = words::srq_type(row.srq_type);
            let pairs: Vec<_> = row.queue_pairs.iter().map(|range| [*range.start(), *range.end()]).collect();
            let shown: Vec<_> = pairs
                .iter()
                .map(|[first, last]| match first == last {
                    true => first.to_string(),
                    false => format!("{first}-{last}"),
                })
                .collect();
            let object = object! {
                "number": row.number, "type": kind, "protection_domain": row.protection_domain,
                "completion_queue": row.completion_queue, "queue_pairs": pairs,
            };
            let line = vec![
                Cell::number(row.number),
                kind.into(),
                Cell::or_dash(row.protection_domain),
                Cell::or_dash(row.completion_queue),
                if shown.is_empty() { "-".to_owned() } else { shown.join(",") }.into(),
            ];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    fn connection_ids(&mut self) -> uverbs::Result<List> {
        let head = ["NUMBER", "PORT", "QUEUE PAIR", "STATE", "LOCAL", "REMOTE", "OWNER"];
        let mut list = List::new("connection_ids", &head);
        let address = |address: Option<SocketAddr>| {
            Cell::from(address.map_or_else(|| "-".to_owned(), |address| address.to_string()))
        };
        for row in self.resources.connection_ids()? {
            if !self.is_of_port(row.port) {
                continue;
            }
            let state = words::cm_state(row.state);
            let object = object! {
                "number": row.number, "port": row.port, "queue_pair": row.queue_pair,
                "type": row.qp_type.map(words::qp_type), "port_space": row.port_space, "state": state,
                "local": row.local, "remote": row.remote,
            };
            let line = vec![
                Cell::number(row.number),
                Cell::or_dash(row.port),
                Cell::or_dash(row.queue_pair),
                state.into(),
                address(row.local),
                address(row.remote),
            ];
            list.push(&row.owner, line, object);
        }
        Ok(list)
    }

    pub(super) fn write(&self, text: &mut String, page: &Page) {
        let counts: Vec<_> = self
            .counts
            .iter()
            .map(|count| format!("{} {}", count.kind.escape_debug(), count.number))
            .collect();
        section(text, format_args!("alive: {}", counts.join(", ")));
        for list in self.lists.iter().filter(|list| !list.rows.is_empty()) {
            section(text, list.name.replace('_', " "));
            list.table.write(text, "    ", page.colours);
        }
    }

    pub(super) fn json(&self) -> Value {
        let counts = self.counts.iter();
        let counts =
            counts.map(|count| json!({ "kind": count.kind, "number": count.number, "limit": count.limit }));
        let mut value = object! { "summary": counts.collect::<Vec<_>>() };
        value.extend(self.lists.iter().map(|list| (list.name.to_owned(), list.rows.clone().into())));
        value.into()
    }
}
