//! Requests that bind a memory window, or invalidate a local key: they change the context that the device stores for the key.
//!
//! Source: `struct mlx5_wqe_umr_ctrl_seg` and `struct mlx5_mkey_seg`, qp.h and device.h, Linux 6.1; `set_bind_wr` of libmlx5,
//! providers/mlx5/qp.c, rdma-core 65.

use uverbs_abi::mlx5::wqe::{
    OPCODE_UMR, WQE_CTRL_FENCE, WQE_CTRL_INITIATOR_SMALL_FENCE,
    WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC as ATOMIC, WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE as LOCAL_WRITE,
    WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ as REMOTE_READ,
    WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE as REMOTE_WRITE, WQE_MKEY_CONTEXT_FREE as IS_FREE,
    WQE_UMR_CTRL_FLAG_CHECK_FREE as CHECK_FREE, WQE_UMR_CTRL_FLAG_CHECK_QPN as CHECK_QPN,
    WQE_UMR_CTRL_FLAG_INLINE as INLINE, WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET as OFFSET,
    WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC, WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE,
    WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ, WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE,
    WQE_UMR_CTRL_MKEY_MASK_FREE, WQE_UMR_CTRL_MKEY_MASK_LEN, WQE_UMR_CTRL_MKEY_MASK_MKEY,
    WQE_UMR_CTRL_MKEY_MASK_QPN, WQE_UMR_CTRL_MKEY_MASK_START_ADDR, WqeCtrlSeg, WqeMkeyContextSeg,
    WqeUmrCtrlSeg, WqeUmrKlmSeg,
};
use uverbs_abi::types::{AccessFlags, wc_opcode};
use zerocopy::{FromZeros, IntoBytes};

use super::segments::UNIT;
use super::sends::{Sends, Start, unit};
use crate::driver::request::{Binding, Refused};

/// The fields that every change sets: whether the key is free, and its lowest byte.
const CHANGED: u64 = WQE_UMR_CTRL_MKEY_MASK_FREE | WQE_UMR_CTRL_MKEY_MASK_MKEY;
/// The fields that a bind sets in addition: the memory of the window, and its access rights.
const BOUND: u64 = CHANGED
    | WQE_UMR_CTRL_MKEY_MASK_LEN
    | WQE_UMR_CTRL_MKEY_MASK_START_ADDR
    | WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE
    | WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ
    | WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE
    | WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
/// The list of memory in a context is padded to a multiple of this number of entries.
const LIST: usize = 4;
/// Maximum size of a window in bytes: an entry of the list has 31 bits for it.
const MOST: u64 = 1 << 31;
/// In place of a queue pair's number: any queue pair.
const ANY: u32 = 0xff_ffff;

/// Bits of [`Sends::change`].
const IS_CHANGE: u8 = 1;
const WAS_CHANGE: u8 = 2;

impl Sends {
    /// The mode of a message whose flags result in `mode`: after a change of a key it may have to wait.
    #[inline(always)]
    pub(super) fn fenced<const LOOKS: bool>(&mut self, mode: u8) -> u8 {
        // Without looking, there was no room after a change.
        if !LOOKS || self.change == 0 {
            return mode;
        }
        self.fence_of_change(mode & WQE_CTRL_FENCE) | mode & !WQE_CTRL_FENCE
    }

    /// The fence of a change of a key, or of a request after one, which may have to wait. `asked` is the fence of its flags.
    #[cold]
    #[inline(never)]
    fn fence_of_change(&mut self, asked: u8) -> u8 {
        let waits = self.change & WAS_CHANGE != 0 && asked == 0;
        self.change = if self.change & IS_CHANGE != 0 { WAS_CHANGE } else { 0 };
        if waits { WQE_CTRL_INITIATOR_SMALL_FENCE } else { asked }
    }

    /// Writes a bind: the whole request without its control segment. A bind to zero bytes invalidates the key.
    #[inline(never)]
    pub(super) fn start_bind(&mut self, binding: &Binding) -> Result<(Start, u32), Refused> {
        let Binding { addr, length, lkey, rkey, new_rkey, access, is_type_1 } = *binding;
        if length == 0 {
            return self.start_free(wc_opcode::BIND_MW, rkey, new_rkey, is_type_1);
        }
        if length > MOST {
            return Err(Refused::Lacks);
        }
        let access = AccessFlags::from_bits_retain(access);
        let rights = [
            (AccessFlags::LOCAL_WRITE, LOCAL_WRITE),
            (AccessFlags::REMOTE_WRITE, REMOTE_WRITE),
            (AccessFlags::REMOTE_READ, REMOTE_READ),
            (AccessFlags::REMOTE_ATOMIC, ATOMIC),
        ];
        let access_flags =
            rights.iter().filter(|(right, _)| access.contains(*right)).map(|(_, bit)| bit).sum();
        let (check, qpn, mask) = match is_type_1 {
            true => (0, ANY, BOUND),
            false => (CHECK_FREE, self.number >> 8, BOUND | WQE_UMR_CTRL_MKEY_MASK_QPN),
        };
        let control = WqeUmrCtrlSeg {
            flags: INLINE | OFFSET | check,
            klm_octowords: (LIST as u16).into(),
            mkey_mask: mask.into(),
            ..WqeUmrCtrlSeg::new_zeroed()
        };
        let start_addr = if access.contains(AccessFlags::ZERO_BASED) { 0 } else { addr };
        let context = WqeMkeyContextSeg {
            access_flags,
            qpn_mkey: (qpn << 8 | new_rkey & 0xff).into(),
            start_addr: start_addr.into(),
            len: length.into(),
            ..WqeMkeyContextSeg::new_zeroed()
        };
        let mut list = [WqeUmrKlmSeg::new_zeroed(); LIST];
        list[0] =
            WqeUmrKlmSeg { byte_count: (length as u32).into(), mkey: lkey.into(), address: addr.into() };
        self.put_change(wc_opcode::BIND_MW, rkey, &control, &context, list.as_bytes())
    }

    /// Writes an invalidate of a local key.
    #[inline(never)]
    pub(super) fn start_invalidate(&mut self, key: u32) -> Result<(Start, u32), Refused> {
        self.start_free(wc_opcode::LOCAL_INV, key, 0, false)
    }

    /// Writes that the key is free. Its lowest byte then changes to that of `new_key`.
    fn start_free(
        &mut self,
        opcode: u32,
        key: u32,
        new_key: u32,
        is_type_1: bool,
    ) -> Result<(Start, u32), Refused> {
        let (check, mask) = match is_type_1 {
            true => (0, CHANGED),
            false => (CHECK_QPN, CHANGED | WQE_UMR_CTRL_MKEY_MASK_QPN),
        };
        let control = WqeUmrCtrlSeg {
            flags: INLINE | OFFSET | check,
            mkey_mask: mask.into(),
            ..WqeUmrCtrlSeg::new_zeroed()
        };
        let context = WqeMkeyContextSeg {
            free: IS_FREE,
            qpn_mkey: (ANY << 8 | new_key & 0xff).into(),
            ..WqeMkeyContextSeg::new_zeroed()
        };
        self.put_change(opcode, key, &control, &context, &[])
    }

    fn put_change(
        &mut self,
        opcode: u32,
        key: u32,
        control: &WqeUmrCtrlSeg,
        context: &WqeMkeyContextSeg,
        list: &[u8],
    ) -> Result<(Start, u32), Refused> {
        // A queue pair that was created for other operations only has smaller requests.
        let bytes =
            size_of::<WqeCtrlSeg>() + control.as_bytes().len() + context.as_bytes().len() + list.len();
        if bytes > self.most_units as usize * UNIT {
            return Err(Refused::TooLarge);
        }
        let mut at = (unit(self.head) + 1).wrapping_mul(UNIT);
        let mut units = 1;
        for part in [control.as_bytes(), context.as_bytes(), list] {
            self.units.put_bytes(at, part);
            (at, units) = (at.wrapping_add(part.len()), units + part.len() / UNIT);
        }
        self.note(opcode);
        self.change |= IS_CHANGE;
        Ok((Start { opcode: OPCODE_UMR, units: units as u8, left_out: 0 }, key.to_be()))
    }
}
