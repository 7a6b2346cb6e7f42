//! The language of the programs: one step per line, a verb and its arguments.
//!
//! The program itself numbers objects within their kind. A step whose objects do not exist, or whose number is in use, does nothing, so a
//! program from which steps were removed is still a program.

use std::fmt;
use std::str::FromStr;

use crate::verbs;
use crate::world::{Played, World};

/// An argument that names no object.
pub const NONE: u64 = u64::MAX;

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Context,
    Domain,
    Region,
    Window,
    Handle,
    Channel,
    Completions,
    Shared,
    Pair,
    Membership,
    Counters,
    Flow,
    Reader,
    Snapshot,
    Sampler,
    Counter,
    WorkQueue,
    Table,
    Rss,
    Pool,
    PoolCounter,
    PoolFlow,
    Listener,
    Target,
    Incoming,
    Call,
    Connection,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = Self::Connection as usize + 1;
}

/// Maximum number of objects of a kind in a program.
pub const PLACES: usize = 4;

/// The kind of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// The number of an object to be created.
    New(Kind),
    /// An object.
    Has(Kind),
    /// An object, or none.
    May(Kind),
    /// An object that the step destroys.
    End(Kind),
    /// One of these numbers, the simplest first.
    One(&'static [u64]),
    /// One of these words, the simplest first.
    Word(&'static [&'static str]),
    /// Any combination of this number of flags.
    Bits(u32),
}

/// An operation of a step.
pub struct Verb {
    pub name: &'static str,
    pub args: &'static [Arg],
    /// How often it is chosen, relative to others.
    pub weight: u32,
    /// Executes it.
    pub play: fn(&mut World, &[u64]) -> Played,
}

/// A step of a program.
#[derive(Clone)]
pub struct Step {
    pub verb: &'static Verb,
    pub args: Vec<u64>,
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.verb.name == other.verb.name && self.args == other.args
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.name)?;
        for (value, arg) in self.args.iter().zip(self.verb.args) {
            match arg {
                Arg::Word(words) => write!(f, " {}", words[*value as usize])?,
                _ if *value == NONE => f.write_str(" -")?,
                _ => write!(f, " {value}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("an empty step")?;
        let verb = verbs::all().find(|verb| verb.name == name).ok_or_else(|| format!("no verb `{name}`"))?;
        let read = |arg: &Arg| {
            let word = words.next().ok_or_else(|| format!("`{line}`: {} arguments", verb.args.len()))?;
            let value = match arg {
                Arg::Word(all) => all.iter().position(|known| *known == word).map(|at| at as u64),
                _ if word == "-" => Some(NONE),
                _ => word.parse().ok(),
            };
            value.ok_or_else(|| format!("`{line}`: {word} is none of {arg:?}"))
        };
        let args = verb.args.iter().map(read).collect::<Result<_, _>>()?;
        match words.next() {
            None => Ok(Self { verb, args }),
            Some(word) => Err(format!("`{line}`: {word} is one too many")),
        }
    }
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    pub steps: Vec<Step>,
}

impl Program {
    /// The faults of the device in this program: commands that are refused, and its removal.
    pub fn faults(&self) -> Faults {
        let has = |name: &str| self.steps.iter().any(|step| step.verb.name == name);
        Faults {
            refuses: has("refuse"),
            unplugs: has("unplug"),
            starves: has("open-starved") || has("scarce"),
        }
    }
}

/// The faults of the device in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    pub refuses: bool,
    pub unplugs: bool,
    /// The kernel sometimes has no memory, or gives the program none.
    pub starves: bool,
}

impl Faults {
    pub fn any(self) -> bool {
        self.refuses || self.unplugs || self.starves
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Program {
    type Err = String;

    /// Empty lines, and lines that begin with `#`, are ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Self { steps: lines.map(str::parse).collect::<Result<_, _>>()? })
    }
}
