//! What bindings to C are told about mana.

use crate::driver::request::RequestKind;
use crate::driver::seam::{Facts, Written, walk};

/// mana.
#[derive(Debug)]
pub enum Mana {}

impl Facts for Mana {
    type Walk = walk::Told;

    const WRITTEN: Written = Written::Never;
    const ONLY: Option<RequestKind> = Some(RequestKind::Messages);
}
