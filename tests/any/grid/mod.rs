//! Each kind of failure over each transport, on every device: what both sides see of it.
//!
//! A cell is what can be seen of one request: its completion and those of other requests on both sides, the states of both queue pairs,
//! events, the bytes that have changed, and what becomes of a second request, a send of no bytes. The soft device's cells are stored in
//! `tests/golden/failures.txt`. Another device has the same, or a row in `tests/common/differences/failures.rs`, which must occur.

mod end;
mod kinds;
mod scene;

use std::time::{Duration, Instant};

use uverbs::Context;

use self::end::Transport;
use self::kinds::Kind;
use self::scene::{Operation, Post, Scene};
use crate::common::{Outcome, Outcomes, Target, on_every_connecting_device};

/// How long a device has for what is expected.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long nothing else happens then.
const CALM: Duration = Duration::from_millis(30);

/// Looks until what is expected can be seen, and nothing else follows.
fn settle<const N: usize>(
    target: &Target,
    mut look: impl FnMut() -> [String; N],
    expected: &[String],
) -> [String; N] {
    let (start, mut since) = (Instant::now(), None);
    loop {
        let seen = look();
        if target.soft.is_some() || start.elapsed() > PATIENCE {
            return seen;
        }
        if seen == *expected {
            let since = since.get_or_insert_with(Instant::now);
            if since.elapsed() > CALM {
                return seen;
            }
        } else {
            since = None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Plays one kind of failure over one transport. What is expected makes no difference to what is seen, only to how soon.
fn play(
    target: &Target,
    contexts: &[Context; 2],
    kind: &Kind,
    transport: Transport,
    expected: &Outcome,
) -> Outcome {
    for context in contexts {
        while context.next_event().unwrap().is_some() {}
    }
    let mut s = Scene::new(contexts, transport);
    let mut prepared = kind.link.iter().try_for_each(|link| link(&mut s)).and_then(|()| s.connect());
    if prepared.is_ok() {
        match &kind.receive {
            Some(receive) => {
                s.a.receive(10, &[]);
                prepared = receive(&mut s);
            }
            None => s.receive(),
        }
        prepared = prepared.and_then(|()| kind.before.iter().try_for_each(|before| before(&mut s)));
    }
    match prepared {
        Ok(()) => {
            let post = (kind.post)(&mut s);
            s.post(1, &post);
        }
        Err(why) => {
            s.refuse(why);
            let [sender, ..] = s.look();
            return Outcome::refused(sender);
        }
    }
    let first = settle(target, || s.look(), &expected.first());
    s.turn_page();
    s.correct();
    s.post(2, &Post { operation: Operation::Send, pieces: Vec::new(), inline: None });
    let next = settle(
        target,
        || {
            let [here, there, states, ..] = s.look();
            [format!("{here}; {there}; {states}")]
        },
        &[expected.next()],
    );
    Outcome::new(first, next)
}

#[test]
fn every_kind_of_failure_is_the_same_on_every_device_or_has_its_row() {
    on_every_connecting_device(|target| {
        let contexts = [target.open(), target.open()];
        let mut cells = Outcomes::of(target);
        for kind in kinds::all() {
            for &transport in kind.over {
                let expected = cells.expected(transport.name(), &kind.name);
                let seen = play(target, &contexts, &kind, transport, &expected);
                cells.is(transport.name(), &kind.name, &expected, &seen);
            }
        }
        cells.end();
    });
}
