//! Flow rules that only count, many at a time: the file that contains them, and the devices on which they are in force.

pub(crate) mod file;
pub(crate) mod rig;

use uverbs::{AnyRule, FlowRule};

use self::file::Place;
use crate::failure::Failure;

/// A rule that is to count.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) port: u8,
    /// Its text.
    pub(crate) text: String,
    pub(crate) rule: FlowRule,
    /// The position of the rule's text in its file; `None` for a rule of the command line.
    pub(crate) place: Option<Place>,
}

impl Wanted {
    /// Whether both count the same packets under the same name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.device, self.port, &self.text)
            == (&other.name, &other.device, other.port, &other.text)
    }

    /// A failure, preceded by its rule and the rule's position.
    pub(crate) fn failed(&self, failure: Failure) -> Failure {
        let name = self.name.escape_debug();
        match self.place {
            Some(place) => failure.said_of(format_args!("{place}: rule {name}")),
            None => failure.said_of(format_args!("rule {name}")),
        }
    }
}

/// Why a valid rule cannot count.
pub(crate) const NOT_NORMAL: &str = "only a rule that matches headers can count";

/// Parses a text as a rule that can count.
///
/// # Errors
/// The error in the text; `None` for a rule of another kind.
pub(crate) fn counting_rule(text: &str, port: u8) -> Result<FlowRule, Option<uverbs::RuleError>> {
    match AnyRule::parse(text, port) {
        Ok(AnyRule::Normal(rule)) => Ok(rule),
        Ok(_) => Err(None),
        Err(error) => Err(Some(error)),
    }
}
