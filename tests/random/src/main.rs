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
use uverbs_random::alone::{self, How, NATIVE, device_of, turn};
use uverbs_random::beside::{Beside, TRIES, side_by_side};
use uverbs_random::compare::{Comparison, never};
use uverbs_random::generate::{self, Lean};
use uverbs_random::language::Program;
use uverbs_random::play::play;
use uverbs_random::shrink::shrink;

#[derive(Parser)]
#[command(about = "Random programs of uverbs, on the soft device and on a device of the kernel's")]
enum Command {
    /// On the soft device alone: nothing may panic, be left behind, or have another result the second time
    Soft(Numbers),
    /// On a device, and on a soft device with the same features: each step must have the same result
    Device {
        /// The name of the device
        name: String,
        #[command(flatten)]
        numbers: Numbers,
        /// The file for the differences that are found
        #[arg(long)]
        finds: Option<PathBuf>,
        /// The file for the number of the running program, in case the machine dies: it is switched off if a program hangs
        #[arg(long)]
        at: Option<PathBuf>,
        /// End after this number of seconds
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
        /// The program of the fuzz target `programs` for these bytes
        #[arg(long, conflicts_with_all = ["seed", "from", "count", "about", "faults"])]
        bytes: Option<PathBuf>,
    },
}

#[derive(clap::Args, Clone)]
struct Numbers {
    /// The seed of the programs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first program
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of programs
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// What the programs are about
    #[arg(long, value_enum, default_value_t = About::Any)]
    about: About,
    /// The processes or threads in which they run
    #[arg(long, value_enum, default_value_t = How::Alone)]
    how: How,
    /// The firmware sometimes refuses commands, and the device is removed during programs: no step is compared, and nothing may panic or
    /// be left behind
    #[arg(long)]
    faults: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum About {
    Any,
    Messages,
    Flows,
    Connections,
}

impl Numbers {
    fn lean(&self) -> Lean {
        match self.about {
            About::Any => Lean::Any,
            About::Messages => Lean::Messages,
            About::Flows => Lean::Flows,
            About::Connections => Lean::Connections,
        }
    }

    fn program(&self, number: u64) -> Program {
        let program = generate::program(self.seed, number, self.lean());
        if self.faults { generate::with_faults(program, self.seed, number) } else { program }
    }
}

/// The number of the running program, which a thread watches.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Ends the process if a program does not end. In a guest the kernel may prevent this, so the guest is ended.
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
                // The waiting tasks are written to the console before.
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

/// A summary of the kernel's messages, as comment lines.
fn commented(text: &str) -> String {
    text.lines().take(40).map(|line| format!("# {line:.160}\n")).collect()
}

fn on_device(
    name: &str,
    numbers: &Numbers,
    finds: Option<PathBuf>,
    at: Option<PathBuf>,
    seconds: u64,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    watch(at.is_some());
    let mut pair = Beside::open(name)?;
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
                // Messages that the repetitions caused do not belong to the following programs.
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
    let whole = fs::read_to_string(file)?;
    let text: String =
        whole.lines().map(|line| line.split('#').next().unwrap_or_default().to_owned() + "\n").collect();
    let program: Program = text.parse()?;
    if let Some(name) = device {
        let mut pair = Beside::open(name)?;
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
    let played = play(&device_of(&whole), &program, None, NATIVE);
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
