//! Which addresses of the process have memory, as the kernel shows in `/proc/self/maps`.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// Whether all of this range is memory of the process that can be read, and also written if it `is_written`. True if it is not known, for
/// example without `/proc`.
pub(crate) fn is_there(start: usize, len: usize, is_written: bool) -> bool {
    let Some(end) = start.checked_add(len) else { return false };
    match File::open("/proc/self/maps") {
        Ok(file) => covers(BufReader::new(file), start, end, is_written),
        Err(_) => true,
    }
}

/// The lines have the form `7f0123456000-7f0123457000 rw-p ...`, in the order of the addresses.
fn covers(lines: impl BufRead, mut next: usize, end: usize, is_written: bool) -> bool {
    for line in lines.split(b'\n') {
        let Ok(line) = line else { return true };
        let Some((first, last, rights)) = parsed(&line) else { continue };
        if last <= next {
            continue;
        }
        let is_allowed = rights.first() == Some(&b'r') && (!is_written || rights.get(1) == Some(&b'w'));
        if first > next || !is_allowed {
            return false;
        }
        next = last;
        if next >= end {
            return true;
        }
    }
    next >= end
}

fn parsed(line: &[u8]) -> Option<(usize, usize, &[u8])> {
    let mut words = line.split(|byte| *byte == b' ');
    let range = str::from_utf8(words.next()?).ok()?;
    let (first, last) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(first)?, number(last)?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"1000-2000 rw-p 00000000 00:00 0\n2000-3000 r--p 00000000 00:00 0 /some file\n\
        5000-6000 ---p 00000000 00:00 0\n7000-9000 rw-s 00000000 00:00 0\n";

    #[test]
    fn a_range_may_span_several_areas_and_no_gap() {
        let is = |start, end, is_written| covers(MAPS, start, end, is_written);
        assert!(is(0x1000, 0x1001, true) && is(0x1800, 0x2800, false) && is(0x2000, 0x3000, false));
        assert!(!is(0x1800, 0x2800, true), "the second part cannot be written");
        assert!(
            !is(0x2800, 0x3001, false) && !is(0xfff, 0x1001, false),
            "there is nothing behind it or before it"
        );
        assert!(!is(0x5000, 0x5001, false), "nobody may read it");
        assert!(is(0x8fff, 0x9000, true) && !is(0x8fff, 0x9001, true) && !is(0xa000, 0xa001, true));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no /proc")]
    fn memory_of_this_process_is_there() {
        let mut bytes = vec![0_u8; 100_000];
        let start = bytes.as_mut_ptr().addr();
        assert!(is_there(start, bytes.len(), true));
        assert!(is_there(TEXT.as_ptr().addr(), TEXT.len(), false));
        assert!(!is_there(0, 1, false) && !is_there(usize::MAX, 2, false));
    }

    static TEXT: &str = "cannot be written";
}
