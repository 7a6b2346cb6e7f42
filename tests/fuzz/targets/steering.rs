#![no_main]

#[path = "../bodies/bytes.rs"]
mod bytes;
#[path = "../../soft/mod.rs"]
mod soft;
#[path = "../bodies/steering.rs"]
mod steering;

libfuzzer_sys::fuzz_target!(|data: &[u8]| steering::run(data));
