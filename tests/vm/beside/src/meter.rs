//! Counts what an operation costs. `begin` and `end` of `theirs.c` do the same.

use std::path::Path;
use std::time::{Duration, Instant};

/// How often an operation is done between two readings of the clock.
const BATCH: usize = 10;

#[derive(Debug)]
pub(crate) struct Meter {
    /// Whether to make marks for strace instead of counting instructions.
    marking: bool,
    /// The operations are warm, so they are marked now.
    pub(crate) marked: bool,
    rows: Vec<(&'static str, Duration)>,
}

impl Meter {
    pub(crate) fn new(marking: bool) -> Self {
        Self { marking, marked: false, rows: Vec::with_capacity(64) }
    }

    pub(crate) fn batch(&self) -> usize {
        if self.marking { 1 } else { BATCH }
    }

    /// Measures `work`.
    #[inline]
    pub(crate) fn row<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        if self.marking {
            self.mark("begin", name);
            let done = work();
            self.mark("end", name);
            return done;
        }
        let begun = Instant::now();
        let done = work();
        let spent = begun.elapsed();
        match self.rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => row.1 = row.1.min(spent),
            None => self.rows.push((name, spent)),
        }
        done
    }

    /// Measures one operation, repeated as often as a batch has it.
    #[inline]
    pub(crate) fn timed<E>(
        &mut self,
        name: &'static str,
        mut work: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let batch = self.batch();
        self.row(name, || (0..batch).try_for_each(|_| work()))
    }

    /// A system call that does nothing, as a mark for strace.
    fn mark(&self, side: &str, name: &str) {
        if self.marked {
            let _ = Path::new("/beside").join(side).join(name).exists();
        }
    }

    /// Prints the instructions of one operation, for each row.
    pub(crate) fn print(&self) {
        let clock = self.rows.iter().find(|row| row.0 == "clock").map_or(0, |row| row.1.as_nanos());
        for (name, least) in self.rows.iter().filter(|row| row.0 != "clock") {
            let batch = BATCH as u128;
            println!("{name} {}", (least.as_nanos().saturating_sub(clock) + batch / 2) / batch);
        }
    }
}
