//! Many rules, which are only counted.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::SoftDevice;

use super::counted::Counted;
use super::reading::{Count, Elapsed, nanoseconds};
use crate::Outcome;
use crate::failure::Failure;
use crate::output::Output;
use crate::rules::rig::{Counting, Rig, Totals};
use crate::rules::{NOT_NORMAL, Wanted, counting_rule, file};
use crate::table::{Cell, Colours, Table};
use crate::target::Target;

/// The rules of a file, or those of them that belong to one device.
pub(super) fn of_file(path: &Path, device: Option<&str>) -> Outcome<Vec<Wanted>> {
    let mut wanted = file::load(path)?;
    let path = path.display();
    if let Some(device) = device {
        wanted.retain(|wanted| wanted.device == device);
        if wanted.is_empty() {
            return Err(Failure::Usage(format!("{path}: no rule is about {}", device.escape_debug())));
        }
    }
    match wanted.is_empty() {
        true => Err(Failure::Usage(format!("{path}: it has no rules"))),
        false => Ok(wanted),
    }
}

/// Rules as `--rule` has them: `NAME=RULE`, or a rule alone, which is its own name.
pub(super) fn of_options(texts: &[String], device: &str, port: u8) -> Outcome<Vec<Wanted>> {
    let mut wanted: Vec<Wanted> = Vec::with_capacity(texts.len());
    for text in texts {
        let (name, said) = named(text);
        let shown = name.escape_debug();
        if name.is_empty() {
            return Err(Failure::Usage(format!("--rule: `{}` has an empty name", text.escape_debug())));
        }
        if wanted.iter().any(|other| other.name == name) {
            return Err(Failure::Usage(format!("--rule: there is a rule {shown} already")));
        }
        let rule = counting_rule(said, port).map_err(|error| {
            let why = error.map_or_else(|| NOT_NORMAL.to_owned(), |error| error.to_string());
            Failure::Usage(format!("--rule {shown}: {why}"))
        })?;
        let (name, device, text) = (name.to_owned(), device.to_owned(), said.to_owned());
        wanted.push(Wanted { name, device, port, text, rule, place: None });
    }
    Ok(wanted)
}

/// Whether a value of `--rule` has a name; the language of rules has no `=`.
pub(super) fn has_name(text: &str) -> bool {
    text.contains('=')
}

fn named(text: &str) -> (&str, &str) {
    text.split_once('=').map_or((text, text), |(name, rule)| (name.trim(), rule.trim()))
}

/// The devices that the rules name, each once, in their order.
pub(super) fn devices(wanted: &[Wanted]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for rule in wanted {
        if !names.contains(&&*rule.device) {
            names.push(&rule.device);
        }
    }
    names
}

/// Rules in force, in their order, and the devices that they are on.
pub(super) struct Many {
    rows: Vec<Row>,
    rigs: Vec<Rig>,
    colours: Colours,
    /// When they were read last.
    read_at: Duration,
    /// Whether a reading has been shown.
    again: bool,
}

struct Row {
    wanted: Wanted,
    counting: Counting,
    /// The index of its device.
    rig: usize,
    /// The last reading, and the reading that was last shown.
    now: Totals,
    count: Count,
}

/// A row as it is in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    device: &'a str,
    port: u8,
    #[serde(flatten)]
    count: Count,
}

/// A reading as it is in JSON.
#[derive(Serialize)]
struct Reading<'a> {
    elapsed_ns: u64,
    rules: Vec<Shown<'a>>,
    offered: Option<u64>,
}

impl Many {
    /// Puts rules in force on these devices, which must include all that the rules name.
    pub(super) fn start(wanted: Vec<Wanted>, targets: &[(String, Target)]) -> Outcome<Self> {
        let (mut rigs, mut rows) = (Vec::new(), Vec::new());
        for (place, (device, target)) in targets.iter().enumerate() {
            let theirs: Vec<_> =
                wanted.iter().enumerate().filter(|(_, wanted)| wanted.device == *device).collect();
            let rules: Vec<_> = theirs.iter().map(|(_, wanted)| *wanted).collect();
            let mut rig = Rig::new(target)?;
            let counting = rig.count(target, &rules).map_err(|(at, failure)| match rules.get(at) {
                Some(rule) => rule.failed(failure),
                None => failure,
            })?;
            let places = theirs.iter().map(|(at, _)| *at);
            rows.extend(places.zip(counting).map(|(at, counting)| (at, counting, place)));
            rigs.push(rig);
        }
        rows.sort_by_key(|(at, ..)| *at);
        let row = |(wanted, (_, counting, rig))| {
            let (now, count) = (Totals::default(), Count::default());
            Row { wanted, counting, rig, now, count }
        };
        let rows = wanted.into_iter().zip(rows).map(row).collect();
        Ok(Self { rows, rigs, colours: Colours::new(), read_at: Duration::ZERO, again: false })
    }

    /// The rules of each device are read together.
    fn read(&mut self) -> Outcome {
        for (place, rig) in self.rigs.iter_mut().enumerate() {
            let theirs = || move |row: &&mut Row| row.rig == place;
            let read = rig.read(self.rows.iter_mut().filter(theirs()).map(|row| &mut row.counting));
            for (row, read) in self.rows.iter_mut().filter(theirs()).zip(read) {
                row.now = read.map_err(|error| row.wanted.failed(error))?;
            }
        }
        Ok(())
    }

    /// One page, for a terminal.
    fn page(&self, elapsed: Duration) -> String {
        let has_devices = self.rigs.len() > 1;
        let mut head = vec!["RULE"];
        head.extend(has_devices.then_some("DEVICE"));
        head.extend(["PACKETS", "BYTES", "PACKETS/S", "BIT/S"]);
        let mut table = Table::with_head(&head);
        for Row { wanted, count, .. } in &self.rows {
            let mut line: Vec<Cell> = vec![wanted.name.escape_debug().to_string().into()];
            line.extend(has_devices.then(|| wanted.device.escape_debug().to_string().into()));
            line.extend([Cell::number(count.packets), Cell::number(count.bytes)]);
            line.extend(count.rates().map(Cell::number));
            table.push(line);
        }
        let mut text = format!("{}\n", Elapsed(elapsed));
        table.write(&mut text, "", self.colours);
        text
    }
}

impl Counted for Many {
    /// Nothing is received here.
    fn drain(&mut self) -> Outcome {
        Ok(())
    }

    fn show(&mut self, begun: Instant, offered: Option<u64>, json: bool, output: &mut Output) -> Outcome {
        self.read()?;
        let elapsed = begun.elapsed();
        let passed = elapsed.saturating_sub(self.read_at);
        for Row { now, count, .. } in &mut self.rows {
            *count = Count::new(count, now.packets, now.bytes, passed);
        }
        self.read_at = elapsed;
        let again = std::mem::replace(&mut self.again, true);
        if json {
            let rules = self.rows.iter().map(|Row { wanted, count, .. }| Shown {
                name: &wanted.name,
                device: &wanted.device,
                port: wanted.port,
                count: *count,
            });
            let elapsed_ns = nanoseconds(elapsed);
            return output.json(&Reading { elapsed_ns, rules: rules.collect(), offered });
        }
        if output.is_terminal() {
            return output.page(self.page(elapsed), again);
        }
        let line = |Row { wanted, count, .. }: &Row| {
            format!("{}  {}  {count}\n", Elapsed(elapsed), wanted.name.escape_debug())
        };
        output.text(self.rows.iter().map(line).collect::<String>())
    }

    fn packets(&mut self) -> Outcome<u64> {
        self.read()?;
        Ok(self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.now.packets)))
    }

    fn port(&self) -> Outcome<(u8, u8)> {
        let first = self.rows.first().and_then(|row| Some((row.wanted.port, self.rigs.get(row.rig)?)));
        let (port, rig) = first.ok_or_else(|| Failure::Usage("there are no rules".to_owned()))?;
        Ok((port, rig.port_state(port)?))
    }
}

/// The devices with these names. The machine's devices are looked up only once; all soft ones are this one.
pub(super) fn targets(names: &[&str], soft: &SoftDevice, trace: bool) -> Outcome<Vec<(String, Target)>> {
    let mut machine = None;
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        let target = if *name == soft.name() {
            Target::embedded(soft.clone(), trace)
        } else {
            let devices = match &mut machine {
                Some(devices) => devices,
                none => none.insert(uverbs::devices()?),
            };
            Target::among(devices, name, trace)?
        };
        found.push(((*name).to_owned(), target));
    }
    Ok(found)
}
