#![no_main]

#[path = "../bodies/bytes.rs"]
mod bytes;
#[path = "../bodies/pcap.rs"]
mod pcap;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pcap::run(data));
