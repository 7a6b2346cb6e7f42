//! Structures of callers that are older or newer.

use uverbs::SoftDevice;

use super::*;
use crate::answer::EOPNOTSUPP;

#[test]
fn a_structure_is_read_as_far_as_it_goes() {
    let bytes: Vec<u8> = (1..=40).collect();
    let read = |len, least| given::<SqDepthAttr>(Pointer::to_first(&bytes), len, least);
    let attr = read(20, 20).expect("it is long enough");
    assert_eq!((attr.flags, attr.max_inline_data), (u32::from_ne_bytes([9, 10, 11, 12]), 0));
    assert_eq!(read(19, 20).err(), Some(EINVAL), "too short");
    assert_eq!(read(25, 20).err(), Some(EINVAL), "something stands behind what is known");
    assert!(given_prefix::<SqDepthAttr>(Pointer::to_first(&bytes), 40, 20).is_ok());
    let zeros = [0_u8; 40];
    assert!(given::<SqDepthAttr>(Pointer::to_first(&zeros), 40, 20).is_ok());
    assert_eq!(given::<SqDepthAttr>(Pointer::NULL, 24, 20).err(), Some(EINVAL));
}

#[test]
fn a_structure_is_filled_to_its_end_and_no_further() {
    let value = AhAttr { ahn: 0x0201, ..AhAttr::default() };
    for len in [0, 9, 10, 16, 30] {
        let mut bytes = [0xa5_u8; 40];
        let answer = told(Places::of(&mut bytes), len, 10, &value);
        let filled = if len < 10 { 0 } else { len as usize };
        assert_eq!(answer.is_ok(), len >= 10);
        let wanted = (0..40).map(|at| match at {
            8 if filled > 0 => 1,
            9 if filled > 0 => 2,
            _ if at < filled => 0,
            _ => 0xa5,
        });
        assert!(bytes.into_iter().eq(wanted), "{len}: {bytes:x?}");
    }
}

#[test]
fn another_device_is_refused_by_every_call() {
    let context = SoftDevice::default().open().expect("a device");
    assert_eq!(Device::of(&context).err().map(Code::from), Some(EOPNOTSUPP));
    assert_eq!(Device::most_sends(&context, false).err().map(Code::from), Some(EOPNOTSUPP));
    assert_eq!(Ways::of_handle(&context, 0).err().map(Code::from), Some(EOPNOTSUPP));
    assert!(!context.has_parent_domains() && context.most_sends().is_none());
}

#[test]
fn numbers_are_below_zero_for_an_errno() {
    assert_eq!([number(Ok(5)), number(Err(EINVAL)), number(Ok(u32::MAX))], [5, -22, -22]);
}
