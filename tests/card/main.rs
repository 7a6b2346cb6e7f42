//! Features that only a card has: DEVX, work queues and offloads. On other devices they are refused, or the test is skipped.
#![cfg(feature = "soft")]

#[path = "../common/mod.rs"]
mod common;

mod bound;
mod bulk;
mod bulk_queries;
mod devx;
mod numbers;
mod offloads;
mod rings;
mod rss;
