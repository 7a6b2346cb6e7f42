//! Features of ConnectX only: pools of flow counters that one command reads, commands to the firmware ([`devx`]), and requests in the
//! device's format ([`SendRing`]).
//!
//! Open the context with [`OpenOptions::devx`](crate::OpenOptions::devx) and create a [`CounterPool`] of up to 4,092 counters.
//! [`PoolCounter::create_flow`] puts a rule in force that counts into one of them. A [`PoolReader`] reads all counters with one
//! firmware command, whereas each [`Counters`](crate::Counters) object takes one command. [`PoolQueries`] reads asynchronously.
//!
//! ```no_run
//! use uverbs::mlx5::CounterPool;
//! use uverbs::{Eth, FlowRule, OpenOptions};
//!
//! # fn main() -> uverbs::Result<()> {
//! let devices = uverbs::devices()?;
//! let context = OpenOptions::new().devx(true).open(devices.named("mlx5_0")?)?;
//! let cq = context.create_cq(64)?;
//! let qp = context.alloc_pd()?.raw_packet(&cq).connect(1)?;
//!
//! let pool = CounterPool::new(&context, 1000)?;
//! let mut flows = Vec::new();
//! for last in 0..100 {
//!     let rule = FlowRule::normal(1).eth(Eth::any().dst([2, 0, 0, 0, 0, last]));
//!     flows.push(pool.take()?.create_flow(&qp, &rule)?);
//! }
//!
//! let mut reader = pool.reader();
//! let values = reader.read()?; // one command
//! for flow in &flows {
//!     println!("{:?}", values.of(flow.counter()));
//! }
//! # Ok(())
//! # }
//! ```

mod clock;
mod device;
pub mod devx;
mod flow;
mod header_action;
mod matcher;
mod matching;
mod pacing;
mod pool;
mod qp_numbers;
mod queries;
mod reader;
mod rings;
mod row;
mod snapshots;
#[cfg(feature = "tokio")]
mod tokio;

pub use self::clock::{Clock, ClockTimes};
#[cfg(feature = "raw")]
pub use self::device::address_vector;
pub use self::flow::{Destination, PoolFlow};
pub use self::header_action::{HeaderAction, Reformat};
#[cfg(feature = "raw")]
pub use self::matcher::RawMatching;
pub use self::matcher::{FlowAction, FlowMatcher, FlowTable, MatchedFlow, Matching};
pub use self::pacing::{Pace, PacingEntry};
pub use self::pool::{CounterPool, PoolCounter};
pub use self::qp_numbers::{QpNumber, QpNumbers};
pub use self::queries::PoolQueries;
pub use self::reader::{PoolReader, Totals, Values};
pub use self::rings::{CompletionRing, ReceiveRing, SendRing};
#[cfg(feature = "tokio")]
pub use self::tokio::AsyncPoolReader;
