//! A program on a device of the kernel's, beside a soft device like it.

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

/// How often a program is played while it is made shorter.
pub const TRIES: usize = 600;
/// How long that may take on a device.
const SHRINKING: Duration = Duration::from_secs(15);

/// A device, what the soft device beside it can do, and how long it may take.
pub struct Beside {
    pub machine: Machine,
    /// A card whose port is of Ethernet has no address by which connections could be made.
    lacks_messages: bool,
    /// Where it may differ.
    rows: &'static [&'static [Row]],
    pub profile: Profile,
    pub log: KernelLog,
    /// How long the device may take when it is looked at again.
    patience: Duration,
    /// Where to write what is played, and its number.
    pub at: Option<PathBuf>,
    pub number: u64,
}

impl Beside {
    pub fn open(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let device = uverbs::devices()?.named(name)?.clone();
        let card = card::open().map(|card| &*Box::leak(Box::new(card)));
        let profile = profile_like(&device)?.with_sniffers(card.is_none()).with_hears_itself(card.is_some());
        let has_wire = card.is_some();
        // Kernels that look for mistakes are slow.
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

    /// Plays a program on both: alone on the soft device, and as it is said on the other.
    fn play(&mut self, program: &Program, how: How, patience: Duration) -> (Played, Played, Comparison) {
        let at = turn(program);
        let Machine { has_wire, tells_as_mlx5, .. } = self.machine;
        let lacks_messages = self.lacks_messages;
        let beside = Machine { lacks_messages, has_wire, tells_as_mlx5, ..soft(self.profile.clone()) };
        let first = play(&beside, program, None, patience);
        if let Some(path) = &self.at {
            // If it cannot be written, nobody will look for it.
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
            // What a fault hits differs, and in which order threads did their steps nobody knows.
            Comparison::Same
        } else {
            compare(program, &first, &second, self.rows)
        };
        (first, second, comparison)
    }

    /// Plays a program on both; a difference that is not there each time, and when there is more of it, is none: of what a device may
    /// do, by who comes first, the soft device does one thing.
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

    /// The shortest program that ends in such a difference.
    pub fn shortest(&mut self, program: &Program, how: How, difference: &Difference) -> Program {
        let start = Instant::now();
        let mut still = |program: &Program| {
            start.elapsed() < SHRINKING
                && matches!(self.judge(program, how).2, Comparison::Different(other) if other.is_like(difference))
        };
        // What comes behind the step matters to the end of a program only.
        let mut head = program.clone();
        head.steps.truncate(difference.at + 1);
        let program = if still(&head) { &head } else { program };
        shrink(program, TRIES, still)
    }
}

/// The local identifier of its port, if it is one of InfiniBand.
fn infiniband(device: &uverbs::Device) -> uverbs::Result<Option<u16>> {
    let port = device.open()?.query_port(1)?.legacy_resp;
    Ok(Some(port.lid).filter(|_| port.link_layer == uverbs::abi::types::link_layer::INFINIBAND))
}

/// What a device says that it has, as far as the soft device can be told.
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

/// A program with the ends of its steps, as `play` takes it too.
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
