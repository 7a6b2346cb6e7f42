//! Generates random programs.
//!
//! Most programs begin with a recipe, which creates objects that belong together: purely random steps would hardly ever connect a queue
//! pair. Then follow steps with the objects that should exist, and short sequences of use. Everything may be changed at random, so that
//! each operation is also tried with the wrong object, in the wrong order, and too often.

use std::sync::OnceLock;

use arbitrary::{Result, Unstructured};

use crate::language::{Arg, Kind, NONE, PLACES, Program, Step, Verb};
use crate::verbs;

/// What a device supports: features that it lacks completely are tried rarely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lean {
    /// Everything.
    Any,
    /// Messages, windows and their memory, without flows: rxe.
    Messages,
    /// Flows, counters and raw packets: mlx5, as far as the crate drives it.
    Flows,
    /// Connections by the connection manager, and what they need.
    Connections,
}

/// Whether a verb is one of the connection manager.
fn is_managed(name: &str) -> bool {
    name.trim_start_matches("drop-").starts_with("cm-")
}

/// Verbs, and beginnings of verbs, that only one of the two supports.
const OF_FLOWS: &[&str] = &[
    "flow",
    "reader",
    "snapshot",
    "sampler",
    "counters",
    "attach",
    "read",
    "rates",
    "pool",
    "wq",
    "table",
    "rss",
    "inject",
    "frame",
    "large-frame",
    "device-mlx5",
];
const OF_MESSAGES: &[&str] = &[
    "connect",
    "send",
    "datagram",
    "bind",
    "unbind",
    "mw",
    "srq",
    "join",
    "ah",
    "mr-access",
    "mr-domain",
    "mr-memory",
];

/// Operations for which the mlx5 driver uses work requests of its own (`mlx5r_umr_post_send_wait`, umr.c, 6.1), which the virtual card
/// does not execute: the call would wait for ever.
const OF_UMR: &[&str] = &["mr-access", "mr-domain", "mr-memory"];

fn is_of_manager(recipe: &Program) -> bool {
    recipe.steps.iter().any(|step| is_managed(step.verb.name))
}

impl Lean {
    /// How often a verb is chosen, relative to others.
    fn weight(self, verb: &Verb) -> u32 {
        let is_of = |names: &[&str]| {
            let name = verb.name.trim_start_matches("destroy-").trim_start_matches("drop-");
            names.iter().any(|prefix| {
                name == *prefix || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
            })
        };
        if self == Self::Flows && is_of(OF_UMR) || !self.has_manager() && is_managed(verb.name) {
            return 0;
        }
        let is_off = match self {
            Self::Any => false,
            Self::Messages => is_of(OF_FLOWS),
            Self::Flows => is_of(OF_MESSAGES),
            Self::Connections => !is_managed(verb.name) && verb.name != "qp",
        };
        verb.weight * if is_off { 1 } else { 12 }
    }

    fn has_manager(self) -> bool {
        matches!(self, Self::Any | Self::Connections)
    }

    /// Whether a recipe, or a sequence of use, makes sense for the device.
    fn takes(self, recipe: &Program) -> bool {
        let has = |name: &str| recipe.steps.iter().any(|step| step.verb.name == name);
        if is_of_manager(recipe) && !self.has_manager() {
            return false;
        }
        match self {
            Self::Connections => is_of_manager(recipe),
            Self::Any => true,
            // No frames arrive from a wire there.
            Self::Messages => !["counters", "wq", "pool", "inject"].iter().any(|name| has(name)),
            Self::Flows => !has("connect"),
        }
    }
}

/// Recipes, and sequences that may be used anywhere.
fn recipes() -> &'static [Vec<Program>; 2] {
    static ALL: OnceLock<[Vec<Program>; 2]> = OnceLock::new();
    ALL.get_or_init(|| {
        let (recipes, phrases) = include_str!("recipes.txt").split_once("----").expect("two parts");
        [recipes, phrases].map(|part| {
            let programs = part.split("\n\n").map(|text| text.parse::<Program>().expect("a recipe"));
            programs.filter(|program| !program.steps.is_empty()).collect()
        })
    })
}

/// The objects that should exist.
struct Maker<'a, 'b> {
    bytes: &'a mut Unstructured<'b>,
    lean: Lean,
    live: [[bool; PLACES]; Kind::COUNT],
    program: Program,
}

impl Maker<'_, '_> {
    fn chance(&mut self, one_in: u8) -> Result<bool> {
        Ok(self.bytes.int_in_range(1..=one_in)? == one_in)
    }

    /// The number of an object of this kind that should exist, nearly always.
    fn there(&mut self, kind: Kind) -> Result<u64> {
        let live: Vec<_> = (0..PLACES).filter(|at| self.live[kind as usize][*at]).collect();
        if live.is_empty() || self.chance(32)? {
            return self.bytes.int_in_range(0..=PLACES as u64 - 1);
        }
        Ok(*self.bytes.choose(&live)? as u64)
    }

    fn argument(&mut self, arg: Arg) -> Result<u64> {
        Ok(match arg {
            Arg::New(kind) => {
                let free = (0..PLACES).find(|at| !self.live[kind as usize][*at]);
                free.map_or_else(|| self.bytes.int_in_range(0..=PLACES as u64 - 1), |at| Ok(at as u64))?
            }
            Arg::Has(kind) | Arg::End(kind) => self.there(kind)?,
            Arg::May(_) if self.bytes.ratio(2, 3)? => NONE,
            Arg::May(kind) => self.there(kind)?,
            Arg::One(all) if self.bytes.ratio(1, 2)? => all[0],
            Arg::One(all) => *self.bytes.choose(all)?,
            Arg::Word(_) if self.bytes.ratio(1, 3)? => 0,
            Arg::Word(words) => self.bytes.choose_index(words.len())? as u64,
            Arg::Bits(count) => match self.bytes.int_in_range(0..=7)? {
                0..=4 => 0,
                5 => 1 << self.bytes.int_in_range(0..=count - 1)?,
                _ => self.bytes.int_in_range(0..=(1u64 << count) - 1)?,
            },
        })
    }

    /// Adds a step, and records its expected effect.
    fn push(&mut self, mut step: Step) {
        // Operations that the crate or the soft device does not support there are tried rarely, and nothing depends on them.
        let is_seldom = !self.program.steps.len().is_multiple_of(8);
        if self.lean == Lean::Flows && step.verb.name == "qp" && step.args[1] != 3 && is_seldom {
            step.args[1] = 4;
        }
        for (value, arg) in step.args.iter().zip(step.verb.args) {
            let (kind, is_there) = match arg {
                Arg::New(kind) => (*kind, true),
                Arg::End(kind) => (*kind, false),
                _ => continue,
            };
            if let Some(place) = self.live[kind as usize].get_mut(*value as usize) {
                *place = is_there;
            }
        }
        self.program.steps.push(step);
    }

    /// Adds steps that belong together; rarely, one is left out or has another argument.
    fn phrase(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            let mut step = step.clone();
            if self.chance(40)? {
                continue;
            }
            if self.chance(8)? && !step.args.is_empty() {
                let at = self.bytes.choose_index(step.args.len())?;
                step.args[at] = self.argument(step.verb.args[at])?;
            }
            self.push(step);
        }
        Ok(())
    }

    /// Whether the objects of a step should exist.
    fn can(&self, step: &Step) -> bool {
        let mut args = step.args.iter().zip(step.verb.args);
        args.all(|(value, arg)| match arg {
            Arg::Has(kind) | Arg::End(kind) => {
                self.live[*kind as usize].get(*value as usize).copied().unwrap_or(false)
            }
            _ => true,
        })
    }

    /// Adds a step whose objects should exist, nearly always.
    fn step(&mut self) -> Result<()> {
        let any = self.chance(16)?;
        let can = |verb: &&Verb| {
            any || verb.args.iter().all(|arg| match arg {
                Arg::Has(kind) | Arg::End(kind) => self.live[*kind as usize].contains(&true),
                Arg::New(kind) => self.live[*kind as usize].contains(&false),
                _ => true,
            })
        };
        let lean = self.lean;
        let verbs: Vec<_> = verbs::all().filter(can).map(|verb| (verb, lean.weight(verb))).collect();
        let sum: u32 = verbs.iter().map(|(_, weight)| weight).sum();
        let mut at = self.bytes.int_in_range(0..=sum.saturating_sub(1))?;
        for (verb, weight) in verbs {
            if at < weight {
                let args = verb.args.iter().map(|arg| self.argument(*arg)).collect::<Result<_>>()?;
                self.push(Step { verb, args });
                break;
            }
            at -= weight;
        }
        Ok(())
    }

    fn program(&mut self) -> Result<()> {
        let [recipes, phrases] = recipes();
        let lean = self.lean;
        let recipes: Vec<_> = recipes.iter().filter(|recipe| lean.takes(recipe)).collect();
        let phrases: Vec<_> = phrases
            .iter()
            .filter(|phrase| lean == Lean::Flows && !is_of_manager(phrase) || lean.takes(phrase))
            .collect();
        let recipe = *self.bytes.choose(&recipes)?;
        if lean == Lean::Any && self.chance(4)? {
            let verb = verbs::all().find(|verb| verb.name == "profile").expect("a verb");
            let args = verb.args.iter().map(|arg| self.argument(*arg)).collect::<Result<_>>()?;
            self.push(Step { verb, args });
        }
        self.phrase(&recipe.steps)?;
        let steps = self.bytes.int_in_range(5..=MOST)?;
        while self.program.steps.len() < steps && !self.bytes.is_empty() {
            if self.chance(6)? {
                let mut phrase = *self.bytes.choose(&phrases)?;
                // A step whose first object exists, if one can be found.
                for _ in 0..8 {
                    if phrase.steps.first().is_none_or(|step| self.can(step)) {
                        break;
                    }
                    phrase = *self.bytes.choose(&phrases)?;
                }
                let mut steps = phrase.steps.clone();
                // Steps that belong together are tried in every order.
                if self.chance(4)? {
                    for at in 1..steps.len() {
                        steps.swap(at, self.bytes.int_in_range(0..=at)?);
                    }
                }
                self.phrase(&steps)?;
            } else {
                self.step()?;
            }
        }
        Ok(())
    }
}

/// Maximum number of steps of a program.
pub const MOST: usize = 60;

/// The program for these bytes.
pub fn from_bytes(bytes: &[u8], lean: Lean) -> Program {
    let mut bytes = Unstructured::new(bytes);
    let live = [[false; PLACES]; Kind::COUNT];
    let mut maker = Maker { bytes: &mut bytes, lean, live, program: Program::default() };
    // The program ends where the bytes end.
    let _ = maker.program();
    maker.program.steps.truncate(MOST);
    maker.program
}

/// The same program, in which the firmware refuses commands, the kernel has no memory, or, rarely, the device is removed.
pub fn with_faults(mut program: Program, seed: u64, number: u64) -> Program {
    let mut chance = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let named = |name: &str| verbs::all().find(|verb| verb.name == name).expect("a verb");
    let pick = |arg: &Arg, chance: &mut fastrand::Rng| match arg {
        Arg::Word(words) => chance.usize(..words.len()) as u64,
        Arg::One(all) => *chance.choice(*all).unwrap_or(&0),
        _ => 0,
    };
    let mut insert = |chance: &mut fastrand::Rng, name: &str| {
        let verb = named(name);
        let args = verb.args.iter().map(|arg| pick(arg, chance)).collect();
        let at = chance.usize(..=program.steps.len());
        program.steps.insert(at, Step { verb, args });
    };
    if chance.u8(..16) == 0 {
        insert(&mut chance, "unplug");
    }
    for _ in 0..chance.u8(1..=3) {
        insert(&mut chance, "refuse");
    }
    if chance.u8(..4) == 0 {
        insert(&mut chance, "scarce");
    }
    if chance.bool() {
        let verb = named("open-starved");
        for step in program.steps.iter_mut().filter(|step| step.verb.name == "open") {
            let place = step.args[0];
            let args = verb.args.iter().map(|arg| pick(arg, &mut chance));
            *step = Step { verb, args: [place].into_iter().chain(args.skip(1)).collect() };
        }
    }
    program
}

/// The program with this number, for this seed.
pub fn program(seed: u64, number: u64, lean: Lean) -> Program {
    let mut chance = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bytes: Vec<u8> = std::iter::repeat_with(|| chance.u8(..)).take(4096).collect();
    from_bytes(&bytes, lean)
}
