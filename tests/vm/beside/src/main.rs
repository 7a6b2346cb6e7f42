//! What operations cost through this crate, measured as `theirs.c` measures libibverbs, and the table of both. The modules correspond to
//! the programs in C: `path.rs` to `path.c` (posting and polling), `efa.rs` to `efa.c` (the same on an EFA), `managed.rs` to `siw.c`,
//! `reads.rs` to `reads.c` (reads of counters). `figures.rs` compares their results, and `programs.rs` what whole programs cost.
//! `tests/vm/run --lane beside` runs it; see README.md there.

mod efa;
mod figures;
mod managed;
#[expect(unreachable_pub, reason = "shared by tests, each of which uses a part")]
#[path = "../../../common/manager.rs"]
mod manager;
mod meter;
mod operations;
mod path;
mod programs;
mod reads;
mod table;

use std::process::ExitCode;

use meter::Meter;
use operations::{Loop, control, open};

const USAGE: &str = "usage: beside instructions DEVICE BATCHES | calls DEVICE | table DIRECTORY \
    | messages|managed|frames|efa|counters|reads|first|times DEVICE | figures messages|frames|efa|reads DIRECTORY | programs KIND DIRECTORY";

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["instructions", device, batches] => match batches.parse() {
            Ok(batches) => measure(Meter::new(false), device, batches).map_err(|error| error.to_string()),
            Err(error) => Err(format!("{batches}: {error}")),
        },
        ["calls", device] => measure(Meter::new(true), device, 2).map_err(|error| error.to_string()),
        ["table", directory] => table::print(directory.as_ref()),
        ["messages", device] => path::messages(device).map_err(|error| error.to_string()),
        ["managed", device] => managed::messages(device).map_err(|error| error.to_string()),
        ["frames", device] => path::frames(device).map_err(|error| error.to_string()),
        ["efa", device] => efa::datagrams(device).map_err(|error| error.to_string()),
        ["counters", device] => efa::counters(device).map_err(|error| error.to_string()),
        ["reads", device] => reads::counts(device).map_err(|error| error.to_string()),
        ["first", device] => reads::first(device).map_err(|error| error.to_string()),
        ["times", device] => reads::times(device).map_err(|error| error.to_string()),
        ["programs", kind, directory] => programs::print(kind, directory.as_ref()),
        ["figures", kind, directory] => figures::print(kind, directory.as_ref()),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("beside: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(mut meter: Meter, device: &str, batches: usize) -> uverbs::Result<()> {
    let mut own_loop = Loop::new(&open(device)?)?;
    for i in 0..batches {
        // All batches but the last only warm the operations up. The last one is marked.
        meter.marked = i + 1 == batches;
        meter.row("clock", || ());
        control(&mut meter, device)?;
        own_loop.data(&mut meter)?;
    }
    meter.print();
    Ok(())
}
