//! Random programs on the soft device: those that once found a fault, and some others.

use std::fs;
use std::path::Path;

use uverbs_random::alone::{self, How, NATIVE, any_soft, device_of};
use uverbs_random::generate::{self, Lean};
use uverbs_random::language::{Program, Step};
use uverbs_random::play::play;

/// Each file of `finds/` is a program with the results of its steps, as `uverbs-random` prints it.
#[test]
fn what_was_found_stays_mended() {
    let mut count = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("finds")).expect("programs") {
        let path = entry.expect("a program").path();
        let text = fs::read_to_string(&path).expect("text");
        let lines =
            text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
        let (steps, ends): (Vec<Step>, Vec<&str>) = lines
            .map(|line| {
                let (step, end) = line.split_once('#').expect("a step and its end");
                (step.parse::<Step>().expect("a step"), end.split(" | ").next().unwrap_or_default().trim())
            })
            .unzip();
        let program = Program { steps };
        let played = play(&device_of(&text), &program, None, NATIVE);
        for ((step, end), outcome) in program.steps.iter().zip(ends).zip(&played.outcomes) {
            assert_eq!(outcome.to_string().trim(), end, "{}: {step}", path.display());
        }
        assert_eq!(played.left, None, "{}", path.display());
        count += 1;
    }
    assert!(count > 0);
}

fn none_is_wrong(how: How, count: u64) {
    for number in 0..count {
        let program = generate::program(1, number, Lean::Any);
        if let Some((at, what)) = alone::wrong(&program, how) {
            panic!("number {number}, step {}: {what}\n{program}", at + 1);
        }
    }
}

#[test]
fn programs_end_the_same_twice() {
    none_is_wrong(How::Alone, 2000);
}

#[test]
fn threads_may_do_anything() {
    none_is_wrong(How::Threads, 1000);
}

#[test]
fn programs_come_back_from_their_text() {
    for number in 0..1000 {
        let program = generate::program(2, number, Lean::Any);
        assert_eq!(program.to_string().parse::<Program>().expect("a program"), program);
    }
}

/// Most of the chosen steps can be executed; otherwise programs would test nothing.
#[test]
fn most_steps_have_their_objects() {
    let (mut all, mut absent, mut refused) = (0, 0, 0);
    for number in 0..1000 {
        let program = generate::program(3, number, Lean::Any);
        for outcome in play(&any_soft(), &program, None, NATIVE).outcomes {
            all += 1;
            match outcome {
                uverbs_random::world::Outcome::Absent => absent += 1,
                uverbs_random::world::Outcome::Refused(..) => refused += 1,
                _ => {}
            }
        }
    }
    println!("{all} steps, {absent} without their objects, {refused} refused");
    assert!(
        absent * 2 < all && refused * 2 < all && refused * 20 > all,
        "{all} steps, {absent} absent, {refused} refused"
    );
}
