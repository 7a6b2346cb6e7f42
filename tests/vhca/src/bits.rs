//! Big-endian bit fields, of which the device's structures consist: bit 0 is the most significant bit of the first byte.

use std::ops::Range;

/// A field of a structure: where it begins and how many bits it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) width: usize,
}

impl Field {
    pub(crate) const fn new(offset: usize, width: usize) -> Self {
        Self { offset, width }
    }

    /// The same field in a structure that begins at `base`.
    pub(crate) const fn within(self, base: Field) -> Self {
        Self::new(base.offset + self.offset, self.width)
    }

    /// The bytes of a field that consists of whole bytes; for an array without a length, up to the end of the structure.
    fn bytes(self, len: usize) -> Range<usize> {
        let start = (self.offset / 8).min(len);
        let end = if self.width == 0 { len } else { ((self.offset + self.width) / 8).min(len) };
        start..end.max(start)
    }
}

/// Reads fields. A field beyond the end reads as zero: commands may be shorter than their structure.
pub(crate) trait Bits {
    /// A field of up to 64 bits.
    fn wide(&self, field: Field) -> u64;
    /// A structure or an array inside.
    fn part(&self, field: Field) -> &[u8];
    /// A structure that ends with an array: up to the end of the bytes.
    fn rest(&self, field: Field) -> &[u8] {
        self.part(Field::new(field.offset, 0))
    }
    /// A field of up to 32 bits.
    fn num(&self, field: Field) -> u32 {
        self.wide(field) as u32
    }
    /// Whether a field is not zero.
    fn is(&self, field: Field) -> bool {
        self.wide(field) != 0
    }
}

/// Writes fields. Nothing is written beyond the end.
pub(crate) trait BitsMut {
    fn set(&mut self, field: Field, value: impl Into<u64>);
    fn part_mut(&mut self, field: Field) -> &mut [u8];
    /// Copies bytes to the beginning of the field, as many as fit.
    fn put(&mut self, field: Field, bytes: &[u8]) {
        let to = self.part_mut(Field::new(field.offset, 0));
        let len = to.len().min(bytes.len());
        to[..len].copy_from_slice(&bytes[..len]);
    }
}

/// For each byte that contains a part of a field: its index, the shift of the field's lowest bit in it, and the mask of the bits.
fn bytes_of(field: Field) -> impl Iterator<Item = (usize, u32, u8)> {
    let end = field.offset + field.width;
    (field.offset / 8..end.div_ceil(8)).map(move |index| {
        let from = field.offset.max(index * 8) - index * 8;
        let to = end.min(index * 8 + 8) - index * 8;
        let mask = (0xff_u16 >> from) as u8 & (0xff_u16 << (8 - to)) as u8;
        (index, 8 - to as u32, mask)
    })
}

impl Bits for [u8] {
    fn wide(&self, field: Field) -> u64 {
        bytes_of(field).fold(0, |value, (index, shift, mask)| {
            let byte = self.get(index..).and_then(|rest| rest.first()).copied().unwrap_or(0);
            (value << mask.count_ones()) | u64::from((byte & mask) >> shift)
        })
    }

    fn part(&self, field: Field) -> &[u8] {
        &self[field.bytes(self.len())]
    }
}

impl BitsMut for [u8] {
    fn set(&mut self, field: Field, value: impl Into<u64>) {
        let value = value.into();
        let mut left = field.width as u32;
        for (index, shift, mask) in bytes_of(field) {
            left -= mask.count_ones();
            let bits = ((value >> left) as u8) << shift;
            if let Some(byte) = self.get_mut(index) {
                *byte = (*byte & !mask) | (bits & mask);
            }
        }
    }

    fn part_mut(&mut self, field: Field) -> &mut [u8] {
        let range = field.bytes(self.len());
        &mut self[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_and_width_comes_back_and_leaves_its_neighbours_alone() {
        for offset in 0..20 {
            for width in 1..=64 {
                let field = Field::new(offset, width);
                let value = 0x9e37_79b9_7f4a_7c15_u64 >> (64 - width);
                for background in [0x00, 0xff, 0x5a] {
                    let mut bytes = [background; 12];
                    bytes.set(field, value);
                    assert_eq!(bytes[..].wide(field), value, "{field:?}");
                    bytes.set(field, [background; 12][..].wide(field));
                    assert_eq!(bytes, [background; 12], "{field:?}");
                }
            }
        }
    }

    #[test]
    fn the_first_bit_is_the_most_significant() {
        let bytes = [0x80, 0x12, 0x34, 0x01];
        assert_eq!(bytes[..].wide(Field::new(0, 1)), 1);
        assert_eq!(bytes[..].wide(Field::new(8, 16)), 0x1234);
        assert_eq!(bytes[..].wide(Field::new(12, 8)), 0x23);
        assert_eq!(bytes[..].wide(Field::new(31, 1)), 1);
    }

    #[test]
    fn outside_is_zero_and_not_written() {
        let mut bytes = [0xff; 2];
        assert_eq!(bytes[..].wide(Field::new(8, 16)), 0xff00);
        assert_eq!(bytes[..].part(Field::new(64, 32)), &[] as &[u8]);
        bytes.set(Field::new(8, 16), 0x1234_u32);
        assert_eq!(bytes, [0xff, 0x12]);
        bytes.put(Field::new(8, 32), &[7; 4]);
        assert_eq!(bytes, [0xff, 7]);
    }
}
