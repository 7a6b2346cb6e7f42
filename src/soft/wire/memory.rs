//! The data of packets: parts of what a request names.

use uverbs_abi::rxe::Sge;
use uverbs_abi::types::{AccessFlags, wc_status};

use crate::soft::pieces::{self, Few, Place};
use crate::soft::state::State;

/// The data of a request that is being sent, or the place of the response.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) pd: u32,
    pub(super) pieces: Few<Sge>,
    /// The bytes themselves, if they were in the request.
    pub(super) inline: Vec<u8>,
    pub(super) len: u32,
}

impl State {
    fn places_of<'a>(&'a self, data: &'a Data, needed: AccessFlags) -> Result<Few<Place<'a>>, u32> {
        if !data.inline.is_empty() {
            return Ok(Few::One(Place::Bytes(&data.inline)));
        }
        self.places(data.pd, &data.pieces, data.len as usize, needed, wc_status::LOC_QP_OP_ERR)
    }

    /// Checks that a request can access all of its data.
    pub(super) fn check_data(&self, data: &Data, needed: AccessFlags) -> Result<(), u32> {
        self.places_of(data, needed).map(drop)
    }

    /// Appends `len` bytes of the data of a request, from `offset` on. The error is the status with which it ends.
    pub(super) fn append_data(
        &self,
        data: &Data,
        (offset, len): (u32, u32),
        to: &mut Vec<u8>,
    ) -> Result<(), u32> {
        let places = self.places_of(data, AccessFlags::empty())?;
        let read = pieces::append_part(&places, offset as usize, len as usize, to);
        if read { Ok(()) } else { Err(wc_status::LOC_PROT_ERR) }
    }

    /// Writes part of a response to where the request wants it.
    pub(super) fn put_data(&self, data: &Data, offset: u32, bytes: &[u8]) -> Result<(), u32> {
        let places = self.places_of(data, AccessFlags::LOCAL_WRITE).map_err(|_| wc_status::LOC_PROT_ERR)?;
        let written = pieces::put_part(&places, offset as usize, bytes);
        if written { Ok(()) } else { Err(wc_status::LOC_PROT_ERR) }
    }
}
