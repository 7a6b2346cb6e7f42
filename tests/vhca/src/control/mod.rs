//! The control line, by which tests send packets, make commands fail, and read the state of the device. See README.md.

mod request;
mod show;

pub(crate) use self::request::answer;
