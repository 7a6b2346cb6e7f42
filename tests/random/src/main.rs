//! Plays random programs; see README.md.

#![allow(missing_docs, reason = "a program")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use uverbs::soft::Profile;
use uverbs_random::alone::{self, How, NATIVE, any_soft, turn};
use uverbs_random::compare::{Comparison, Difference, compare, never};
use uverbs_random::differences::kernel;
use uverbs_random::generate::{self, Lean};
use uverbs_random::kernel_log::KernelLog;
use uverbs_random::language::Program;
use uverbs_random::play::{Played, play, soft};
use uverbs_random::shrink::shrink;
use uverbs_random::world::Machine;
use uverbs_random::{card, child, threads};

/// How often a program is played while it is made shorter.
const TRIES: usize = 600;
/// How long that may take on a device.
const SHRINKING: Duration = Duration::from_secs(15);

#[derive(Parser)]
#[command(about = "Random programs of uverbs, on the soft device and on a device of the kernel's")]
enum Command {
    /// On the soft device alone: nothing may panic, be left behind, or end otherwise the second time
    Soft(Numbers),
    /// On a device, and on a soft device like it: each step must end the same
    Device {
        /// The name of the device
        name: String,
        #[command(flatten)]
        numbers: Numbers,
        /// Where to write what was found
        #[arg(long)]
        finds: Option<PathBuf>,
        /// Where to write which program runs, for whoever finds the machine dead: it is switched off when a program hangs
        #[arg(long)]
        at: Option<PathBuf>,
        /// End after so many seconds
        #[arg(long, default_value_t = 3600)]
        seconds: u64,
    },
    /// A program from a file
    Play {
        file: PathBuf,
        /// On this device too
        #[arg(long)]
        device: Option<String>,
        /// In how many processes or threads
        #[arg(long, value_enum, default_value_t = How::Alone)]
        how: How,
    },
    /// Writes programs as text
    Print {
        #[command(flatten)]
        numbers: Numbers,
        /// The one that the fuzz target `programs` makes of these bytes
        #[arg(long, conflicts_with_all = ["seed", "from", "count", "about", "faults"])]
        bytes: Option<PathBuf>,
    },
}

#[derive(clap::Args, Clone)]
struct Numbers {
    /// What the programs come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// What they are about
    #[arg(long, value_enum, default_value_t = About::Any)]
    about: About,
    /// In how many processes or threads
    #[arg(long, value_enum, default_value_t = How::Alone)]
    how: How,
    /// The firmware refuses commands now and then, and the device goes away in mid-program: no step is compared, and nothing may
    /// panic or be left behind
    #[arg(long)]
    faults: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum About {
    Any,
    Messages,
    Flows,
}

impl Numbers {
    fn lean(&self) -> Lean {
        match self.about {
            About::Any => Lean::Any,
            About::Messages => Lean::Messages,
            About::Flows => Lean::Flows,
        }
    }

    fn program(&self, number: u64) -> Program {
        let program = generate::program(self.seed, number, self.lean());
        if self.faults { generate::with_faults(program, self.seed, number) } else { program }
    }
}

/// The program that runs, and since when; a thread looks at it.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Ends the process when a program does not come to its end; in a guest the kernel may not let it, and so the guest ends.
fn watch(is_guest: bool) {
    std::thread::spawn(move || {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = NUMBER.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > Duration::from_secs(120) {
                eprintln!("program {} does not come to its end", now.saturating_sub(1));
                // Who waits for what is written to the console before.
                for request in ["w", "b"].iter().filter(|_| is_guest) {
                    let _ = fs::write("/proc/sysrq-trigger", request);
                    std::thread::sleep(Duration::from_secs(1));
                }
                std::process::exit(3);
            }
        }
    });
}

fn on_soft(numbers: &Numbers) -> ExitCode {
    watch(false);
    let how = numbers.how;
    let (mut steps, mut done, mut bad) = (0, 0, 0);
    for number in numbers.from..numbers.from + numbers.count {
        NUMBER.store(number + 1, Ordering::Relaxed);
        let program = numbers.program(number);
        steps += program.steps.len();
        if let Some((at, what)) = alone::wrong(&program, how) {
            bad += 1;
            let verb = program.steps.get(at).map(|step| step.verb.name);
            let short = shrink(&program, TRIES, |program| {
                alone::wrong(program, how)
                    .is_some_and(|(at, _)| program.steps.get(at).map(|step| step.verb.name) == verb)
            });
            let at = turn(&short);
            println!(
                "# seed {} number {number}: {what}; forks or has threads from step {}\n{short}",
                numbers.seed,
                at + 1
            );
        }
        done += 1;
    }
    println!("{done} programs, {steps} steps, seed {}: {bad} wrong", numbers.seed);
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A device, what the soft device beside it can do, and how long it may take.
struct Pair {
    machine: Machine,
    profile: Profile,
    log: KernelLog,
    /// Where to write what is played, and its number.
    at: Option<PathBuf>,
    number: u64,
}

impl Pair {
    fn open(name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let device = uverbs::devices()?.named(name)?.clone();
        let card = card::open().map(|card| &*Box::leak(Box::new(card)));
        let profile = profile_like(&device)?.with_sniffers(card.is_none()).with_hears_itself(card.is_some());
        let has_wire = card.is_some();
        let machine = Machine { device, soft: None, card, lacks_messages: false, has_wire };
        Ok(Self { machine, profile, log: KernelLog::from_here(), at: None, number: 0 })
    }

    /// Plays a program on both: alone on the soft device, and as it is said on the other.
    fn play(&mut self, program: &Program, how: How, patience: Duration) -> (Played, Played, Comparison) {
        let (driver, at) = (self.machine.device.driver().to_owned(), turn(program));
        let has_wire = self.machine.has_wire;
        let lacks_messages = driver == "mlx5";
        let beside = Machine { lacks_messages, has_wire, ..soft(self.profile.clone()) };
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
            compare(program, &first, &second, &driver)
        };
        (first, second, comparison)
    }

    /// Plays a program on both; a difference that is not there each time, and when there is more of it, is none: of what a device may
    /// do, by who comes first, the soft device does one thing.
    fn judge(&mut self, program: &Program, how: How) -> (Played, Played, Comparison) {
        let mut played = self.play(program, how, Duration::from_micros(2400));
        for _ in 0..3 {
            if !matches!(played.2, Comparison::Different(_)) {
                break;
            }
            played = self.play(program, how, Duration::from_millis(200));
        }
        played
    }

    /// The shortest program that ends in such a difference.
    fn shortest(&mut self, program: &Program, how: How, difference: &Difference) -> Program {
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
    let profile = profile.with_gids(port.gid_tbl_len).with_port_mtu(128 << port.active_mtu);
    Ok(if device.driver() == "rxe" { profile.with_rxe(Some(kernel())) } else { profile })
}

/// What the kernel said, in short, as lines that are no steps.
fn commented(text: &str) -> String {
    text.lines().take(40).map(|line| format!("# {line:.160}\n")).collect()
}

/// A program with the ends of its steps, as `play` takes it too.
fn side_by_side(program: &Program, soft: &Played, device: &Played) -> String {
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

fn on_device(
    name: &str,
    numbers: &Numbers,
    finds: Option<PathBuf>,
    at: Option<PathBuf>,
    seconds: u64,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    watch(at.is_some());
    let mut pair = Pair::open(name)?;
    pair.at = at;
    let (start, mut steps, mut found, mut done) = (Instant::now(), 0, 0, 0);
    let mut listed: BTreeMap<_, u64> = BTreeMap::new();
    let mut known: Vec<uverbs_random::compare::Difference> = Vec::new();
    let mut seen_again = 0;
    let tell = |text: &str| -> std::io::Result<()> {
        print!("{text}");
        std::io::stdout().flush()?;
        if let Some(path) = &finds {
            fs::OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())?;
        }
        Ok(())
    };
    for number in numbers.from..numbers.from + numbers.count {
        if start.elapsed().as_secs() > seconds {
            break;
        }
        NUMBER.store(number + 1, Ordering::Relaxed);
        pair.number = number;
        let program = numbers.program(number);
        let (_, device, comparison) = pair.judge(&program, numbers.how);
        steps += program.steps.len();
        done += 1;
        if let Some(text) = pair.log.complaint() {
            found += 1;
            let text = commented(&text);
            tell(&format!(
                "\n## seed {} number {number}: the kernel complains\n{text}{program}",
                numbers.seed
            ))?;
        }
        if let Some((at, what)) = never(&program, &device) {
            found += 1;
            tell(&format!("\n## seed {} number {number}: step {}: {what}\n{program}", numbers.seed, at + 1))?;
        }
        match comparison {
            Comparison::Same => {}
            Comparison::Listed(row) => *listed.entry((row.step, row.why)).or_insert(0) += 1,
            Comparison::Different(difference) if known.iter().any(|other| other.is_like(&difference)) => {
                seen_again += 1
            }
            Comparison::Different(difference) => {
                found += 1;
                let short = pair.shortest(&program, numbers.how, &difference);
                let (soft, device, _) = pair.judge(&short, numbers.how);
                tell(&format!(
                    "\n## seed {} number {number}: {difference}\n{}",
                    numbers.seed,
                    side_by_side(&short, &soft, &device)
                ))?;
                known.push(difference);
                // What the tries made the kernel say belongs to none of the programs that follow.
                if let Some(text) = pair.log.complaint() {
                    tell(&format!(
                        "\n## seed {} number {number}: the kernel complains while it is made shorter\n{}{program}",
                        numbers.seed,
                        commented(&text)
                    ))?;
                }
            }
        }
    }
    tell(&format!(
        "{done} programs, {steps} steps, seed {}, in {:.0} s: {found} differences, seen again {seen_again} times; {} ended at one that is listed\n",
        numbers.seed,
        start.elapsed().as_secs_f64(),
        listed.values().sum::<u64>(),
    ))?;
    for ((step, why), count) in &listed {
        tell(&format!("{count:6} {step}: {why}\n"))?;
    }
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn from_file(file: &PathBuf, device: Option<&str>, how: How) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let text = fs::read_to_string(file)?;
    let text: String =
        text.lines().map(|line| line.split('#').next().unwrap_or_default().to_owned() + "\n").collect();
    let program: Program = text.parse()?;
    if let Some(name) = device {
        let mut pair = Pair::open(name)?;
        let (soft, device, comparison) = pair.judge(&program, how);
        print!("{}", side_by_side(&program, &soft, &device));
        println!("{comparison:?}");
        let (complaint, wrong) = (pair.log.complaint(), never(&program, &device));
        if let Some(text) = &complaint {
            println!("the kernel complains\n{text}");
        }
        let is_fine =
            complaint.is_none() && wrong.is_none() && !matches!(comparison, Comparison::Different(_));
        return Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let played = play(&any_soft(), &program, None, NATIVE);
    print!("{}", side_by_side(&program, &played, &played));
    Ok(if never(&program, &played).is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::Soft(numbers) => Ok(on_soft(&numbers)),
        Command::Device { name, numbers, finds, at, seconds } => {
            on_device(&name, &numbers, finds, at, seconds)
        }
        Command::Play { file, device, how } => from_file(&file, device.as_deref(), how),
        Command::Print { bytes: Some(file), .. } => fs::read(file).map_or_else(
            |error| Err(error.into()),
            |bytes| {
                print!("{}", generate::from_bytes(&bytes, Lean::Any));
                Ok(ExitCode::SUCCESS)
            },
        ),
        Command::Print { numbers, bytes: None } => {
            for number in numbers.from..numbers.from + numbers.count {
                println!("program {number}\n{}", numbers.program(number));
            }
            Ok(ExitCode::SUCCESS)
        }
    };
    ended.unwrap_or_else(|error| {
        eprintln!("uverbs-random: {error}");
        ExitCode::from(2)
    })
}
