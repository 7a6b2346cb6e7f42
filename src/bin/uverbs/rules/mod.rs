//! Flow rules that only count, many of them at once: the file that has them, and the devices that they are in force on.

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
    /// As it was written.
    pub(crate) text: String,
    pub(crate) rule: FlowRule,
    /// Where the rule's text stands in its file; none for one of the command line.
    pub(crate) place: Option<Place>,
}

impl Wanted {
    /// Whether both count the same under the same name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.device, self.port, &self.text)
            == (&other.name, &other.device, other.port, &other.text)
    }

    /// A failure with the rule that it is about, and its place.
    pub(crate) fn failed(&self, failure: Failure) -> Failure {
        let name = self.name.escape_debug();
        match self.place {
            Some(place) => failure.said_of(format_args!("{place}: rule {name}")),
            None => failure.said_of(format_args!("rule {name}")),
        }
    }
}

/// Why a rule that can be read cannot count.
pub(crate) const NOT_NORMAL: &str = "only a rule that matches headers can count";

/// The rule that a text is, if it is one that can count.
///
/// # Errors
/// What is wrong with it; none for a rule of another kind.
pub(crate) fn counting_rule(text: &str, port: u8) -> Result<FlowRule, Option<uverbs::RuleError>> {
    match AnyRule::parse(text, port) {
        Ok(AnyRule::Normal(rule)) => Ok(rule),
        Ok(_) => Err(None),
        Err(error) => Err(Some(error)),
    }
}
