#![no_main]

#[path = "../bodies/mod.rs"]
mod bodies;
#[path = "../../commands/mod.rs"]
mod commands;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::packet::run(data));
