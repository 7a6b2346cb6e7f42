//! The control line, by which tests change and read the state of the device. See README.md.

mod show;

use vpci::control::number;

use crate::admin::{COMMANDS, Fault};
use crate::device::Device;
use crate::event::GROUPS;

const HELP: &[&str] = &[
    "fail COMMAND STATUS [TIMES [AFTER]]   the next commands fail, or those after so many",
    "heal                             nothing fails any more",
    "limit NAME=VALUE                 sets a limit, for drivers that come",
    "limits                           all limits",
    "hold NUMBER                      so many packets are held back at most, for others to overtake them; 0 for none",
    "seed NUMBER                      what chance is made of",
    "event GROUP [SYNDROME]           an asynchronous event: fatal, warning, notification or keep-alive",
    "commands                         how many commands there were, by opcode",
    "trace [clear]                    the last commands in full",
    "counters                         event counters",
    "objects                          how many objects there are, and each of them",
    "statistics                       what has happened",
    "complaints [clear]               what the guest did that no device would take",
    "host                             what the driver has said of itself",
];

fn small<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    number(word)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{word} is no number of use here"))
}

/// A command by its name or its opcode.
fn opcode(word: &str) -> Result<u8, String> {
    let named = COMMANDS.iter().find(|(_, name)| name.eq_ignore_ascii_case(word));
    named.map_or_else(|| small(word), |(opcode, _)| Ok(*opcode))
}

fn optional<T: TryFrom<u64>>(words: &[&str], at: usize, default: T) -> Result<T, String> {
    words.get(at).map_or(Ok(default), |word| small(word))
}

/// Executes one request.
///
/// # Errors
/// The reason of a refusal.
pub(crate) fn answer(device: &mut Device, words: &[&str]) -> Result<Vec<String>, String> {
    match words {
        ["help"] => return Ok(HELP.iter().map(ToString::to_string).collect()),
        ["fail", command, status, rest @ ..] if rest.len() <= 2 => {
            let fault =
                Fault { status: small(status)?, times: optional(rest, 0, 1)?, after: optional(rest, 1, 0)? };
            if fault.status == 0 || fault.times == 0 {
                return Err("a status other than 0 and a number of times are wanted".to_owned());
            }
            device.faults.fail(opcode(command)?, fault);
        }
        ["heal"] => device.faults.clear(),
        ["limit", setting] => device.limits.set_by_text(setting)?,
        ["limits"] => {
            return Ok(device
                .limits
                .list()
                .into_iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect());
        }
        ["hold", packets] => device.fabric.hold = small::<u16>(packets)?.into(),
        ["seed", seed] => device.fabric.seed(small(seed)?),
        ["event", group, rest @ ..] if rest.len() <= 1 => {
            let known = GROUPS
                .iter()
                .find(|(name, _)| name == group)
                .ok_or_else(|| format!("{group} is no group"))?;
            if !device.asynchronous_event(known.1, optional(rest, 0, 0)?) {
                return Err("the driver does not want it, or has no room for it".to_owned());
            }
        }
        ["commands"] => return Ok(show::commands(device)),
        ["trace"] => return Ok(device.trace.lines().collect()),
        ["trace", "clear"] => device.trace.clear(),
        ["counters"] => return Ok(show::counters(device)),
        ["objects"] => return Ok(show::objects(device)),
        ["statistics"] => {
            return Ok(device
                .statistics
                .list()
                .into_iter()
                .map(|(name, value)| format!("{name} {value}"))
                .collect());
        }
        ["complaints"] => return Ok(device.complaints.iter().cloned().collect()),
        ["complaints", "clear"] => device.complaints.clear(),
        ["host"] => return Ok(show::host(device)),
        _ => return Err(format!("`{}` is not understood; `help` lists what is", words.join(" "))),
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::Guest;

    fn ask(device: &mut Device, line: &str) -> Result<Vec<String>, String> {
        answer(device, &line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn everything_that_help_lists_is_understood() {
        let mut guest = Guest::new();
        guest.qp(true);
        for line in [
            "help",
            "fail CREATE_QP 1",
            "fail 7 5 2 1",
            "heal",
            "limit max_qp=12",
            "limits",
            "hold 3",
            "seed 0x12",
            "commands",
            "trace",
            "trace clear",
            "counters",
            "objects",
            "statistics",
            "complaints",
            "complaints clear",
            "host",
        ] {
            assert!(ask(&mut guest.device, line).is_ok(), "{line}");
        }
        assert!(ask(&mut guest.device, "objects").unwrap().contains(&"qp 1".to_owned()));
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let mut guest = Guest::new();
        for line in [
            "bogus",
            "fail",
            "fail NOTHING 1",
            "fail 7 0",
            "fail 7 256",
            "fail 7 1 0",
            "fail 7 1 1 1 1",
            "limit max_qp",
            "hold many",
            "seed",
            "event nothing",
            "event keep-alive 65536",
            // The driver has not enabled it.
            "event keep-alive",
            "trace all",
        ] {
            assert!(ask(&mut guest.device, line).is_err(), "{line}");
        }
    }
}
