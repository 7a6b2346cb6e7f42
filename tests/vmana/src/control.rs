//! What the control line answers.

use crate::command::{Fault, code_of, name};
use crate::device::Device;
use crate::rdma::Kind;

const HELP: &[&str] = &[
    "fail COMMAND STATUS [TIMES [AFTER]]: the next TIMES commands of a name or code fail, after AFTER that do not",
    "heal: no command fails any more",
    "limit NAME=VALUE: sets a limit",
    "limits: the limits",
    "commands: how many commands of each code there were",
    "trace [clear]: the last commands",
    "objects: the number of objects of each kind, and the queue pairs",
    "statistics: frames and interrupts",
    "complaints [clear]: actions that no device would accept",
];

fn small<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    let number = vpci::control::number(word).ok_or_else(|| format!("{word} is no number"))?;
    T::try_from(number).map_err(|_| format!("{word} is too large"))
}

fn optional<T: TryFrom<u64>>(words: &[&str], at: usize, default: T) -> Result<T, String> {
    words.get(at).map_or(Ok(default), |word| small(word))
}

/// Executes one request.
///
/// # Errors
/// The reason of a refusal.
pub(crate) fn answer(device: &mut Device, words: &[&str]) -> Result<Vec<String>, String> {
    let pairs =
        |pairs: Vec<(&str, u64)>| pairs.iter().map(|(name, value)| format!("{name} {value}")).collect();
    match words {
        ["help"] => return Ok(HELP.iter().map(ToString::to_string).collect()),
        ["fail", command, status, rest @ ..] if rest.len() <= 2 => {
            let fault =
                Fault { status: small(status)?, times: optional(rest, 0, 1)?, after: optional(rest, 1, 0)? };
            if fault.status == 0 || fault.times == 0 {
                return Err("a status other than 0 and a number of times are wanted".to_owned());
            }
            device.faults.fail(code_of(command).ok_or_else(|| format!("{command} is no command"))?, fault);
        }
        ["heal"] => device.faults.clear(),
        ["limit", setting] => device.limits.set_by_text(setting)?,
        ["limits"] => return Ok(pairs(device.limits.list())),
        ["commands"] => {
            let line = |(code, count)| format!("{code:x} {} {count}", name(code));
            return Ok(device.trace.counts().map(line).collect());
        }
        ["trace"] => return Ok(device.trace.lines().collect()),
        ["trace", "clear"] => device.trace.clear(),
        ["objects"] => return Ok(objects(device)),
        ["statistics"] => {
            let counts = &device.net.counts;
            return Ok(pairs(vec![
                ("tx_frames", counts.tx_frames),
                ("rx_frames", counts.rx_frames),
                ("interrupts", device.interrupts_raised),
            ]));
        }
        ["complaints"] => return Ok(device.complaints.iter().cloned().collect()),
        ["complaints", "clear"] => device.complaints.clear(),
        _ => return Err(format!("`{}` is not understood; `help` lists what is", words.join(" "))),
    }
    Ok(Vec::new())
}

/// The number of objects of each kind, followed by a line for each queue pair.
fn objects(device: &Device) -> Vec<String> {
    let counts = [
        ("eq", device.eqs.len()),
        ("cq", device.cqs.len()),
        ("doorbell", device.doorbells.len()),
        ("list", device.lists.len()),
        ("pd", device.pds.len()),
        ("mr", device.regions.len()),
        ("net", device.wqs.len()),
        ("qp", device.rdma.qps().count()),
    ];
    let mut lines: Vec<_> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    lines.extend(device.rdma.qps().map(|qp| {
        let kind = if qp.kind == Kind::Connected { "RC" } else { "UD" };
        format!(" qp {:#x}: {kind} state={} pd={} armed={:x?}", qp.numbers.receive, qp.state, qp.pd, qp.armed)
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn everything_that_help_lists_is_understood_and_nonsense_is_refused() {
        let mut device = Device::new(Limits::default(), [2; 6]);
        let mut ask = |line: &str| answer(&mut device, &line.split_whitespace().collect::<Vec<_>>());
        for line in [
            "help",
            "fail CREATE_CQ 1",
            "fail 0x1d 5 2 1",
            "heal",
            "limit max_qp=12",
            "limits",
            "commands",
            "trace",
            "trace clear",
            "objects",
            "statistics",
            "complaints",
            "complaints clear",
        ] {
            assert!(ask(line).is_ok(), "{line}");
        }
        for line in ["bogus", "fail", "fail NOTHING 1", "fail 1 0", "fail 1 1 0", "limit max_qp", "trace all"]
        {
            assert!(ask(line).is_err(), "{line}");
        }
    }
}
