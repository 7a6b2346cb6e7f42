//! Runs the steps through this crate. Prints what `theirs.c` prints: for each step its text, its result, and the commands that the device
//! received meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use uverbs::{
    AccessFlags, Attributes, Completion, CompletionQueue, Context, Counters, Error, Flow, FlowRule,
    MemoryRegion, Point, ProtectionDomain, QpState, QueuePair, RawPacket, ReadCountersFlags, ReceiveRequest,
    SendRequest, Status,
};

use crate::control::Control;
use crate::rule;

const SLOT: usize = 2048;

/// The objects of the steps, by number.
#[derive(Debug, Default)]
struct World {
    context: Option<Context>,
    pd: Option<ProtectionDomain>,
    cqs: BTreeMap<u32, CompletionQueue>,
    qps: BTreeMap<u32, QueuePair<RawPacket>>,
    mrs: BTreeMap<u32, MemoryRegion>,
    counters: BTreeMap<u32, Counters>,
    flows: BTreeMap<u32, Flow>,
}

/// Why a step has no normal result: the call failed, which is a result too, or the step makes no sense.
enum Failure {
    Call(Error),
    Step(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Step(text)
    }
}

type Done = Result<String, Failure>;

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word}: no number"))
}

fn get<'a, T>(objects: &'a mut BTreeMap<u32, T>, word: &str) -> Result<&'a mut T, String> {
    objects.get_mut(&number(word)?).ok_or_else(|| format!("no object {word}"))
}

fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let byte = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).map(|at| byte(at).ok_or_else(|| format!("{hex}: no bytes"))).collect()
}

/// Destroys an object of a kind. If that fails the object stays.
fn end<T>(
    objects: &mut BTreeMap<u32, T>,
    index: u32,
    destroy: impl FnOnce(T) -> Result<(), (T, Error)>,
) -> Done {
    let Some(object) = objects.remove(&index) else { return Ok("none".to_owned()) };
    destroy(object).map_err(|(object, error)| {
        objects.insert(index, object);
        error
    })?;
    Ok(String::new())
}

impl World {
    fn context(&self) -> Result<&Context, String> {
        self.context.as_ref().ok_or_else(|| "not open".to_owned())
    }

    fn pd(&self) -> Result<&ProtectionDomain, String> {
        self.pd.as_ref().ok_or_else(|| "no domain".to_owned())
    }

    fn flow(
        &self,
        qp: &str,
        kind: &str,
        priority: &str,
        flag: &str,
        words: &[&str],
    ) -> Result<Flow, Failure> {
        let qp = self.qps.get(&number(qp)?).ok_or_else(|| format!("no queue pair {qp}"))?;
        let counters =
            |word: &str| self.counters.get(&number(word)?).ok_or_else(|| format!("no counters {word}"));
        Ok(match kind {
            "normal" => {
                let rule = rule::normal(number(priority)?, words, &counters)?;
                qp.create_flow(&match flag {
                    "dont_trap" => rule.dont_trap(),
                    "egress" => rule.egress(),
                    "loop_back" => rule.allow_loop_back(),
                    _ => rule,
                })?
            }
            "all_default" => qp.create_flow(&FlowRule::all_default(1))?,
            "mc_default" => qp.create_flow(&FlowRule::mc_default(1))?,
            "sniffer" => qp.create_flow(&FlowRule::sniffer(1))?,
            _ => return Err(format!("{kind}: no such type").into()),
        })
    }

    fn read(&self, counters: &str, count: &str, flags: &str) -> Done {
        let counters =
            self.counters.get(&number(counters)?).ok_or_else(|| format!("no counters {counters}"))?;
        let mut values = vec![0xeeee_eeee_eeee_eeee; number(count)?];
        let cached =
            if flags == "cached" { ReadCountersFlags::PREFER_CACHED } else { ReadCountersFlags::empty() };
        counters.read_with(&mut values, cached)?;
        Ok(values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    fn post(&mut self, qp: &str, mr: &str, first: &str, count: &str) -> Done {
        let (qp, memory) = (get(&mut self.qps, qp)?, get(&mut self.mrs, mr)?);
        let first: usize = number(first)?;
        for slot in first..first + number::<usize>(count)? {
            let room = [memory.segment(slot * SLOT..(slot + 1) * SLOT)?];
            qp.post_receive(&[ReceiveRequest::new(slot as u64, &room)])?;
        }
        Ok(String::new())
    }

    fn transmit(&mut self, qp: &str, mr: &str, frame: &str) -> Done {
        let (qp, memory) = (get(&mut self.qps, qp)?, get(&mut self.mrs, mr)?);
        let frame = bytes(frame)?;
        memory.write(0, &frame)?;
        let segments = [memory.segment(0..frame.len())?];
        qp.post_send(&[SendRequest::frame(1000, &segments).signaled()])?;
        Ok(String::new())
    }

    /// Waits for this many completions, and then takes all others that are there.
    fn poll(&mut self, cq: &str, count: &str, mr: &str) -> Done {
        let (cq, memory, count) = (get(&mut self.cqs, cq)?, get(&mut self.mrs, mr)?, number::<usize>(count)?);
        let end = Instant::now() + Duration::from_secs(5);
        let mut taken = Vec::new();
        let mut one = Completion::batch::<1>();
        loop {
            if cq.poll(&mut one) == 0 {
                if taken.len() >= count || Instant::now() > end {
                    return Ok(taken.join(" "));
                }
                continue;
            }
            let [completion] = &one;
            let mut text = format!("{}:{}", completion.wr_id, status(completion.status));
            if completion.status == Status::Success {
                let _ = write!(text, ":{}", completion.opcode);
                if completion.is_receive() {
                    let mut frame = vec![0; completion.len as usize];
                    memory.read(completion.wr_id as usize * SLOT, &mut frame)?;
                    let add = |sum: u32, byte: &u8| sum.wrapping_mul(31).wrapping_add((*byte).into());
                    let _ = write!(text, ":{}:{:08x}", completion.len, frame.iter().fold(0, add));
                }
            }
            taken.push(text);
        }
    }

    fn destroy(&mut self, kind: &str, index: u32) -> Done {
        match kind {
            "pd" => {
                let pd = self.pd.take().ok_or_else(|| "no domain".to_owned())?;
                pd.destroy().map_err(|(pd, error)| {
                    self.pd = Some(pd);
                    error
                })?;
            }
            "cq" => return end(&mut self.cqs, index, CompletionQueue::destroy),
            "qp" => return end(&mut self.qps, index, QueuePair::destroy),
            "mr" => return end(&mut self.mrs, index, MemoryRegion::destroy),
            "counters" => return end(&mut self.counters, index, Counters::destroy),
            "flow" => return end(&mut self.flows, index, Flow::destroy),
            _ => return Err(format!("{kind}: no such kind").into()),
        }
        Ok(String::new())
    }

    fn obey(&mut self, device: &str, words: &[&str]) -> Done {
        match *words {
            ["open"] => self.context = Some(uverbs::devices()?.named(device)?.open()?),
            // This also drops objects that could not be destroyed.
            ["close"] => *self = Self::default(),
            ["pd"] => self.pd = Some(self.context()?.alloc_pd()?),
            ["cq", index, entries] => {
                let cq = self.context()?.create_cq(number(entries)?)?;
                self.cqs.insert(number(index)?, cq);
            }
            ["resize", cq, entries] => get(&mut self.cqs, cq)?.resize(number(entries)?)?,
            ["qp", index, cq, sends, receives] => {
                let cq = self.cqs.get(&number(cq)?).ok_or_else(|| format!("no queue {cq}"))?;
                let builder = self.pd()?.raw_packet(cq);
                let qp = builder.send_depth(number(sends)?).receive_depth(number(receives)?).create()?;
                self.qps.insert(number(index)?, qp);
            }
            ["modify", qp, state] => get(&mut self.qps, qp)?.modify(&attributes(state)?)?,
            ["mr", index, len, writable] => {
                let access = if writable == "1" { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() };
                let region = self.pd()?.register(number(len)?, access)?;
                self.mrs.insert(number(index)?, region);
            }
            ["counters", index] => {
                let counters = self.context()?.create_counters()?;
                self.counters.insert(number(index)?, counters);
            }
            ["attach", counters, point, index] => {
                let point = if point == "packets" { Point::Packets } else { Point::Bytes };
                get(&mut self.counters, counters)?.attach(point, number(index)?)?;
            }
            ["read", counters, count, flags] => return self.read(counters, count, flags),
            ["flow", index, qp, kind, priority, flag, ref specs @ ..] => {
                let flow = self.flow(qp, kind, priority, flag, specs)?;
                self.flows.insert(number(index)?, flow);
            }
            ["post", qp, mr, first, count] => return self.post(qp, mr, first, count),
            ["transmit", qp, mr, frame] => return self.transmit(qp, mr, frame),
            ["poll", cq, count, mr] => return self.poll(cq, count, mr),
            ["destroy", kind, index] => return self.destroy(kind, number(index)?),
            _ => return Err(format!("no such step: {}", words.join(" ")).into()),
        }
        Ok(String::new())
    }
}

fn attributes(state: &str) -> Result<Attributes, String> {
    Ok(match state {
        "reset" => Attributes::to(QpState::Reset),
        "init" => Attributes::to(QpState::Init).port(1),
        "rtr" => Attributes::to(QpState::ReadyToReceive),
        "rts" => Attributes::to(QpState::ReadyToSend),
        "err" => Attributes::to(QpState::Error),
        _ => return Err(format!("{state}: no such state")),
    })
}

/// The status as the number that libibverbs uses.
fn status(status: Status) -> u32 {
    (0..64).find(|number| Status::from(*number) == status).unwrap_or(u32::MAX)
}

/// A system call that does nothing, as a mark for strace.
fn mark(side: &str) {
    let _ = Path::new(side).exists();
}

/// Runs all steps.
pub(crate) fn play(device: &str, control: &Path, steps: &Path) -> Result<(), String> {
    let text = fs::read_to_string(steps).map_err(|error| format!("{}: {error}", steps.display()))?;
    let mut control = Control::open(control).map_err(|error| format!("{}: {error}", control.display()))?;
    let mut world = World::default();
    for step in text.lines() {
        let words: Vec<_> = step.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        println!("step {step}");
        if let Some(request) = step.strip_prefix("control ") {
            control.ask(request)?.iter().for_each(|line| println!("result {line}"));
            continue;
        }
        control.ask("trace clear")?;
        mark("/alike/begin");
        let done = world.obey(device, &words);
        mark("/alike/end");
        match done {
            Ok(text) if text.is_empty() => println!("result ok"),
            Ok(text) => println!("result {text}"),
            Err(Failure::Call(error)) => {
                let errno =
                    error.errno().map_or("none".to_owned(), |errno| format!("{:?}", Errno::from_raw(errno)));
                println!("result {errno}");
                println!("# {error}");
            }
            Err(Failure::Step(problem)) => return Err(format!("{step}: {problem}")),
        }
        control.ask("trace")?.iter().for_each(|line| println!("| {line}"));
    }
    Ok(())
}
