//! As much of HTTP as a scrape needs.

mod accept;
pub(super) mod request;
pub(super) mod server;
