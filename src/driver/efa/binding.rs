//! What bindings to C are told about efa.

use crate::driver::request::RequestKind;
use crate::driver::seam::{Facts, Written, walk};

/// efa.
#[derive(Debug)]
pub enum Efa {}

impl Facts for Efa {
    type Walk = walk::Told;

    const WRITTEN: Written = Written::InParts;
    const ONLY: Option<RequestKind> = Some(RequestKind::Addressed);
}
