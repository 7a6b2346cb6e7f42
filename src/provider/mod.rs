//! What differs between drivers: payloads, rings, doorbells.

pub(crate) mod ring;
