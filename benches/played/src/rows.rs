//! Operations by name, what each turn cost, and what all measured programs need. `rows.h` says what is measured.

use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::thread::yield_now;

use uverbs::{
    Completion, CompletionQueue, QpType, QueuePair, Rc, ReceiveRequest, Result, Segment, SendRequest, Status,
};

pub(crate) const MANY: usize = 16;
pub(crate) const DEPTH: u32 = 256;
pub(crate) const MESSAGE: usize = 32;
pub(crate) const HEADER: usize = 40;
pub(crate) const QKEY: u32 = 0x11;
pub(crate) const PAIRS: usize = 4;
pub(crate) const PORT: u8 = 1;
const WARM: usize = 40;
const TURNS: usize = 3;
const CLOCK_TURNS: usize = 201;
const BURST: usize = 16;
const BURST_OF_MANY: usize = 8;

/// One operation: what each turn cost; and the system calls, allocator calls and locked instructions of the last one.
struct Row {
    name: String,
    costs: Vec<u64>,
    others: [u32; 3],
}

#[derive(Default)]
pub(crate) struct Rows {
    is_warm: bool,
    is_clock: bool,
    rows: Vec<Row>,
}

impl Rows {
    pub(crate) fn burst(&self, count: usize) -> usize {
        match (self.is_clock, count) {
            (false, _) => 1,
            (_, MANY) => BURST_OF_MANY,
            _ => BURST,
        }
    }

    /// Does `work` as often as a burst has calls.
    #[inline(always)]
    pub(crate) fn measure(&mut self, name: &str, count: usize, mut work: impl FnMut()) {
        let calls = self.burst(count);
        if !self.is_warm || name.is_empty() {
            return (0..calls).for_each(|_| work());
        }
        let begun = parent_id();
        for _ in 0..black_box(calls) {
            work();
        }
        let [spent, others @ ..] = [parent_id(), parent_id(), parent_id(), parent_id()];
        assert_eq!(begun, 0, "libplayed.so is preloaded");
        self.note(name, count, spent, calls, others);
    }

    #[inline(never)]
    fn note(&mut self, name: &str, count: usize, spent: u32, calls: usize, others: [u32; 3]) {
        let name = if count == MANY && !name.contains("16") { format!("{name} 16") } else { name.to_owned() };
        let cost = if self.is_clock { u64::from(spent) * 100 / calls as u64 } else { spent.into() };
        let place = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, costs: Vec::new(), others });
            self.rows.len() - 1
        });
        let row = &mut self.rows[place];
        row.costs.push(cost);
        row.others = others;
    }

    fn print(mut self) {
        let costs: Vec<_> = self
            .rows
            .iter_mut()
            .map(|row| {
                row.costs.sort_unstable();
                row.costs[if self.is_clock { row.costs.len() / 2 } else { 0 }] as i64
            })
            .collect();
        for (row, cost) in self.rows.iter().zip(&costs).skip(2) {
            let is_many = row.name.starts_with("poll 16,") || row.name.ends_with(" 16");
            let [calls, allocations, locked] = row.others;
            println!("{}: {} {calls} {allocations} {locked}", row.name, cost - costs[usize::from(is_many)]);
        }
    }
}

/// Calls `turn` as often as needed, and prints the rows.
pub(crate) fn measure(mut turn: impl FnMut(&mut Rows) -> Result<()>) -> Result<()> {
    let mut rows = Rows { is_clock: std::env::var_os("PLAYED_CLOCK").is_some(), ..Rows::default() };
    for number in 0..WARM + if rows.is_clock { CLOCK_TURNS } else { TURNS } {
        rows.is_warm = number >= WARM;
        for count in [1, MANY] {
            rows.measure("nothing", count, || {
                black_box(());
            });
        }
        turn(&mut rows)?;
    }
    rows.print();
    Ok(())
}

/// Queues that send to themselves.
pub(crate) struct Pair<T: QpType = Rc> {
    pub(crate) qp: QueuePair<T>,
    pub(crate) sent: CompletionQueue,
    pub(crate) received: CompletionQueue,
}

impl<T: QpType> Pair<T> {
    pub(crate) fn settle(&mut self) {
        yield_now();
        settle(&mut self.sent);
        settle(&mut self.received);
    }
}

pub(crate) fn settle(queue: &mut CompletionQueue) {
    let mut batch = Completion::batch::<MANY>();
    loop {
        let taken = queue.poll(&mut batch);
        assert!(batch[..taken].iter().all(|completion| completion.status == Status::Success));
        if taken == 0 {
            return;
        }
    }
}

#[inline(always)]
pub(crate) fn poll(queue: &mut CompletionQueue, places: &mut [Completion]) {
    assert_eq!(queue.poll(places), places.len());
}

pub(crate) fn receives<'a>(count: usize, room: &'a [Segment<'a>]) -> Vec<ReceiveRequest<'a>> {
    (0..count as u64).map(|id| ReceiveRequest::new(id, room)).collect()
}

pub(crate) fn sends<'a, O>(
    count: usize,
    make: impl Fn(u64) -> SendRequest<'a, O>,
) -> Vec<SendRequest<'a, O>> {
    (0..count as u64).map(|id| make(id).signaled()).collect()
}
