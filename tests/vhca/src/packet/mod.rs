//! Packets: their headers, match values and checksums.

mod checksum;
mod cut;
mod headers;
mod matching;
mod pcap;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::checksum::{complete, fcs, header_checksum, header_flags, received_sum};
pub(crate) use self::cut::{Large, cut};
#[cfg(test)]
pub(crate) use self::headers::{Address, Transport};
pub(crate) use self::headers::{Headers, Layer, VXLAN_PORT};
pub(crate) use self::matching::{MATCH_SIZE, match_value, supported};
pub(crate) use self::pcap::packets as pcap_packets;
