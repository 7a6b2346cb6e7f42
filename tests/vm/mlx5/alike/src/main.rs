//! Runs the same steps through this crate (`ours`) or its drop-in for libibverbs, and through libibverbs (`theirs.c`), and compares the
//! two. `tests/vm/run --lane mlx5-beside` runs it; see README.md there.

mod allowed;
mod compare;
mod control;
mod fields;
mod ours;
mod recording;
mod rule;

use std::process::ExitCode;

use allowed::Through;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["ours", device, control, steps] => ours::play(device, control.as_ref(), steps.as_ref()),
        ["compare", directory] => compare::print(directory.as_ref(), Through::Crate),
        ["compare", directory, "drop-in"] => compare::print(directory.as_ref(), Through::DropIn),
        ["allowed"] => {
            print!("{}", allowed::page());
            Ok(())
        }
        _ => Err("usage: alike ours DEVICE CONTROL STEPS | compare DIRECTORY [drop-in] | allowed".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("alike: {error}");
            ExitCode::FAILURE
        }
    }
}
