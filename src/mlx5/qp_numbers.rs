//! Numbers that no queue pair gets.

use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::mlx5::prm::{
    CAP_2_LOG_RESERVED_QPNS, CAP_GENERAL_OBJ_TYPES, CAP_HAS_2, CAP_HAS_GENERAL_2,
    CMD_OP_CREATE_GENERAL_OBJECT, HCA_CAP_GENERAL, HCA_CAP_GENERAL_2, OBJ_TYPE_RESERVED_QPN,
};

use super::devx::{FirmwareObject, command};
use crate::device::context::Context;
use crate::kernel::error::{Error, ErrorKind, Result};

/// Reserves numbers that the device gives to none of its queue pairs: for connections whose messages name another queue than they use, such
/// as dynamically connected ones.
///
/// Cheap to clone. The device reserves numbers in blocks, and a number is not given twice as long as its block exists: a block ends when all
/// of its numbers were given and dropped.
#[derive(Clone, Debug)]
pub struct QpNumbers(Arc<Source>);

#[derive(Debug)]
struct Source {
    context: Context,
    /// Numbers of a block, as a power of two.
    log_block: u8,
    /// The block from which the next number is taken.
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    block: Arc<Block>,
    given: u32,
}

#[derive(Debug)]
struct Block {
    first: u32,
    _object: FirmwareObject,
}

/// A reserved number of a queue pair, until it is dropped.
#[derive(Debug)]
#[doc(alias = "mlx5dv_reserved_qpn_dealloc")]
pub struct QpNumber {
    number: u32,
    _block: Arc<Block>,
}

impl QpNumbers {
    /// Asks the device how it reserves numbers; reserves none yet.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device that reserves no numbers, and one of another driver.
    ///
    /// # Kernel
    /// `QUERY_HCA_CAP` by `MLX5_IB_METHOD_DEVX_OTHER` (devx.c, Linux 6.1).
    pub fn new(context: &Context) -> Result<Self> {
        let op = "qp_numbers.new";
        let lacks = || context.driver().lacking(op, "reserves no numbers of queue pairs");
        // A device without commands has no such numbers either.
        let general = command::capabilities(context, op, HCA_CAP_GENERAL)
            .map_err(|error| if error.kind() == ErrorKind::Unsupported { lacks() } else { error })?;
        let types = general.get(CAP_GENERAL_OBJ_TYPES..).and_then(|bytes| bytes.first_chunk());
        let types = types.map_or(0, |bytes| u64::from_be_bytes(*bytes));
        if types >> OBJ_TYPE_RESERVED_QPN & 1 == 0 {
            return Err(lacks());
        }
        let has_second = general.get(CAP_HAS_GENERAL_2).is_some_and(|byte| byte & CAP_HAS_2 != 0);
        let log_block = match has_second {
            true => command::capabilities(context, op, HCA_CAP_GENERAL_2)?
                .get(CAP_2_LOG_RESERVED_QPNS)
                .map_or(0, |byte| byte & 0x1f),
            false => 0,
        };
        // A number of a queue pair has 24 bits.
        if log_block >= 24 {
            return Err(Error::malformed(op, "the size of a block of reserved numbers"));
        }
        Ok(Self(Arc::new(Source { context: context.clone(), log_block, open: Mutex::new(None) })))
    }

    /// Reserves a number.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) on a context without DEVX; [`Exhausted`](crate::ErrorKind::Exhausted) if the
    /// device has no more; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    ///
    /// # Kernel
    /// `CREATE_GENERAL_OBJECT` by `MLX5_IB_METHOD_DEVX_OBJ_CREATE` (devx.c, Linux 6.1), for the first number of a block.
    #[doc(alias = "mlx5dv_reserved_qpn_alloc")]
    pub fn reserve(&self) -> Result<QpNumber> {
        let Source { context, log_block, open } = &*self.0;
        context.check_origin("qp_numbers.reserve")?;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        let from = match &mut *open {
            Some(from) => from,
            empty => empty.insert(Open { block: Arc::new(block(context, *log_block)?), given: 0 }),
        };
        let number = QpNumber { number: from.block.first + from.given, _block: from.block.clone() };
        from.given += 1;
        if from.given >> log_block != 0 {
            *open = None;
        }
        Ok(number)
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        &self.0.context
    }
}

impl QpNumber {
    /// The number, of 24 bits.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// Reserves a block (`create_reserved_qpn_in`, mlx5_ifc.h, rdma-core 65).
fn block(context: &Context, log_block: u8) -> Result<Block> {
    let (mut request, mut answer) = ([0; 32], [0; 16]);
    request[..2].copy_from_slice(&CMD_OP_CREATE_GENERAL_OBJECT.to_be_bytes());
    request[6..8].copy_from_slice(&OBJ_TYPE_RESERVED_QPN.to_be_bytes());
    // op_param.create.log_obj_range, five bits.
    request[12] = log_block;
    let object = FirmwareObject::create(context, &request, &mut answer)?;
    let [.., a, b, c, d, _, _, _, _] = answer;
    let first = u32::from_be_bytes([a, b, c, d]);
    if u64::from(first) + (1 << log_block) > 1 << 24 {
        return Err(Error::malformed("qp_numbers.reserve", "a reserved number that no queue pair can have"));
    }
    Ok(Block { first, _object: object })
}
