//! Compares the results of two devices.

use std::fmt;

use crate::differences::{self, Row};
use crate::language::Program;
use crate::play::Played;
use crate::world::Outcome;

/// A step with another result on a device than on the soft device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub at: usize,
    pub verb: &'static str,
    pub soft: String,
    pub device: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {}, {}: {} on the soft device, {} on this one",
            self.at + 1,
            self.verb,
            self.soft,
            self.device
        )
    }
}

impl Difference {
    /// Whether it is of the same class: the same verb with results of the same kind.
    pub fn is_like(&self, other: &Self) -> bool {
        let sort = |text: &str| text.split([' ', ';']).take(2).collect::<Vec<_>>().join(" ");
        let sorts = |difference: &Self| (sort(&difference.soft), sort(&difference.device));
        self.verb == other.verb && sorts(self) == sorts(other)
    }
}

/// The result of a comparison.
#[derive(Debug)]
pub enum Comparison {
    Same,
    /// A known difference; the steps after it were not compared.
    Listed(&'static Row),
    Different(Difference),
}

/// Compares up to the first step that differs.
pub fn compare(program: &Program, soft: &Played, device: &Played, rows: &[&'static [Row]]) -> Comparison {
    for (at, step) in program.steps.iter().enumerate() {
        let (Some(one), Some(two)) = (soft.outcomes.get(at), device.outcomes.get(at)) else { break };
        if one == two {
            continue;
        }
        let soft = one.to_string();
        match differences::listed(rows, &program.steps[..=at], &soft, device) {
            Some(row) if row.goes_on => {}
            Some(row) => return Comparison::Listed(row),
            None => {
                let device = two.to_string();
                return Comparison::Different(Difference { at, verb: step.verb.name, soft, device });
            }
        }
    }
    let ends = [&soft.left, &device.left].map(|left| left.clone().unwrap_or_else(|| "nothing".to_owned()));
    match &device.left {
        Some(_) => {
            let [soft, device] = ends;
            Comparison::Different(Difference { at: program.steps.len(), verb: "the end", soft, device })
        }
        None => Comparison::Same,
    }
}

/// Results that are errors on every device: a panic, something left behind, or an errno that indicates a fault of the crate itself.
pub fn never(program: &Program, played: &Played) -> Option<(usize, String)> {
    use nix::errno::Errno::{EFAULT, ENOTTY};
    // A copy that was made to fail is EFAULT too.
    let fault = if program.faults().starves { ENOTTY } else { EFAULT };
    let wrong = [fault, ENOTTY].map(|errno| Some(errno as i32));
    let bad = |outcome: &Outcome| match outcome {
        Outcome::Panicked(_) => true,
        Outcome::Refused(_, errno) => wrong.contains(errno),
        _ => false,
    };
    let at = played.outcomes.iter().position(bad);
    let of_step = at.map(|at| (at, played.outcomes[at].to_string()));
    of_step
        .or_else(|| played.left.clone().map(|left| (played.outcomes.len(), format!("left behind: {left}"))))
}
