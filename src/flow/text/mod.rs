//! Rules as text: the language that tcpdump and tc users type, both ways.
//!
//! All words are in one [`table`], which the parser and the printer share. `docs/guide/rules.md` describes the language for readers.

mod error;
mod lexer;
mod parse;
mod print;
mod table;
mod value;

use uverbs_abi::flow::FlowAttr;

pub use self::error::RuleError;
use super::rule::{CatchAll, FlowRule, Normal, Sniffer};

/// A rule of any type, parsed from a text.
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
    /// `all-default` or `mc-default`: a rule for packets that no other rule matches.
    CatchAll(FlowRule<CatchAll>),
    /// `sniffer`: a rule that gets a copy of all packets.
    Sniffer(FlowRule<Sniffer>),
}

impl AnyRule {
    /// Parses a rule for `port` from `text`; the text does not contain the port.
    ///
    /// The resulting rule passes [`FlowRule::check`].
    ///
    /// # Errors
    /// The first unexpected word, with its column and what was expected.
    pub fn parse(text: &str, port: u8) -> Result<Self, RuleError> {
        parse::rule(text, port)
    }

    /// The rule's attributes in the kernel's layout.
    pub fn attr(&self) -> &FlowAttr {
        match self {
            Self::Normal(rule) => rule.attr(),
            Self::CatchAll(rule) => rule.attr(),
            Self::Sniffer(rule) => rule.attr(),
        }
    }

    /// The rule's specs in the kernel's layout, one after the other.
    pub fn specs(&self) -> &[u8] {
        match self {
            Self::Normal(rule) => rule.specs(),
            Self::CatchAll(rule) => rule.specs(),
            Self::Sniffer(rule) => rule.specs(),
        }
    }
}
