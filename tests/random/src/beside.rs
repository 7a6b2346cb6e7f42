//! Plays a program on a device of the kernel and on a soft device with the same features.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uverbs::soft::Profile;

use crate::alone::{How, turn};
use crate::compare::{Comparison, Difference, compare};
use crate::differences::{self, Row, kernel};
use crate::kernel_log::KernelLog;
use crate::language::Program;
use crate::play::{Played, play, soft};
use crate::shrink::shrink;
use crate::world::Machine;
use crate::{card, child, threads};

/// Maximum number of plays while a program is shortened.
pub const TRIES: usize = 600;
/// Maximum time for this on a device.
const SHRINKING: Duration = Duration::from_secs(15);

/// A device, the features of the soft device, and the time that the device gets.
pub struct Beside {
    pub machine: Machine,
    /// A card with an Ethernet port has no address for connections.
    lacks_messages: bool,
    /// The allowed differences.
    rows: &'static [&'static [Row]],
    pub profile: Profile,
    pub log: KernelLog,
    /// The time that the device gets when a program is repeated.
    patience: Duration,
    /// The file for the program in progress, and its number.
    pub at: Option<PathBuf>,
    pub number: u64,
}

impl Beside {
    pub fn open(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let device = uverbs::devices()?.named(name)?.clone();
        let card = card::open().map(|card| &*Box::leak(Box::new(card)));
        let profile = profile_like(&device)?.with_sniffers(card.is_none()).with_hears_itself(card.is_some());
        let has_wire = card.is_some();
        // Kernels with debugging checks are slow.
        let is_slow = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim_end().ends_with("-debug");
        let patience = Duration::from_millis(if is_slow { 600 } else { 200 });
        let (is_mlx5, lid) = (device.driver() == "mlx5", infiniband(&device)?);
        let rows = differences::of(device.driver(), lid.is_some());
        let machine = Machine {
            device,
            soft: None,
            card,
            lacks_messages: false,
            has_wire,
            lid: lid.unwrap_or(0),
            tells_as_mlx5: is_mlx5,
        };
        Ok(Self {
            lacks_messages: is_mlx5 && lid.is_none(),
            rows,
            machine,
            profile,
            log: KernelLog::from_here(),
            patience,
            at: None,
            number: 0,
        })
    }

    /// Plays a program on both: on the soft device alone, and on the device as `how` says.
    fn play(&mut self, program: &Program, how: How, patience: Duration) -> (Played, Played, Comparison) {
        let at = turn(program);
        let Machine { has_wire, tells_as_mlx5, .. } = self.machine;
        let lacks_messages = self.lacks_messages;
        let beside = Machine { lacks_messages, has_wire, tells_as_mlx5, ..soft(self.profile.clone()) };
        let first = play(&beside, program, None, patience);
        if let Some(path) = &self.at {
            // If it cannot be written, no test reads it.
            let _ = fs::write(path, format!("{}\n{program}", self.number));
        }
        let (second, of_child) = match how {
            How::Alone => (play(&self.machine, program, Some(&first), patience), None),
            How::Fork => {
                let forked = child::play(&self.machine, program, at, Some(&first), patience);
                let wrong = child::wrong(program, at, &forked);
                (forked.parent, wrong)
            }
            How::Threads => (threads::play(&self.machine, program, at, patience), None),
        };
        let faults = program.faults();
        if faults.refuses
            && let Some(card) = self.machine.card
        {
            card::heal(card);
        }
        if faults.unplugs {
            self.machine.restore();
        }
        let comparison = if let Some((at, device)) = of_child {
            let verb = program.steps.get(at).map_or("the end", |step| step.verb.name);
            Comparison::Different(Difference { at, verb, soft: "a refusal in a child".to_owned(), device })
        } else if faults.any() || how == How::Threads {
            // The effect of a fault differs, and the order of steps in threads is unknown.
            Comparison::Same
        } else {
            compare(program, &first, &second, self.rows)
        };
        (first, second, comparison)
    }

    /// Plays a program on both. A difference counts only if it occurs each time, also with more time: where a device may give one of
    /// several results, the soft device gives one of them.
    pub fn judge(&mut self, program: &Program, how: How) -> (Played, Played, Comparison) {
        let mut played = self.play(program, how, Duration::from_micros(2400));
        for _ in 0..3 {
            if !matches!(played.2, Comparison::Different(_)) {
                break;
            }
            played = self.play(program, how, self.patience);
        }
        played
    }

    /// The shortest program that ends with such a difference.
    pub fn shortest(&mut self, program: &Program, how: How, difference: &Difference) -> Program {
        let start = Instant::now();
        let mut still = |program: &Program| {
            start.elapsed() < SHRINKING
                && matches!(self.judge(program, how).2, Comparison::Different(other) if other.is_like(difference))
        };
        // The steps after it matter only for the end of a program.
        let mut head = program.clone();
        head.steps.truncate(difference.at + 1);
        let program = if still(&head) { &head } else { program };
        shrink(program, TRIES, still)
    }
}

/// The local identifier of its port, if it is an InfiniBand port.
fn infiniband(device: &uverbs::Device) -> uverbs::Result<Option<u16>> {
    let port = device.open()?.query_port(1)?.legacy_resp;
    Ok(Some(port.lid).filter(|_| port.link_layer == uverbs::abi::types::link_layer::INFINIBAND))
}

/// The features of a device, as far as the soft device can be configured with them.
fn profile_like(device: &uverbs::Device) -> uverbs::Result<Profile> {
    let context = device.open()?;
    let has = context.query_device()?;
    let has_counters = context.create_counters().is_ok();
    // IB_DEVICE_MEM_WINDOW, and those of type 2 A and B (ib_verbs.h).
    let windows = 1 << 17 | 1 << 23 | 1 << 24;
    let profile = Profile::default()
        .with_max_mw(if has.base.device_cap_flags & windows != 0 { Profile::default().max_mw } else { 0 })
        .with_counters(has_counters)
        .with_flows(context.has_flows()?)
        .with_max_cqe(has.base.max_cqe.max(1))
        .with_max_qp_wr(has.base.max_qp_wr.max(1))
        .with_max_sge(has.base.max_sge.max(1))
        .with_completion_vectors(context.completion_vectors())
        .with_cq_moderation(has.cq_moderation_caps.max_cq_moderation_count > 0)
        .with_disassociate(false);
    let port = context.query_port(1)?.legacy_resp;
    let is_infiniband = port.link_layer == uverbs::abi::types::link_layer::INFINIBAND;
    let profile = profile.with_gids(port.gid_tbl_len).with_port_mtu(128 << port.active_mtu);
    let profile = if is_infiniband { profile.with_gids(1).with_moves_regions(true) } else { profile };
    Ok(if device.driver() == "rxe" { profile.with_rxe(Some(kernel())) } else { profile })
}

/// A program with the results of its steps, in a form that `play` also accepts.
pub fn side_by_side(program: &Program, soft: &Played, device: &Played) -> String {
    let mut text = String::new();
    for (at, step) in program.steps.iter().enumerate() {
        let (one, two) = (&soft.outcomes[at], &device.outcomes[at]);
        let step = step.to_string();
        text +=
            &if one == two { format!("{step:50} # {one}\n") } else { format!("{step:50} # {one} | {two}\n") };
    }
    for (whose, played) in [("soft", soft), ("device", device)] {
        if let Some(left) = &played.left {
            text += &format!("# {whose} left behind: {left}\n");
        }
    }
    text
}
