//! The part of HTTP that scrapes need.

mod accept;
pub(super) mod request;
pub(super) mod server;
