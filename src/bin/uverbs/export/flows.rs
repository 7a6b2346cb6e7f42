//! Flow rules that are in force, whose counters are exported.
//!
//! The rules of each device are a separate source, so a device that hangs does not affect the series of others. One thread
//! replaces the rules after the file has changed, and locks only what it changes. If a scrape has found that a device hangs, this
//! thread waits for it only briefly. If a device begins to hang while its rules are replaced, the rules of all devices that are
//! changed at the same time stay as they are until the kernel's command ends.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::ErrorKind;

use super::around::{Around, locked, locked_until};
use super::collect::{Found, Source};
use super::exposition::{Families, Metric};
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::rules::rig::{Counting, Rig, Totals};
use crate::rules::{Wanted, file};
use crate::target::Target;

/// How long the program waits before it tries rules again that a device has refused.
const PAUSE: Duration = Duration::from_secs(5);

/// How long devices may take to answer before a change of their rules is refused. This is less than a scrape waits for them.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 2_000 });

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

/// The rules of all devices.
pub(super) struct Flows {
    around: Arc<Around>,
    /// By device, in the order of the file.
    devices: Mutex<Vec<Arc<OfDevice>>>,
    /// Names of devices that the file no longer contains, but whose rules are in force until the device answers.
    ending: Arc<Mutex<Vec<String>>>,
    /// Whether the file had no mistake when it was read last.
    is_loaded: AtomicBool,
}

/// The rules of one device.
struct OfDevice {
    name: String,
    around: Arc<Around>,
    /// The rules in the file, which can be exported while the device hangs.
    wanted: Mutex<Arc<[Wanted]>>,
    state: Mutex<State>,
}

struct State {
    /// In the order of the file. They are destroyed before the device is closed.
    rules: Vec<Rule>,
    /// The open device, if it exists.
    rig: Option<Rig>,
    /// When rules that are not in force are tried again.
    due: Instant,
}

struct Rule {
    wanted: Wanted,
    /// `None` if the device does not exist or has refused the rule.
    counting: Option<Counting>,
    /// The last message about the rule, so that it is printed once.
    said: Option<String>,
}

/// The new rules of a device, before they replace the old ones.
struct Staged<'a> {
    device: &'a OfDevice,
    state: MutexGuard<'a, State>,
    /// The device, if it had to be opened.
    rig: Option<Rig>,
    /// Each rule, with the position of the same rule among the old ones, or with its new counters.
    rules: Vec<(Wanted, Result<usize, Option<Counting>>)>,
}

impl Flows {
    pub(super) fn new(around: Arc<Around>) -> Self {
        Self { around, devices: Mutex::default(), ending: Arc::default(), is_loaded: AtomicBool::new(true) }
    }

    pub(super) fn len(&self) -> usize {
        locked(&self.devices).iter().map(|device| locked(&device.wanted).len()).sum()
    }

    /// Replaces the rules in force by those of the file. Rules that are in both continue to count. Rules of a device that does
    /// not exist wait for it.
    ///
    /// # Errors
    /// A mistake in the file, or a rule that its device refuses. Nothing has changed then.
    pub(super) fn load(&self, path: &Path) -> Outcome {
        let wanted = file::load(path);
        let loaded =
            wanted.and_then(|wanted| self.replace(wanted).map_err(|failure| failure.said_of(path.display())));
        self.is_loaded.store(loaded.is_ok(), Ordering::Relaxed);
        loaded
    }

    fn replace(&self, wanted: Vec<Wanted>) -> Outcome {
        let end = Instant::now() + PATIENCE;
        self.around.look(wanted.iter().map(|wanted| &*wanted.device), end)?;
        let before = locked(&self.devices).clone();
        let (mut devices, mut changed) = (Vec::new(), Vec::new());
        for (name, wanted) in by_device(wanted) {
            let device = before.iter().find(|device| device.name == name).cloned();
            if device.is_none() && locked(&self.ending).contains(&name) {
                return Err(silent(&name));
            }
            let device = device.unwrap_or_else(|| Arc::new(OfDevice::new(name, self.around.clone())));
            if !is_same(&locked(&device.wanted), &wanted) {
                changed.push((device.clone(), wanted));
            }
            devices.push(device);
        }
        // All locks are taken before any rule is put in force, so that the thread never waits for one device while it has changed
        // another.
        let mut states = Vec::with_capacity(changed.len());
        for (device, _) in &changed {
            states.push(locked_until(&device.state, end).ok_or_else(|| silent(&device.name))?);
        }
        let mut staged = Vec::with_capacity(changed.len());
        for ((device, wanted), state) in changed.iter().zip(states) {
            staged.push(device.stage(state, wanted)?);
        }
        staged.into_iter().for_each(Staged::commit);
        *locked(&self.devices) = devices.clone();
        // Rules of devices that the file no longer contains end now, not at the next scrape.
        for gone in before.iter().filter(|gone| !devices.iter().any(|device| Arc::ptr_eq(device, gone))) {
            match locked_until(&gone.state, end) {
                Some(mut state) => state.clear(),
                None => self.end_later(gone.clone()),
            }
        }
        Ok(())
    }

    /// Ends the rules of a device as soon as the device answers.
    fn end_later(&self, gone: Arc<OfDevice>) {
        let ending = self.ending.clone();
        locked(&ending).push(gone.name.clone());
        let wait = move || {
            locked(&gone.state).clear();
            locked(&ending).retain(|name| *name != gone.name);
        };
        // Without a thread, they end with the reader of the device.
        if thread::Builder::new().name("ending".to_owned()).spawn(wait).is_err() {
            locked(&self.ending).pop();
        }
    }

    /// The rules of each device, as a source.
    pub(super) fn sources(&self) -> Vec<Found> {
        let found = |device: &Arc<OfDevice>| {
            let (ours, theirs) = (device.clone(), device.clone());
            let name = format!("rules of {}", device.name);
            // A device that was removed from the file and added again is a new source.
            let identity = format!("{name} {:p}", Arc::as_ptr(device));
            let absent = Box::new(move || ours.absent());
            Found {
                device: None,
                name,
                identity,
                absent,
                open: Box::new(move || Ok(Box::new(Rules(theirs)))),
            }
        };
        locked(&self.devices).iter().map(found).collect()
    }

    /// Adds the values about all rules.
    pub(super) fn add_to(&self, families: &mut Families) {
        families.add(&LOADED, &[], self.is_loaded.load(Ordering::Relaxed));
    }
}

/// The error for a device that does not answer, so that its rules cannot be changed.
fn silent(name: &str) -> Failure {
    Failure::Other(format!("{name} does not answer: its rules cannot be changed now"))
}

/// Rules grouped by device, in the order of the file.
fn by_device(wanted: Vec<Wanted>) -> Vec<(String, Vec<Wanted>)> {
    let (mut groups, mut places) = (Vec::<(String, Vec<Wanted>)>::new(), HashMap::<String, usize>::new());
    for wanted in wanted {
        match places.get(&wanted.device).and_then(|place| groups.get_mut(*place)) {
            Some((_, group)) => group.push(wanted),
            None => {
                places.insert(wanted.device.clone(), groups.len());
                groups.push((wanted.device.clone(), vec![wanted]));
            }
        }
    }
    groups
}

fn is_same(ours: &[Wanted], theirs: &[Wanted]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(our, their)| our.is_same(their))
}

/// The rules of a device, as a source.
struct Rules(Arc<OfDevice>);

impl Source for Rules {
    fn read(&mut self) -> Result<Families, String> {
        Ok(locked(&self.0.state).read(&self.0))
    }
}

impl OfDevice {
    fn new(name: String, around: Arc<Around>) -> Self {
        let state = State { rules: Vec::new(), rig: None, due: Instant::now() };
        Self { name, around, wanted: Mutex::new([].into()), state: Mutex::new(state) }
    }

    /// Creates those of the rules that are not in force yet.
    fn stage<'a>(&'a self, mut state: MutexGuard<'a, State>, wanted: &[Wanted]) -> Outcome<Staged<'a>> {
        let places: HashMap<&str, usize> =
            state.rules.iter().enumerate().map(|(place, rule)| (&*rule.wanted.name, place)).collect();
        let old = |wanted: &Wanted| {
            let place = places.get(&*wanted.name).copied()?;
            state.rules.get(place).filter(|rule| rule.wanted.is_same(wanted)).map(|_| place)
        };
        let olds: Vec<_> = wanted.iter().map(old).collect();
        let fresh: Vec<_> =
            wanted.iter().zip(&olds).filter(|(_, old)| old.is_none()).map(|(rule, _)| rule).collect();
        let (mut rig, mut counting) = (None, Vec::new());
        let failed = |at: usize, failure| match fresh.get(at) {
            Some(rule) => rule.failed(failure),
            None => failure,
        };
        if !fresh.is_empty()
            && let Some(target) = self.around.target(&self.name)?
        {
            let ours = match &mut state.rig {
                Some(ours) => ours,
                None => rig.insert(Rig::new(&target).map_err(|failure| failed(0, failure))?),
            };
            let counted = ours.count(&target, &fresh);
            counting = counted.map_err(|(at, failure)| {
                ours.tidy();
                failed(at, failure)
            })?;
        }
        let mut counting = counting.into_iter();
        let rules = wanted
            .iter()
            .zip(olds)
            .map(|(wanted, old)| (wanted.clone(), old.ok_or(()).map_err(|()| counting.next())));
        let rules = rules.collect();
        Ok(Staged { device: self, state, rig, rules })
    }

    /// The values that are exported for rules whose device cannot be read.
    fn absent(&self) -> Families {
        let mut families = Families::default();
        let wanted = locked(&self.wanted).clone();
        wanted.iter().for_each(|wanted| told(&mut families, wanted, None));
        families
    }
}

impl Staged<'_> {
    fn commit(self) {
        let Self { device, mut state, rig, rules } = self;
        *locked(&device.wanted) = rules.iter().map(|(wanted, _)| wanted.clone()).collect();
        let mut old: Vec<_> = std::mem::take(&mut state.rules).into_iter().map(Some).collect();
        let mut rule = |(wanted, place): (Wanted, Result<usize, Option<Counting>>)| match place {
            Ok(place) => old.get_mut(place).and_then(Option::take),
            Err(counting) => Some(Rule { wanted, counting, said: None }),
        };
        state.rules = rules.into_iter().filter_map(&mut rule).collect();
        drop(old);
        state.rig = state.rig.take().or(rig);
        state.rig.iter_mut().for_each(Rig::tidy);
        state.due = Instant::now();
    }
}

impl State {
    fn clear(&mut self) {
        self.rules.clear();
        self.rig = None;
    }

    /// Reads all counters.
    fn read(&mut self, device: &OfDevice) -> Families {
        self.begin(device);
        let mut families = Families::default();
        let mut read = match &mut self.rig {
            Some(rig) => rig.read(self.rules.iter_mut().filter_map(|rule| rule.counting.as_mut())),
            None => Vec::new(),
        }
        .into_iter();
        let mut is_gone = false;
        for rule in &mut self.rules {
            let read = rule.counting.as_ref().and_then(|_| read.next()).transpose();
            told(&mut families, &rule.wanted, *read.as_ref().unwrap_or(&None));
            match read {
                Ok(Some(_)) => rule.said = None,
                Ok(None) => {}
                Err(error) => {
                    is_gone |=
                        matches!(&error, Failure::Uverbs(why) if why.kind() == ErrorKind::Disassociated);
                    rule.say(format!("rule {}: {error}", rule.wanted.name.escape_debug()));
                }
            }
        }
        // Rules of a device that was removed no longer count. The device may come back.
        if is_gone {
            self.rules.iter_mut().for_each(|rule| rule.counting = None);
            self.rig = None;
        }
        families
    }

    /// Puts rules in force whose device did not exist before and does now.
    fn begin(&mut self, device: &OfDevice) {
        let absent = |rule: &&mut Rule| rule.counting.is_none();
        if Instant::now() < self.due || !self.rules.iter_mut().any(|rule| absent(&&mut *rule)) {
            return;
        }
        let begun = match device.around.target(&device.name) {
            // The search of the next pass finds it.
            Ok(None) => return,
            Ok(Some(target)) => self.try_all(&target),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = begun {
            self.due = Instant::now() + PAUSE;
            if let Some(rule) = self.rules.iter_mut().find(absent) {
                rule.say(rule.wanted.failed(failure).to_string());
            }
        }
    }

    fn try_all(&mut self, target: &Target) -> Outcome {
        let rig = match &mut self.rig {
            Some(rig) => rig,
            none => none.insert(Rig::new(target)?),
        };
        let mut left = self.rules.iter().filter(|rule| rule.counting.is_none()).count();
        for rule in self.rules.iter_mut().filter(|rule| rule.counting.is_none()) {
            match rig.begin(target, &rule.wanted, left) {
                Ok(counting) => rule.counting = Some(counting),
                Err(failure) => {
                    rule.say(rule.wanted.failed(failure).to_string());
                    self.due = Instant::now() + PAUSE;
                }
            }
            left -= 1;
        }
        Ok(())
    }
}

impl Rule {
    fn say(&mut self, what: String) {
        if self.said.as_ref() != Some(&what) {
            failure::remark(&what);
            self.said = Some(what);
        }
    }
}

/// Adds the values of one rule: its totals, if they could be read.
fn told(families: &mut Families, wanted: &Wanted, totals: Option<Totals>) {
    let port = wanted.port.to_string();
    let labels = [("device", &*wanted.device), ("port", &*port), ("flow", &*wanted.name)];
    families.add(&UP, &labels, totals.is_some());
    let [device, port, name] = labels;
    families.add(&INFO, &[device, port, name, ("rule", &*wanted.text)], true);
    if let Some(Totals { packets, bytes }) = totals {
        families.add(&PACKETS, &labels, packets);
        families.add(&BYTES, &labels, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use uverbs::SoftDevice;

    use super::super::collect::{Collector, Machine};
    use super::super::exposition::Form;
    use super::*;

    struct Fake(Arc<Flows>);

    impl Machine for Fake {
        fn find(&mut self) -> Result<Vec<Found>, String> {
            Ok(self.0.sources())
        }
    }

    fn rule(name: &str, device: &str, rule: &str) -> String {
        format!("[[rule]]\nname = \"{name}\"\ndevice = \"{device}\"\nrule = \"{rule}\"\n")
    }

    #[test]
    fn a_device_that_hangs_hides_no_rules_of_others() {
        let path = std::env::temp_dir().join(format!("uverbs-flows-{}", std::process::id()));
        let flows = Arc::new(Flows::new(Arc::new(Around::new(SoftDevice::default(), false))));
        let load = |text: &str| {
            fs::write(&path, text).expect("it is ours");
            flows.load(&path)
        };
        let stuck = rule("b", "no such device", "udp");
        load(&(rule("a", "soft0", "tcp") + &stuck)).expect("rules that can be");
        assert_eq!(flows.len(), 2);
        let mut collector = Collector::new(Box::new(Fake(flows.clone())), Duration::from_secs(3));
        let mut has = |wanted: &[(&str, &str, u8)]| {
            let text = collector.read().text(Form::Text);
            for (flow, device, up) in wanted {
                let line = format!("uverbs_flow_up{{device=\"{device}\",port=\"1\",flow=\"{flow}\"}} {up}");
                assert!(text.lines().any(|there| there == line), "{line}: {text}");
            }
            assert_eq!(text.matches("\nuverbs_flow_up{").count(), wanted.len(), "{text}");
        };
        has(&[("a", "soft0", 1), ("b", "no such device", 0)]);
        let device = locked(&flows.devices).get(1).cloned().expect("the second device");
        let hangs = locked(&device.state);
        has(&[("a", "soft0", 1), ("b", "no such device", 0)]);
        // It does not prevent changes of other devices' rules either.
        load(&(rule("c", "soft0", "udp") + &stuck)).expect("rules that can be");
        has(&[("c", "soft0", 1), ("b", "no such device", 0)]);
        // Its own rules cannot be changed, and then nothing changes.
        let other = rule("b", "no such device", "tcp");
        let why = load(&(rule("e", "soft0", "udp") + &other)).expect_err("it does not answer").to_string();
        assert!(why.contains("no such device does not answer"), "{why}");
        has(&[("c", "soft0", 1), ("b", "no such device", 0)]);
        // They can be removed from the file, and end as soon as the device answers.
        load(&rule("c", "soft0", "udp")).expect("rules that can be");
        has(&[("c", "soft0", 1)]);
        let why =
            load(&(rule("c", "soft0", "udp") + &stuck)).expect_err("the old ones are there").to_string();
        assert!(why.contains("no such device does not answer"), "{why}");
        drop(hangs);
        // This does not need a scrape.
        let begun = Instant::now();
        while !locked(&flows.ending).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60), "they have not ended");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(locked(&device.state).rules.is_empty());
        load(&(rule("c", "soft0", "udp") + &stuck)).expect("rules that can be");
        has(&[("c", "soft0", 1), ("b", "no such device", 0)]);
        // Rules that the file no longer contains end, and a refused file changes nothing.
        load(&(rule("c", "soft0", "udp") + &rule("d", "soft0", "ip ttl 7"))).expect_err("it is refused");
        has(&[("c", "soft0", 1), ("b", "no such device", 0)]);
        load(&rule("d", "soft0", "udp")).expect("nobody has it");
        has(&[("d", "soft0", 1)]);
        load("").expect("no rules");
        has(&[]);
        fs::remove_file(&path).expect("it is ours");
    }
}
