//! What bindings to C are told about erdma.

use crate::driver::request::RequestKind;
use crate::driver::seam::{Facts, Written, walk};

/// erdma.
#[derive(Debug)]
pub enum Erdma {}

impl Facts for Erdma {
    type Walk = walk::Told;

    const WRITTEN: Written = Written::Never;
    const ONLY: Option<RequestKind> = Some(RequestKind::Messages);
}
