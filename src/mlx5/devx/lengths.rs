//! The least lengths of commands and answers.
//!
//! Both have at least 16 bytes. A command also has the fields that the kernel's driver uses for its opcode (devx_get_obj_id,
//! devx_set_umem_valid, devx_obj_build_destroy_cmd and devx_get_created_obj_id, devx.c, Linux 6.1). The numbers here are the ends of the
//! last 32-bit words among them.

use nix::errno::Errno;
use uverbs_abi::mlx5::prm::CmdOut;

use crate::kernel::error::{Error, Result, limit};

/// The least length of a command and of an answer in bytes.
const LEAST: usize = size_of::<CmdOut>();

/// Opcodes of commands that need to be longer, and the length of command and answer in bytes. The names are those of mlx5_ifc.h.
const LONGER: &[(u16, usize, usize)] = &[
    (0x400, 96, LEAST),  // CREATE_CQ: cq_umem_valid
    (0x403, 96, LEAST),  // MODIFY_CQ: cq_umem_valid
    (0x500, 272, LEAST), // CREATE_QP: wq_umem_valid
    (0x600, LEAST, 20),  // CREATE_PSV: psv0_index
    (0x705, 96, LEAST),  // CREATE_XRC_SRQ: xrc_srq_umem_valid
    (0x717, 184, LEAST), // CREATE_XRQ: wq.wq_umem_valid
    (0x773, 32, LEAST),  // QUERY_Q_COUNTER: counter_set_id
    (0x782, LEAST, 20),  // CREATE_SCHEDULING_ELEMENT: scheduling_element_id
    (0x806, 32, LEAST),  // ATTACH_TO_MCG: multicast_gid
    (0x829, 24, LEAST),  // SET_L2_TABLE_ENTRY: table_index
    (0x82a, 24, LEAST),  // QUERY_L2_TABLE_ENTRY: table_index
    (0x904, 120, LEAST), // CREATE_SQ: wq.wq_umem_valid
    (0x908, 120, LEAST), // CREATE_RQ: wq.wq_umem_valid
    (0x90c, 120, LEAST), // CREATE_RMP: wq.wq_umem_valid
    (0x930, 20, LEAST),  // CREATE_FLOW_TABLE: table_type
    (0x932, 24, LEAST),  // QUERY_FLOW_TABLE: table_id
    (0x933, 24, LEAST),  // CREATE_FLOW_GROUP: table_id
    (0x935, 28, LEAST),  // QUERY_FLOW_GROUP: group_id
    (0x936, 36, LEAST),  // SET_FLOW_TABLE_ENTRY: flow_index
    (0x937, 36, LEAST),  // QUERY_FLOW_TABLE_ENTRY: flow_index
    (0x93b, 32, LEAST),  // QUERY_FLOW_COUNTER: flow_counter_id
    (0x93c, 24, LEAST),  // MODIFY_FLOW_TABLE: table_id
];

/// Refuses a command and the place for its answer if one is too short.
pub(super) fn check(op: &'static str, request: &[u8], answer: usize) -> Result<()> {
    let opcode = request.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
    let (_, least_request, least_answer) =
        LONGER.iter().find(|row| row.0 == opcode).copied().unwrap_or((0, LEAST, LEAST));
    let allowed = |least| format!("at least {least} for the opcode {opcode:#x}");
    let hint = if request.len() < least_request {
        limit("bytes of the command", request.len(), allowed(least_request))
    } else if answer < least_answer {
        limit("bytes of the answer", answer, allowed(least_answer))
    } else {
        return Ok(());
    };
    Err(Error::refused(op, Errno::EINVAL, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u16, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(2)];
        bytes[..2].copy_from_slice(&opcode.to_be_bytes());
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn a_command_has_at_least_the_fields_of_its_opcode() {
        for (opcode, command, answer) in LONGER.iter().copied().chain([(0x100, LEAST, LEAST)]) {
            assert_eq!(check("test", &request(opcode, command), answer), Ok(()), "{opcode:#x}");
            for (command, answer) in [(command - 1, answer), (command, answer - 1), (0, answer), (command, 0)]
            {
                let error = check("test", &request(opcode, command), answer).unwrap_err();
                assert_eq!(error.errno(), Some(Errno::EINVAL as i32), "{opcode:#x} {command} {answer}");
            }
        }
        let error = check("test", &request(0x400, 16), 16).unwrap_err();
        assert_eq!(
            error.to_string(),
            "test: invalid input (EINVAL): bytes of the command: 16 given, at least 96 for the opcode 0x400 allowed"
        );
    }

    #[test]
    fn each_opcode_has_one_row() {
        assert!(LONGER.is_sorted_by(|a, b| a.0 < b.0));
    }
}
