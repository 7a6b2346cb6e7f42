//! The differences that there may be, each with its reason. A row that is not met is as wrong as a difference that is no
//! row. docs/providers.md has them as [`page`] prints them.

use crate::compare::Difference;

/// A version of the kernel.
pub(crate) type Kernel = (u32, u32);

struct Row {
    /// How the step begins.
    step: &'static str,
    what: &'static str,
    theirs: &'static str,
    ours: &'static str,
    /// The first kernel, and the first that is not meant any more.
    kernels: (Kernel, Kernel),
    why: &'static str,
}

const ALL: (Kernel, Kernel) = ((0, 0), (u32::MAX, 0));

#[rustfmt::skip]
const ROWS: &[Row] = &[
];

impl Row {
    fn is_for(&self, kernel: Kernel) -> bool {
        (self.kernels.0..self.kernels.1).contains(&kernel)
    }

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

/// Each difference with its reason, and the rows that were not met.
pub(crate) fn judge<'a>(
    differences: &'a [Difference],
    kernel: Kernel,
) -> (Vec<(&'a Difference, Option<&'static str>)>, Vec<String>) {
    let rows: Vec<_> = ROWS.iter().filter(|row| row.is_for(kernel)).collect();
    let why = |difference: &Difference| rows.iter().find(|row| row.allows(difference)).map(|row| row.why);
    let judged = differences.iter().map(|difference| (difference, why(difference))).collect();
    let is_met = |row: &Row| differences.iter().any(|difference| row.allows(difference));
    (judged, rows.iter().filter(|row| !is_met(row)).map(|row| row.name()).collect())
}

/// The table of the documentation.
pub(crate) fn page() -> String {
    let mut page =
        "| step | what | libibverbs | this crate | kernels | why |\n| --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for Row { step, what, theirs, ours, kernels, why } in ROWS {
        let kernels = match kernels {
            kernels if *kernels == ALL => "all".to_owned(),
            ((0, 0), (major, minor)) => format!("before {major}.{minor}"),
            ((major, minor), _) => format!("from {major}.{minor}"),
        };
        page += &format!("| `{step}` | {what} | {theirs} | {ours} | {kernels} | {why} |\n");
    }
    page
}
