//! The one ioctl of a uverbs file: a header directly followed by its attributes.
//!
//! A call is [`IoctlHdr`] and `num_attrs` times [`Attr`]. [`Attr::data`] contains input of at most [`MAX_INLINE`] bytes itself, and the
//! address of longer input and of every output.

numbers! {
    u32 "" {
        RDMA_VERBS_IOCTL = 0xC018_1B01, "The only ioctl request number that a uverbs file knows.";
    }
    u16 "UVERBS_" {
        ATTR_F_MANDATORY = 1, "Input: fail with EPROTONOSUPPORT if this attribute is unknown, instead of ignoring it.";
        ATTR_F_VALID_OUTPUT = 2, "Output: the kernel wrote this attribute.";
        UHW_IN ("UVERBS_ATTR_UHW_IN") = 0x1000, "Attribute id of the driver's own input.";
        UHW_OUT ("UVERBS_ATTR_UHW_OUT") = 0x1001, "Attribute id of the driver's own output.";
        DRIVER_NAMESPACE ("1 << UVERBS_ID_NS_SHIFT") = 0x1000,
            "First id of the driver's range of objects, methods and attributes.";
        DRIVER_NAMESPACE_WITH_UHW ("(1 << UVERBS_ID_NS_SHIFT) + 2") = 0x1002,
            "First id of a driver's attribute in a method that has UHW.";
    }
    usize "" {
        MAX_INLINE () = 8, "Most bytes of input that travel inside an attribute.";
        MAX_ATTRS () = 254, "Most attributes of one call: header and attributes fit one page of 4 KiB.";
    }
}

layout! {
    /// Header of a call.
    struct IoctlHdr = "ib_uverbs_ioctl_hdr", 24 {
        0  length: u16, "Bytes of header and attributes together: 24 + 16 * `num_attrs`.";
        2  object_id: u16, "Kind of object that is addressed, see [`crate::ids`].";
        4  method_id: u16, "What to do with it.";
        6  num_attrs: u16, "Number of attributes that follow.";
        8  reserved1: u64, "Zero.";
        16 driver_id: u32, "Driver of the device, see [`crate::types::driver_id`]; any other is EINVAL.";
        20 reserved2: u32, "Zero.";
    }

    /// One attribute of a call.
    struct Attr = "ib_uverbs_attr", 16 {
        0 attr_id: u16, "Which attribute of the method this is.";
        2 len: u16, "Bytes of data; zero for handles and file descriptors.";
        4 flags: u16, "[`ATTR_F_MANDATORY`] on the way in, [`ATTR_F_VALID_OUTPUT`] on the way out.";
        6 elem_id ("attr_data.enum_data.elem_id"): u8,
            "Which alternative is meant, for attributes that have several; else zero.";
        7 reserved ("attr_data.enum_data.reserved"): u8, "Zero.";
        8 data: u64, "The value itself, an address, a handle, or a sign-extended file descriptor.";
    }
}
