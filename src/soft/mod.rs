//! The embedded device: steers packets as a real one would, without any hardware.

#[allow(dead_code)]
mod flow_check;
#[allow(dead_code)]
mod matcher;
#[allow(dead_code)]
mod packet;
#[cfg(feature = "pcap")]
mod pcap;
#[allow(dead_code)]
mod steering;
#[cfg(test)]
mod testing;
mod traffic;

#[cfg(feature = "pcap")]
pub use pcap::{Capture, CaptureError, Frame};
pub use traffic::{Traffic, TrafficError, Vary};
