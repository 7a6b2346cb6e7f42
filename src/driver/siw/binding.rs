//! What bindings to C are told about siw.

use crate::driver::request::RequestKind;
use crate::driver::seam::{Facts, Written, walk};

/// siw.
#[derive(Debug)]
pub enum Siw {}

impl Facts for Siw {
    type Walk = walk::Told;

    const WRITTEN: Written = Written::Never;
    const KNOWS_STATES: bool = false;
    const ONLY: Option<RequestKind> = Some(RequestKind::Messages);
}
