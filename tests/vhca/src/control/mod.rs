//! The control line, on which tests send packets, make commands fail, and look inside. See README.md.

mod request;
mod show;

pub(crate) use self::request::answer;
