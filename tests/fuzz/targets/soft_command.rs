#![no_main]

#[path = "../bodies/bytes.rs"]
mod bytes;
#[path = "../../soft/mod.rs"]
mod soft;
#[path = "../bodies/soft_command.rs"]
mod soft_command;

libfuzzer_sys::fuzz_target!(|data: &[u8]| soft_command::run(data));
