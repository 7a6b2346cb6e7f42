//! The differences that are allowed, each with its reason. A row for which no difference is found is as wrong as a difference without a
//! row. docs/internals/drivers.md shows the rows as [`page`] prints them.

use crate::compare::Difference;

/// What the steps go through on our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    Crate,
    /// The drop-in for libibverbs (uverbs-c). The program that is linked to libibverbs runs with it unchanged.
    DropIn,
}

impl Through {
    /// The file with what the program prints.
    pub(crate) const fn recording(self) -> &'static str {
        match self {
            Self::Crate => "ours.txt",
            Self::DropIn => "drop-in.txt",
        }
    }
}

/// On which side the difference appears. The drop-in passes rules on unchanged, so errno is the kernel's, and it has no hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Both,
    Crate,
    DropIn,
}

impl Met {
    fn is_by(self, through: Through) -> bool {
        match through {
            Through::Crate => self != Self::DropIn,
            Through::DropIn => self != Self::Crate,
        }
    }
}

struct Row {
    met: Met,
    /// The beginning of the step.
    step: &'static str,
    what: &'static str,
    theirs: &'static str,
    ours: &'static str,
    why: &'static str,
}

const fn row(
    step: &'static str,
    what: &'static str,
    theirs: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Row {
    Row { met: Met::Both, step, what, theirs, ours, why }
}

/// A difference that appears only without the drop-in.
const fn without_drop_in(row: Row) -> Row {
    Row { met: Met::Crate, ..row }
}

/// A difference that appears only with the drop-in.
const fn of_drop_in(row: Row) -> Row {
    Row { met: Met::DropIn, ..row }
}

const REFUSED_EARLY: &str =
    "a rule that contradicts itself is refused, with a hint, before a command is sent";
const TABLE_COMES_AND_GOES: &str =
    "CREATE_FLOW_TABLE, SET_FLOW_TABLE_ROOT, SET_FLOW_TABLE_ROOT, DESTROY_FLOW_TABLE";
const MAY_BE_DAMAGED: &str = "after such a failure of the first flow, the kernel's object may be damaged. The crate therefore does not use it again: the next flow of the \
     counters gets another object, and the device file stays open until the process ends";
const TABLE_TWICE: &str = "CREATE_FLOW_TABLE, SET_FLOW_TABLE_ROOT, SET_FLOW_TABLE_ROOT, DESTROY_FLOW_TABLE, \
                           CREATE_FLOW_TABLE, SET_FLOW_TABLE_ROOT, SET_FLOW_TABLE_ROOT, DESTROY_FLOW_TABLE";
const ASKED_AGAIN: &str = "EINVAL for the first flow of a counters object may also mean that the firmware refused the counter. The crate \
     sends the rule again in a form that fails before the driver allocates the counter";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("open", "commands", "QUERY_NIC_VPORT_CONTEXT, QUERY_ADAPTER, ALLOC_UAR", "-",
        "libmlx5 queries the device's attributes and allocates a doorbell page; here `query_device` is a separate call, \
         and the page is allocated with the first queue"),
    row("cq 0 256", "commands", "-", "ALLOC_UAR", "the doorbell page is allocated with the first queue"),
    without_drop_in(row("flow 0 0 normal 0 - eth type=0806 ipv4", "commands", TABLE_COMES_AND_GOES, "-", REFUSED_EARLY)),
    without_drop_in(row("flow 0 0 normal 0 - ipv4 tcp udp", "commands", TABLE_COMES_AND_GOES, "-", REFUSED_EARLY)),
    row("attach 0 packets 8191", "result", "ok", "EINVAL",
        "a read has room for 8,191 values, so a point that could never be read is refused"),
    row("destroy counters 5", "commands", "DEALLOC_FLOW_COUNTER", "-", MAY_BE_DAMAGED),
    row("destroy counters 6", "commands", "DEALLOC_FLOW_COUNTER", "-", MAY_BE_DAMAGED),
    row("close", "commands", "DEALLOC_UAR, DEALLOC_TRANSPORT_DOMAIN", "-", MAY_BE_DAMAGED),
    row("flow 6 0 normal 0 - eth dst=020000000001 count id=6", "commands", "-", TABLE_COMES_AND_GOES, ASKED_AGAIN),
    row("flow 0 0 normal 0 - eth type=0008/00ff ipv4 count", "commands", "-", TABLE_TWICE, ASKED_AGAIN),
    row("flow 0 0 normal 0 - ipv4 proto=11 tcp count", "commands", "-", TABLE_TWICE, ASKED_AGAIN),
    of_drop_in(row("flow 0 0 normal 0 - eth type=0806 ipv4", "commands", "-", TABLE_TWICE, ASKED_AGAIN)),
    of_drop_in(row("flow 0 0 normal 0 - ipv4 tcp udp", "commands", "-", TABLE_TWICE, ASKED_AGAIN)),
    row("resize 2 4194303", "commands", "-", "QUERY_NIC_VPORT_CONTEXT, QUERY_ADAPTER",
        "a ring is filled before the kernel sees it, so for a large one the limit of the device is queried once"),
    without_drop_in(row("modify 2 ", "commands", "-", "QUERY_SQ, QUERY_RQ",
        "after EINVAL the state is queried, so that the error can name the transition that is not allowed")),
];

impl Row {
    fn allows(&self, difference: &Difference) -> bool {
        difference.step.starts_with(self.step)
            && difference.what == self.what
            && difference.theirs == self.theirs
            && difference.ours == self.ours
    }

    fn name(&self) -> String {
        format!("{}: {}", self.step, self.what)
    }
}

/// Each difference with its reason, and the rows for which no difference was found.
pub(crate) fn judge(
    differences: &[Difference],
    through: Through,
) -> (Vec<(&Difference, Option<&'static str>)>, Vec<String>) {
    let rows = || ROWS.iter().filter(|row| row.met.is_by(through));
    let why = |difference: &Difference| rows().find(|row| row.allows(difference)).map(|row| row.why);
    let judged = differences.iter().map(|difference| (difference, why(difference))).collect();
    let is_met = |row: &Row| differences.iter().any(|difference| row.allows(difference));
    (judged, rows().filter(|row| !is_met(row)).map(Row::name).collect())
}

/// The table for the documentation.
pub(crate) fn page() -> String {
    let mut page =
        "| step | what | libibverbs | this crate | why |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Row { met, step, what, theirs, ours, why } in ROWS {
        let by = if *met == Met::DropIn { " (drop-in)" } else { "" };
        page += &format!("| `{step}`{by} | {what} | {theirs} | {ours} | {why} |\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../../../docs/internals/drivers.md");

    fn of(row: &Row) -> Difference {
        let [step, what, theirs, ours] = [row.step, row.what, row.theirs, row.ours].map(str::to_owned);
        Difference { step, what, theirs, ours }
    }

    #[test]
    fn the_documentation_has_the_table_that_is_printed() {
        assert!(DOCS.contains(&page()), "docs/internals/drivers.md should have\n{}", page());
    }

    #[test]
    fn only_what_is_listed_is_allowed_and_a_row_that_is_not_met_is_named() {
        let mut differences: Vec<_> = ROWS.iter().map(of).collect();
        for through in [Through::Crate, Through::DropIn] {
            let (judged, unmet) = judge(&differences, through);
            let is_met =
                |(judged, row): (&(_, Option<_>), &Row)| judged.1.is_some() == row.met.is_by(through);
            assert!(judged.iter().zip(ROWS).all(is_met));
            assert_eq!(unmet, [""; 0]);
        }

        differences[0].ours = "something else".to_owned();
        let (judged, unmet) = judge(&differences, Through::Crate);
        assert!(judged[0].1.is_none());
        assert_eq!(unmet, [ROWS[0].name()]);
    }
}
