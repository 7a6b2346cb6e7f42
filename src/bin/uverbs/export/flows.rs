//! Flow rules in force, whose counters are exported.
//!
//! Rules of one port share a queue pair, which takes no packets: what a rule takes is counted and then dropped, unless the rule lets it go on
//! (`dont-trap`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uverbs::{CompletionQueue, Context, Counters, ErrorKind, Flow, Point, QueuePair, RawPacket, Reader};

use super::exposition::{Families, Metric};
use super::rules::Wanted;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::target::Target;

/// How long a device that is not there is not looked for.
const PAUSE: Duration = Duration::from_secs(5);

const PACKETS: Metric<'static> =
    Metric::counter("uverbs_flow_packets", "Packets that the rule has taken since it was put in force.");
const BYTES: Metric<'static> =
    Metric::counter("uverbs_flow_bytes", "Bytes of these packets.").in_unit("bytes");
const UP: Metric<'static> =
    Metric::gauge("uverbs_flow_up", "Whether the rule is in force, and its counters could be read.");
const INFO: Metric<'static> =
    Metric::gauge("uverbs_flow_info", "The text of the rule; the value is always 1.");
const LOADED: Metric<'static> = Metric::gauge(
    "uverbs_rules_last_reload_successful",
    "Whether the file of rules was without mistake when it was read last.",
);

/// Where devices are found.
pub(super) type Find = Box<dyn Fn(&str) -> Outcome<Target> + Send>;

/// The rules, in the order of the file.
pub(super) struct Flows {
    find: Find,
    rules: Vec<Rule>,
    /// Whether the file was without mistake when it was read last.
    is_loaded: bool,
}

struct Rule {
    wanted: Wanted,
    counting: Result<Counting, Absent>,
    /// What was said of it last, so that it is said once.
    said: Option<String>,
}

impl Rule {
    fn say(&mut self, what: String) {
        if self.said.as_ref() != Some(&what) {
            failure::remark(&what);
            self.said = Some(what);
        }
    }
}

/// The device is not there: when it is looked for again.
struct Absent(Instant);

/// What counts, in the order that it is released in.
struct Counting {
    reader: Reader,
    _flow: Flow,
    _counters: Counters,
    rig: Arc<Rig>,
}

/// What rules of one port share.
struct Rig {
    device: String,
    port: u8,
    qp: QueuePair<RawPacket>,
    _cq: CompletionQueue,
    context: Context,
}

impl Flows {
    pub(super) fn new(find: Find) -> Self {
        Self { find, rules: Vec::new(), is_loaded: true }
    }

    /// Tells whether the file could be read and put in force.
    pub(super) fn loaded(&mut self, is_loaded: bool) {
        self.is_loaded = is_loaded;
    }

    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Has these rules take the place of those that were in force. Those that stay go on counting. A device that is not there is waited for.
    ///
    /// # Errors
    /// A rule that its device refuses; then all is as it was.
    pub(super) fn replace(&mut self, wanted: Vec<Wanted>) -> Outcome {
        let mut fresh: Vec<(usize, Rule)> = Vec::new();
        let mut kept = Vec::new();
        let places: HashMap<&str, usize> =
            self.rules.iter().enumerate().map(|(place, rule)| (&*rule.wanted.name, place)).collect();
        for (at, wanted) in wanted.into_iter().enumerate() {
            let place = places.get(&*wanted.name).copied();
            match place.filter(|place| self.rules[*place].wanted.is_same(&wanted)) {
                Some(old) => kept.push((at, old)),
                None => {
                    let shared = self.rules.iter().chain(fresh.iter().map(|(_, rule)| rule));
                    let counting =
                        started(&self.find, &wanted, shared).map_err(|failure| at_place(&wanted, failure))?;
                    fresh.push((at, Rule { wanted, counting, said: None }));
                }
            }
        }
        let mut old: Vec<_> = std::mem::take(&mut self.rules).into_iter().map(Some).collect();
        let kept = kept.into_iter().filter_map(|(at, place)| Some((at, old.get_mut(place)?.take()?)));
        let mut rules: Vec<_> = kept.chain(fresh).collect();
        rules.sort_by_key(|(at, _)| *at);
        self.rules = rules.into_iter().map(|(_, rule)| rule).collect();
        Ok(())
    }

    /// Reads all counters.
    pub(super) fn read(&mut self) -> Families {
        let mut families = Families::default();
        families.add(&LOADED, &[], self.is_loaded);
        for at in 0..self.rules.len() {
            self.look_for(at);
            let Some(rule) = self.rules.get_mut(at) else { continue };
            let values = match &mut rule.counting {
                Ok(counting) => {
                    counting.reader.read().map(|values| (value(values, 0), value(values, 1))).map_err(Some)
                }
                Err(_) => Err(None),
            };
            let wanted = &rule.wanted;
            let port = wanted.port.to_string();
            let labels = [("device", &*wanted.device), ("port", &*port), ("flow", &*wanted.name)];
            families.add(&UP, &labels, values.is_ok());
            let [device, port, name] = labels;
            families.add(&INFO, &[device, port, name, ("rule", &*wanted.text)], true);
            match values {
                Ok((packets, bytes)) => {
                    families.add(&PACKETS, &labels, packets);
                    families.add(&BYTES, &labels, bytes);
                    rule.said = None;
                }
                Err(None) => {}
                Err(Some(error)) => {
                    rule.say(format!("rule {}: {error}", wanted.name.escape_debug()));
                    // What went with its device counts no more; another one may come.
                    if error.kind() == ErrorKind::Disassociated {
                        rule.counting = Err(Absent(Instant::now()));
                    }
                }
            }
        }
        families
    }

    /// Puts a rule in force whose device was not there and is now.
    fn look_for(&mut self, at: usize) {
        let Some(Rule { wanted, counting: Err(Absent(due)), .. }) = self.rules.get(at) else { return };
        if Instant::now() < *due {
            return;
        }
        let found =
            started(&self.find, wanted, self.rules.iter()).map_err(|failure| at_place(wanted, failure));
        if let Some(rule) = self.rules.get_mut(at) {
            rule.counting = found.unwrap_or_else(|failure| {
                rule.say(failure.to_string());
                Err(Absent(Instant::now() + PAUSE))
            });
        }
    }
}

fn value(values: &[u64], at: usize) -> u64 {
    values.get(at).copied().unwrap_or(0)
}

/// Puts a rule in force, on the queue pair of another rule of its port if there is one that works.
fn started<'a>(
    find: &Find,
    wanted: &Wanted,
    others: impl Iterator<Item = &'a Rule>,
) -> Outcome<Result<Counting, Absent>> {
    let target = match find(&wanted.device) {
        Ok(target) => target,
        Err(Failure::NotFound(_)) => return Ok(Err(Absent(Instant::now() + PAUSE))),
        Err(failure) => return Err(failure),
    };
    target.check_port(wanted.port)?;
    let mut rigs = others.filter_map(|rule| rule.counting.as_ref().ok()).map(|counting| &counting.rig);
    let shared = rigs.find(|rig| rig.device == wanted.device && rig.port == wanted.port);
    let rig = match shared {
        Some(rig) => rig.clone(),
        None => Arc::new(Rig::new(&target, &wanted.device, wanted.port)?),
    };
    let counters = rig.context.create_counters()?;
    counters.attach(Point::Packets, 0)?;
    counters.attach(Point::Bytes, 1)?;
    let flow = rig.qp.create_flow(&wanted.rule.clone().count(&counters))?;
    let reader = flow.reader()?;
    Ok(Ok(Counting { reader, _flow: flow, _counters: counters, rig }))
}

impl Rig {
    fn new(target: &Target, device: &str, port: u8) -> Outcome<Self> {
        let context = target.open()?;
        let cq = context.create_cq(1)?;
        let qp = context.alloc_pd()?.raw_packet(&cq).send_depth(1).receive_depth(1).connect(port)?;
        Ok(Self { device: device.to_owned(), port, qp, _cq: cq, context })
    }
}

/// A failure with the place of the rule that it is about.
fn at_place(wanted: &Wanted, failure: Failure) -> Failure {
    let name = wanted.name.escape_debug();
    failure.said_of(format_args!("{}: rule {name}", wanted.place))
}
