//! Finds the shortest program that still has a property.

use crate::language::{Arg, NONE, Program};

/// Removes steps, and simplifies arguments, as long as `still` returns true. It is called at most `most` times.
pub fn shrink(program: &Program, most: usize, mut still: impl FnMut(&Program) -> bool) -> Program {
    let (mut best, mut asked) = (program.clone(), 0);
    let mut ask = |program: &Program| {
        asked += 1;
        asked <= most && still(program)
    };
    loop {
        let before = best.clone();
        // Half of it, a quarter of it, and so on down to single steps.
        let mut size = best.steps.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < best.steps.len() {
                let mut shorter = best.clone();
                shorter.steps.drain(at..(at + size).min(best.steps.len()));
                if ask(&shorter) { best = shorter } else { at += size }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        for step in 0..best.steps.len() {
            for (arg, kind) in best.steps[step].verb.args.iter().enumerate() {
                let simplest = match kind {
                    Arg::One(all) => all[0],
                    Arg::Word(_) | Arg::Bits(_) => 0,
                    Arg::May(_) => NONE,
                    Arg::New(_) | Arg::Has(_) | Arg::End(_) => continue,
                };
                if best.steps[step].args[arg] != simplest {
                    let mut simpler = best.clone();
                    simpler.steps[step].args[arg] = simplest;
                    if ask(&simpler) {
                        best = simpler;
                    }
                }
            }
        }
        if best == before {
            return best;
        }
    }
}
