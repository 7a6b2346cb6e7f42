//! Open devices with a watcher of their commands.

use uverbs::OpenOptions;
use uverbs::command::Command;
use uverbs::transport::{Errno, Trace, Watched, Watcher};

use super::{done, verb};
use crate::language::Arg::{New, Word};
use crate::language::Kind::Context;
use crate::language::Verb;

/// Checks each command before and after it is sent: its fields must be consistent.
#[derive(Debug)]
struct Reader;

impl Watcher for Reader {
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        read(command);
        Ok(())
    }

    fn after(&self, command: &Command<'_>, _: Result<(), Errno>) {
        read(command);
    }
}

fn read(command: &Command<'_>) {
    let len = command.len();
    assert!(command.op().contains('.'), "{}", command.op());
    assert_eq!((command.attrs().len(), command.is_empty()), (len, len == 0));
    assert_eq!(usize::from(command.header().num_attrs), len);
    for index in 0..len {
        let input = command.input_bytes(index);
        assert!(input.is_none() || command.output_bytes(index).is_none(), "both ways: {command:?}");
        if let Some((at, _)) = command.nested_bytes(index) {
            assert!(input.is_some_and(|bytes| at + 8 <= bytes.len()), "no place for an address: {command:?}");
        }
    }
    assert!(command.input_bytes(len).is_none() && command.output_bytes(len).is_none());
}

pub(super) const VERBS: &[&[Verb]] = &[&[verb(
    "open-watched",
    1,
    &[New(Context), Word(&["watched", "traced", "options", "through", "options-through"])],
    |w, a| {
        w.free_to_open(a[0])?;
        let device = &w.machine.device;
        let context = match a[1] {
            0 => device.open_with(Reader)?,
            1 => device.open_with(Trace::new(std::io::sink()))?,
            2 => OpenOptions::new().open_with(device, Reader)?,
            3 => device.open_through(|inner| Box::new(Watched::new(inner, Reader)))?,
            _ => OpenOptions::new().open_through(device, |inner| Box::new(Watched::new(inner, Reader)))?,
        };
        w.contexts.put(a[0], context);
        done(())
    },
)]];
