//! Rules as text: the language that tcpdump and tc users type, both ways.
//!
//! The words stand in one [`table`], which the parser and the printer share. `docs/guide/rules.md` is the
//! language for readers.

mod error;
mod lexer;
mod parse;
mod print;
mod table;
mod value;

use uverbs_abi::flow::FlowAttr;

pub use self::error::RuleError;
use super::rule::{CatchAll, FlowRule, Normal, Sniffer};

/// A rule of any type, as a text gives it.
///
/// ```
/// use uverbs::{AnyRule, Eth, FlowRule, Udp};
///
/// let rule = AnyRule::parse("ether dst 02:00:00:00:00:01 and udp dst port 4791 priority 3", 1)?;
/// let same = FlowRule::normal(1)
///     .eth(Eth::any().dst([2, 0, 0, 0, 0, 1]))
///     .udp(Udp::any().dst_port(4791))
///     .priority(3);
/// assert_eq!(rule.specs(), same.specs());
/// assert_eq!(same.to_string(), "ether dst 02:00:00:00:00:01 and udp dst port 4791 priority 3");
///
/// let error = AnyRule::parse("udp dst prot 4791", 1).unwrap_err();
/// assert_eq!(error.to_string(), "column 9: unknown word `prot`; expected `port`");
/// # Ok::<(), uverbs::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub enum AnyRule {
    /// A rule that matches headers.
    Normal(FlowRule<Normal>),
    /// `all-default` or `mc-default`: a rule that takes what no other takes.
    CatchAll(FlowRule<CatchAll>),
    /// `sniffer`: a rule that takes a copy of everything.
    Sniffer(FlowRule<Sniffer>),
}

impl AnyRule {
    /// Reads a rule for `port` from `text`; the text itself names no port.
    ///
    /// A rule that comes out passes [`FlowRule::check`].
    ///
    /// # Errors
    /// The first word that cannot stand where it stands, with its column and what could.
    pub fn parse(text: &str, port: u8) -> Result<Self, RuleError> {
        parse::rule(text, port)
    }

    /// The rule's head as the kernel is told it.
    pub fn attr(&self) -> &FlowAttr {
        match self {
            Self::Normal(rule) => rule.attr(),
            Self::CatchAll(rule) => rule.attr(),
            Self::Sniffer(rule) => rule.attr(),
        }
    }

    /// The rule's specs as the kernel is told them, back to back.
    pub fn specs(&self) -> &[u8] {
        match self {
            Self::Normal(rule) => rule.specs(),
            Self::CatchAll(rule) => rule.specs(),
            Self::Sniffer(rule) => rule.specs(),
        }
    }
}
