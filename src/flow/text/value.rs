//! Values and masks: text to bytes and back.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::{Fault, quoted};
use super::table::{Form, MAX_FILTER, Number};

/// A value or a mask, in the first bytes. No field is longer than a filter.
type Bytes = [u8; MAX_FILTER];

/// Reads `value` or `value/mask`, which begins at `column`, and returns value and mask.
pub(super) fn read(form: &Form, text: &str, column: usize) -> Result<(Bytes, Bytes), Fault> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, Some((mask, column + value.chars().count() + 1))),
        None => (text, None),
    };
    match form {
        Form::Number(number) => read_number(number, value, mask, column),
        _ => read_address(form, value, mask, column),
    }
}

fn read_address(
    form: &Form,
    text: &str,
    mask: Option<(&str, usize)>,
    column: usize,
) -> Result<(Bytes, Bytes), Fault> {
    let what = match form {
        Form::Mac => "a MAC address such as 02:00:00:00:00:01",
        Form::V4 => "an IPv4 address such as 10.0.0.1",
        _ => "an IPv6 address such as fe80::1",
    };
    let unread = |text: &str, column, what| {
        let message = match text {
            "" => "something is missing".to_owned(),
            text => format!("{} is not {what}", quoted(text)),
        };
        Fault::new(column, message).expecting([what])
    };
    let value = address(form, text).ok_or_else(|| unread(text, column, what))?;
    let width = 8 * form.bytes() as u32;
    let (text, column) = match mask {
        None => return Ok((value, ones(width))),
        Some(mask) => mask,
    };
    let what = match form {
        Form::Mac => "a prefix length, or a mask such as ff:ff:ff:00:00:00",
        Form::V4 => "a prefix length, or a mask such as 255.0.255.0",
        _ => "a prefix length, or a mask such as ffff:ffff::",
    };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let mask = address(form, text).ok_or_else(|| unread(text, column, what))?;
        return Ok((value, mask));
    }
    let length = text.parse().ok().filter(|length| *length <= width);
    let Some(length) = length else {
        return Err(Fault::new(column, format!("{} is more than {width}", quoted(text))).expecting([what]));
    };
    let mask = ones(length);
    if value.iter().zip(&mask).any(|(value, mask)| value & !mask != 0) {
        let message = format!("the address has bits behind the first {length}, which would be ignored");
        return Err(Fault::new(column, message));
    }
    Ok((value, mask))
}

/// As many one bits as `length`, then zeros.
fn ones(length: u32) -> Bytes {
    std::array::from_fn(|at| match length.saturating_sub(8 * at as u32) {
        0 => 0,
        bits @ 1..8 => !(0xff >> bits),
        _ => 0xff,
    })
}

fn address(form: &Form, text: &str) -> Option<Bytes> {
    let mut bytes = [0; MAX_FILTER];
    match form {
        Form::Mac => {
            let mut groups = text.split(':');
            for byte in &mut bytes[..6] {
                *byte = groups.next().filter(|group| group.len() <= 2).and_then(hex)? as u8;
            }
            if groups.next().is_some() {
                return None;
            }
        }
        Form::V4 => bytes[..4].copy_from_slice(&text.parse::<Ipv4Addr>().ok()?.octets()),
        Form::V6 => bytes[..16].copy_from_slice(&text.parse::<Ipv6Addr>().ok()?.octets()),
        Form::Number(_) => return None,
    }
    Some(bytes)
}

fn hex(digits: &str) -> Option<u32> {
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| all)
}

/// Reads a number up to `most`. Digits that are too many for any integer give the same error as a number above `most`.
pub(super) fn number(text: &str, column: usize, most: u32, what: &'static str) -> Result<u32, Fault> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        let message = match text {
            "" => "a number is missing".to_owned(),
            text => format!("{} is not a number", quoted(text)),
        };
        return Err(Fault::new(column, message).expecting([what]));
    }
    let value = u32::from_str_radix(digits, radix).ok().filter(|value| *value <= most);
    value.ok_or_else(|| Fault::new(column, format!("{} is more than {most}", quoted(text))))
}

fn read_number(
    form: &Number,
    text: &str,
    mask: Option<(&str, usize)>,
    column: usize,
) -> Result<(Bytes, Bytes), Fault> {
    let name = form.names.iter().find(|(name, _)| *name == text);
    let most = if mask.is_some() { form.limit } else { form.most };
    let value = match name {
        Some((_, value)) => *value,
        None => number(text, column, most, "a decimal or 0x number")
            .map_err(|fault| fault.expecting(form.names.iter().map(|(name, _)| *name)))?,
    };
    let mask = match mask {
        None => form.most,
        Some((_, column)) if !form.masked => {
            return Err(Fault::new(column - 1, "this field takes no mask"));
        }
        Some((mask, column)) => number(mask, column, form.limit, "a mask as a decimal or 0x number")?,
    };
    Ok((form.store(value), form.store(mask)))
}

impl Number {
    /// Puts the number at its place in the field's bytes; the other bytes are zero.
    fn store(&self, value: u32) -> Bytes {
        let mut bytes = [0; MAX_FILTER];
        let word = (value << self.shift).to_be_bytes();
        bytes[..self.bytes].copy_from_slice(&word[4 - self.bytes..]);
        bytes
    }

    /// The whole field as a number.
    fn load(&self, bytes: &[u8]) -> u32 {
        bytes.iter().take(self.bytes).fold(0, |value, byte| value << 8 | u32::from(*byte))
    }
}

/// Writes a field's value and mask so that [`read`] reads them back; `None` if this form cannot express them.
pub(super) fn write(form: &Form, value: &[u8], mask: &[u8]) -> Option<String> {
    let mut text = String::new();
    match form {
        Form::Number(number) => write_number(&mut text, number, number.load(value), number.load(mask)),
        _ => write_masked_address(&mut text, form, value, mask),
    }
    .ok()?;
    Some(text)
}

fn write_number(text: &mut String, form: &Number, value: u32, mask: u32) -> fmt::Result {
    let one = |text: &mut String, value: u32, hex| match hex {
        true => write!(text, "{value:#0width$x}", width = 2 + 2 * form.bytes),
        false => write!(text, "{value}"),
    };
    if mask == form.most << form.shift && value & !mask == 0 {
        return one(text, value >> form.shift, form.hex);
    }
    if !form.masked {
        return Err(fmt::Error);
    }
    one(text, value, form.hex)?;
    text.push('/');
    one(text, mask, true)
}

fn write_masked_address(text: &mut String, form: &Form, value: &[u8], mask: &[u8]) -> fmt::Result {
    write_address(text, form, value)?;
    let width = 8 * form.bytes();
    let length: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let prefix = mask == &ones(length)[..form.bytes()];
    let inside = value.iter().zip(mask).all(|(value, mask)| value & !mask == 0);
    match form {
        _ if length as usize == width => Ok(()),
        Form::V4 | Form::V6 if prefix && inside => write!(text, "/{length}"),
        _ => {
            text.push('/');
            write_address(text, form, mask)
        }
    }
}

fn write_address(text: &mut String, form: &Form, bytes: &[u8]) -> fmt::Result {
    if let (Form::V4, Ok(octets)) = (form, <[u8; 4]>::try_from(bytes)) {
        return write!(text, "{}", Ipv4Addr::from(octets));
    }
    if let (Form::V6, Ok(octets)) = (form, <[u8; 16]>::try_from(bytes)) {
        return write!(text, "{}", Ipv6Addr::from(octets));
    }
    for (number, byte) in bytes.iter().enumerate() {
        let colon = if number > 0 { ":" } else { "" };
        write!(text, "{colon}{byte:02x}")?;
    }
    Ok(())
}
