//! Commands through the ring, as a driver sends them: mailboxes, tokens, signatures, lengths, references.

mod counters;

use super::ring::{carry_out, xor};
use super::*;
use crate::bits::Field;
use crate::ifc::command::{
    alloc_flow_counter_in, alloc_flow_counter_out, create_cq_in, create_eq_in, create_mkey_in,
    create_uctx_out, destroy_uctx_in, query_flow_counter_in, query_flow_counter_out, traffic_counter,
};
use crate::ifc::context::{cqc, eqc, mkc};
use crate::object::Handle;
use vpci::Memory;

const RING: u64 = 0x10_000;
const INPUT: u64 = 0x20_000;
const OUTPUT: u64 = 0x30_000;

/// A driver and a device. It writes commands as the kernel does.
struct Driver {
    device: Device,
    token: u8,
}

impl Driver {
    fn new() -> Self {
        let mut device = Device::new(Capabilities::default());
        device.memory = Memory::zeroed(&[(RING, 0x10_000), (INPUT, 0x10_000), (OUTPUT, 0x10_000)]);
        device.commands.address = RING;
        Self { device, token: 0x5a }
    }

    /// Writes a chain of mailboxes of this many bytes, with a distance of 1024 between them.
    fn chain(&self, base: u64, bytes: &[u8]) {
        for (number, part) in bytes.chunks(512).enumerate() {
            let address = base + number as u64 * 1024;
            let mut block = [0; 576];
            block[..part.len()].copy_from_slice(part);
            block[560..568].copy_from_slice(&(address + 1024).to_be_bytes());
            block[568..572].copy_from_slice(&(number as u32).to_be_bytes());
            block[573] = self.token;
            self.device.memory.write(address, &block).unwrap();
        }
    }

    /// The entry of a command, complete except for its signature.
    fn entry(&self, input: &[u8], output: usize) -> [u8; 64] {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[8..16].copy_from_slice(&INPUT.to_be_bytes());
        let inline = input.len().min(16);
        entry[16..16 + inline].copy_from_slice(&input[..inline]);
        entry[48..56].copy_from_slice(&OUTPUT.to_be_bytes());
        entry[56..60].copy_from_slice(&(output as u32).to_be_bytes());
        entry[60] = self.token;
        entry[63] = 1;
        entry
    }

    /// Sends an entry. Returns how it was delivered, and the output.
    fn send(&mut self, mut entry: [u8; 64], output: usize) -> (u8, Vec<u8>) {
        entry[61] = !xor(&entry);
        self.device.memory.write(RING, &entry).unwrap();
        carry_out(&mut self.device, 0).unwrap();
        self.device.memory.read(RING, &mut entry).unwrap();
        assert_eq!(entry[63] & 1, 0, "the command is the driver's again");
        assert_eq!(xor(&entry), 0xff, "it is signed");
        let mut answer = entry[32..48].to_vec();
        answer.truncate(output);
        for number in 0..output.saturating_sub(16).div_ceil(512) {
            let mut block = [0; 576];
            self.device.memory.read(OUTPUT + number as u64 * 1024, &mut block).unwrap();
            if entry[63] == 0 {
                assert_eq!((xor(&block), xor(&block[512..575])), (0xff, 0xff), "the mailbox is signed");
            }
            answer.extend(&block[..(output - answer.len()).min(512)]);
        }
        (entry[63] >> 1, answer)
    }

    /// Executes a command and returns its output.
    fn run(&mut self, input: &[u8], output: usize) -> Vec<u8> {
        self.chain(INPUT, input.get(16..).unwrap_or_default());
        self.chain(OUTPUT, &vec![0xee; output.saturating_sub(16)]);
        let (delivery, answer) = self.send(self.entry(input, output), output);
        assert_eq!(delivery, 0);
        answer
    }

    /// Executes a command of the shortest kind on an object. Returns its status and number.
    fn short(&mut self, opcode: u32, number: u32) -> (u32, u32) {
        let mut input = [0; 16];
        input.set(alloc_pd_in::opcode, opcode);
        input.set(object::NUMBER, number);
        let output = self.run(&input, 16);
        (output.num(alloc_pd_out::status), output.num(object::NUMBER))
    }

    fn long(&mut self, input: &[u8]) -> (u32, u32) {
        let output = self.run(input, 16);
        (output.num(alloc_pd_out::status), output.num(object::NUMBER))
    }
}

fn input(opcode: u32, len: usize) -> Vec<u8> {
    let mut input = vec![0; len];
    input.set(alloc_pd_in::opcode, opcode);
    input
}

const OK: u32 = 0;
const ALLOC_PD: u32 = 0x800;
const DEALLOC_PD: u32 = 0x801;

#[test]
fn a_command_goes_through_mailboxes_both_ways() {
    let mut driver = Driver::new();
    // General capabilities, current: 4112 bytes of answer in nine mailboxes.
    let mut query = input(0x100, 16);
    query.set(alloc_pd_in::op_mod, 1_u32);
    let answer = driver.run(&query, 4112);
    let field = crate::ifc::capability::cmd_hca_cap::cqe_version;
    assert_eq!(answer[16..].num(field), 1);
    let mut set = input(0x109, 4112);
    set[16..].copy_from_slice(&answer[16..]);
    set[16..].set(field, 0_u32);
    assert_eq!(driver.long(&set).0, OK);
    assert_eq!(driver.run(&query, 4112)[16..].num(field), 0);
    // The maximum values do not change.
    query.set(alloc_pd_in::op_mod, 0_u32);
    assert_eq!(driver.run(&query, 4112)[16..].num(field), 1);
}

#[test]
fn what_is_wrong_with_an_entry_is_said() {
    let mut driver = Driver::new();
    let set = input(0x109, 1100);
    let whole = driver.entry(&set, 600);
    let with = |change: &dyn Fn(&mut [u8; 64])| {
        let mut entry = whole;
        change(&mut entry);
        entry
    };
    let mut try_entry = |entry: [u8; 64]| {
        driver.chain(INPUT, &set[16..]);
        driver.chain(OUTPUT, &[0; 584]);
        driver.send(entry, 600).0
    };
    assert_eq!(try_entry(whole), 0);
    assert_eq!(try_entry(with(&|entry| entry[0] = 6)), 0x10);
    assert_eq!(try_entry(with(&|entry| entry[60] ^= 1)), 0x2, "the token of a mailbox is another");
    assert_eq!(try_entry(with(&|entry| entry[8..16].fill(0xff))), 0x5);
    assert_eq!(try_entry(with(&|entry| entry[8..16].copy_from_slice(&0x9_0000_u64.to_be_bytes()))), 0x5);
    assert_eq!(try_entry(with(&|entry| entry[48..56].fill(0))), 0x4);
    assert_eq!(try_entry(with(&|entry| entry[4..8].fill(0xff))), 0x7);
    assert_eq!(try_entry(with(&|entry| entry[56..60].fill(0))), 0x8);
    // The second mailbox of a chain has to have number 1.
    let second = INPUT + 1024;
    assert_eq!(try_entry(with(&|entry| entry[8..16].copy_from_slice(&second.to_be_bytes()))), 0x3);
}

#[test]
fn a_signature_is_checked() {
    let mut driver = Driver::new();
    let mut entry = driver.entry(&input(ALLOC_PD, 16), 16);
    entry[61] = !xor(&entry) ^ 1;
    driver.device.memory.write(RING, &entry).unwrap();
    carry_out(&mut driver.device, 0).unwrap();
    driver.device.memory.read(RING, &mut entry).unwrap();
    assert_eq!(entry[63], 0x1 << 1);
}

#[test]
fn lengths_and_opcodes_are_checked() {
    let mut driver = Driver::new();
    assert_eq!(driver.short(0xfff, 0).0, Status::BadOpcode as u32);
    assert_eq!(driver.long(&input(0x400, 64)).0, Status::BadInputLength as u32);
    let output = driver.run(&input(0x10a, 16), 16);
    assert_eq!(output.num(alloc_pd_out::status), Status::BadOutputLength as u32);
    for command in COMMANDS {
        // Every command is refused if it is too short, and none panics on zeros.
        let short = input(command.opcode.into(), command.input - 1);
        assert_eq!(driver.long(&short).0, Status::BadInputLength as u32, "{}", command.name);
        driver.run(&input(command.opcode.into(), command.input), command.output);
    }
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let mut driver = Driver::new();
    let (_, pd) = driver.short(ALLOC_PD, 0);
    let mut mkey = input(0x200, 272);
    mkey.part_mut(create_mkey_in::memory_key_mkey_entry).set(mkc::pd, pd);
    let (status, key) = driver.long(&mkey);
    assert_eq!(status, OK);
    assert_eq!(driver.short(DEALLOC_PD, pd).0, Status::BadResourceState as u32);
    assert_eq!(driver.short(0x202, key).0, OK);
    assert_eq!(driver.short(0x202, key).0, Status::BadResource as u32);
    assert_eq!(driver.short(DEALLOC_PD, pd).0, OK);
    assert_eq!(driver.long(&mkey).0, Status::BadResource as u32);
}

#[test]
fn a_queue_of_completions_needs_its_events_and_its_doorbell_page() {
    let mut driver = Driver::new();
    let (_, uar) = driver.short(0x802, 0);
    let mut eq = input(0x301, 280);
    eq.part_mut(create_eq_in::eq_context_entry).set(eqc::uar_page, uar);
    let output = driver.run(&eq, 16);
    assert_eq!(output.num(alloc_pd_out::status), OK);
    let eqn = output.num(crate::ifc::command::create_eq_out::eq_number);
    let mut cq = input(0x400, 280);
    let context = cq.part_mut(create_cq_in::cq_context);
    context.set(cqc::uar_page, uar);
    context.set(cqc::c_eqn_or_apu_element, eqn);
    let (status, cqn) = driver.long(&cq);
    assert_eq!(status, OK);
    assert_eq!(driver.short(0x803, uar).0, Status::BadResourceState as u32);
    assert_eq!(driver.short(0x401, cqn).0, OK);
    // A list of pages that is too short for the size.
    cq.part_mut(create_cq_in::cq_context).set(cqc::log_cq_size, 8_u32);
    assert_eq!(driver.long(&cq).0, Status::BadInputLength as u32);
}

#[test]
fn counters_come_one_by_one_and_in_bulk() {
    let mut driver = Driver::new();
    let id = |output: &[u8]| output.num(crate::ifc::command::alloc_flow_counter_out::flow_counter_id);
    let one = id(&driver.run(&input(0x939, 16), 16));
    let mut alloc = input(0x939, 16);
    alloc.set(alloc_flow_counter_in::flow_counter_bulk, 1_u32);
    let bulk = id(&driver.run(&alloc, 16));
    assert_eq!(bulk % 128, 0);
    driver.device.counters.count(one, 60);
    driver.device.counters.count(bulk + 127, 100);
    let mut query = input(0x93b, 32);
    query.set(query_flow_counter_in::flow_counter_id, bulk);
    query.set(query_flow_counter_in::num_of_counters, 128_u32);
    let output = driver.run(&query, 16 + 128 * 16);
    let Field { offset, .. } = query_flow_counter_out::flow_statistics;
    let last = Field::new(offset + 127 * 128, 0);
    assert_eq!(output.num(traffic_counter::packets.within(last)), 1);
    assert_eq!(output.num(traffic_counter::octets.within(last)), 100);
    assert_eq!(driver.run(&query, 1024).num(alloc_pd_out::status), Status::BadOutputLength as u32);
    query.set(query_flow_counter_in::num_of_counters, 129_u32);
    assert_eq!(driver.run(&query, 4096).num(alloc_pd_out::status), Status::BadResource as u32);
    let mut dealloc = input(0x93a, 16);
    dealloc.set(crate::ifc::command::alloc_flow_counter_out::flow_counter_id, bulk);
    assert_eq!(driver.run(&dealloc, 16).num(alloc_pd_out::status), OK);
    assert_eq!(driver.device.counters.list().count(), 1);
}

#[test]
fn a_user_context_has_what_was_made_in_it_and_nothing_of_another() {
    let mut driver = Driver::new();
    let uctx = |driver: &mut Driver| driver.run(&input(0xa04, 64), 16).num(create_uctx_out::uid);
    let [one, two] = [(); 2].map(|()| uctx(&mut driver));
    let by = |uid: u32, opcode: u32, len: usize| {
        let mut input = input(opcode, len);
        input.set(alloc_pd_in::uid, uid);
        input
    };
    let mut alloc = by(one, 0x939, 16);
    alloc.set(alloc_flow_counter_in::flow_counter_bulk, 1_u32);
    let answer = driver.run(&alloc, 16);
    assert_eq!(answer.num(alloc_pd_out::status), OK);
    let first = answer.num(alloc_flow_counter_out::flow_counter_id);
    driver.device.counters.count(first, 60);

    let query = |driver: &mut Driver, uid, count: u32| {
        let mut query = by(uid, 0x93b, 32);
        query.set(query_flow_counter_in::flow_counter_id, first);
        query.set(query_flow_counter_in::num_of_counters, count);
        let answer = driver.run(&query, 16 + 256 * 16);
        (answer.num(alloc_pd_out::status), answer[16..].num(traffic_counter::packets))
    };
    assert_eq!(query(&mut driver, one, 128), (OK, 1));
    assert_eq!(query(&mut driver, 0, 128), (OK, 1), "the driver may read everything");
    let bad = Status::BadResource as u32;
    assert_eq!(query(&mut driver, two, 128), (bad, 0));
    assert_eq!(query(&mut driver, 77, 128), (bad, 0), "no such context");
    // A row that overlaps one of another context.
    let mut other = by(two, 0x939, 16);
    other.set(alloc_flow_counter_in::flow_counter_bulk, 1_u32);
    driver.run(&other, 16);
    assert_eq!(query(&mut driver, one, 129), (bad, 0));

    let mut dealloc = by(two, 0x93a, 16);
    dealloc.set(alloc_flow_counter_out::flow_counter_id, first);
    assert_eq!(driver.long(&dealloc).0, bad);
    let mut end = input(0xa06, 16);
    end.set(destroy_uctx_in::uid, one);
    assert_eq!(driver.long(&end).0, Status::BadResourceState as u32, "something is left in it");
    dealloc.set(alloc_pd_in::uid, one);
    assert_eq!(driver.long(&dealloc).0, OK);
    assert_eq!(driver.long(&end).0, OK);
    assert_eq!(driver.long(&end).0, bad);
}

#[test]
fn numbers_are_reserved_in_blocks_and_freed_with_them() {
    use crate::ifc::command::{general_obj_create_param, general_obj_in_cmd_hdr, general_obj_out_cmd_hdr};
    let mut driver = Driver::new();
    let mut create = input(0xa00, 32);
    create.set(general_obj_in_cmd_hdr::obj_type, 0x2c_u32);
    let bad = Status::BadParameter as u32;
    assert_eq!(driver.long(&create).0, bad, "the card says that it has none");
    driver.device.capabilities.set_by_text("cmd_hca_cap.general_obj_types=0x100000000000").unwrap();
    let log = general_obj_create_param::log_obj_range.within(general_obj_in_cmd_hdr::op_param);
    let mut make = |driver: &mut Driver, count: u32| {
        create.set(log, count);
        let answer = driver.run(&create, 16);
        (answer.num(alloc_pd_out::status), answer.num(general_obj_out_cmd_hdr::obj_id))
    };
    assert_eq!(make(&mut driver, 2).0, bad, "only single ones");
    driver.device.capabilities.set_by_text("cmd_hca_cap.hca_cap_2=1").unwrap();
    let [(OK, one), (OK, four)] = [0, 2].map(|log| make(&mut driver, log)) else { panic!("refused") };
    assert!(four % 4 == 0 && !(four..four + 4).contains(&one));
    assert_eq!(driver.device.objects.count(Kind::ReservedQpn), 5);
    assert_eq!(driver.device.objects.create(Kind::Qp, vec![]), Ok(one + 1), "a queue pair gets none of them");
    let mut destroy = input(0xa03, 16);
    destroy.set(general_obj_in_cmd_hdr::obj_type, 0x2c_u32);
    for (number, status) in [(four, OK), (one, OK), (one, Status::BadResource as u32)] {
        destroy.set(general_obj_in_cmd_hdr::obj_id, number);
        assert_eq!(driver.long(&destroy).0, status);
    }
    destroy.set(general_obj_in_cmd_hdr::obj_type, 0x2f_u32);
    assert_eq!((driver.long(&destroy).0, driver.device.objects.count(Kind::ReservedQpn)), (bad, 0));
}

#[test]
fn a_rate_is_set_and_freed_by_its_index_and_stays_while_a_queue_names_it() {
    use crate::ifc::command::{set_pp_rate_limit_context, set_pp_rate_limit_in};
    let mut driver = Driver::new();
    let set = |driver: &mut Driver, index: u32, rate: u32| {
        let mut set = input(0x780, 64);
        set.set(set_pp_rate_limit_in::rate_limit_index, index);
        set.set(set_pp_rate_limit_context::rate_limit.within(set_pp_rate_limit_in::ctx), rate);
        driver.long(&set).0
    };
    assert_eq!(set(&mut driver, 1, 5000), Status::BadOpcode as u32, "the card says that it has no table");
    driver.device.capabilities.set_by_text("cmd_hca_cap.qos=1").unwrap();
    for (index, rate, status) in [
        (0, 5000, Status::BadIndex as u32),
        (16, 5000, Status::BadIndex as u32),
        (1, 1, Status::BadParameter as u32),
        (1, u32::MAX, Status::BadParameter as u32),
        (1, 0, Status::BadResource as u32),
        (1, 5000, OK),
        (1, 6000, Status::BadResourceState as u32),
    ] {
        assert_eq!(set(&mut driver, index, rate), status, "{index} {rate}");
    }
    let sq = driver.device.objects.create(Kind::Sq, vec![Handle(Kind::Rate, 1)]).unwrap();
    assert_eq!(set(&mut driver, 1, 0), Status::BadResourceState as u32);
    driver.device.objects.destroy(Handle(Kind::Sq, sq.into())).unwrap();
    assert_eq!(set(&mut driver, 1, 0), OK);
}

#[test]
fn counters_are_cleared_by_the_read_that_says_so() {
    let mut driver = Driver::new();
    let mut alloc = input(0x939, 16);
    alloc.set(alloc_flow_counter_in::flow_counter_bulk, 2_u32);
    let first = driver.run(&alloc, 16).num(alloc_flow_counter_out::flow_counter_id);
    assert_eq!(first % 256, 0, "the first of a row is a multiple of its length");
    driver.device.counters.count(first + 3, 60);
    let mut query = input(0x93b, 32);
    query.set(query_flow_counter_in::flow_counter_id, first);
    query.set(query_flow_counter_in::num_of_counters, 4_u32);
    query.set(query_flow_counter_in::clear, 1_u32);
    let mut third = || driver.run(&query, 16 + 4 * 16)[16 + 3 * 16..].num(traffic_counter::packets);
    assert_eq!((third(), third()), (1, 0));
}

#[test]
fn commands_fail_as_often_as_asked() {
    let mut driver = Driver::new();
    driver.device.faults.fail(ALLOC_PD as u16, Fault { status: 8, syndrome: 0x77, times: 2, after: 1 });
    assert_eq!(driver.short(ALLOC_PD, 0).0, OK);
    let output = driver.run(&input(ALLOC_PD, 16), 16);
    assert_eq!((output.num(alloc_pd_out::status), output.num(alloc_pd_out::syndrome)), (8, 0x77));
    assert_eq!(driver.short(ALLOC_PD, 0).0, 8);
    assert_eq!(driver.short(ALLOC_PD, 0).0, OK);
    assert_eq!(driver.device.trace.counts().collect::<Vec<_>>(), [(ALLOC_PD as u16, 4)]);
    assert_eq!(driver.device.trace.lines().count(), 4);
}
