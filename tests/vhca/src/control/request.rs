//! The requests of the control line.

use std::time::Duration;

use vpci::control::number;

use super::show;
use crate::command::{COMMANDS, Fault};
use crate::device::Device;
use crate::lies::Lie;
use crate::object::Kind;
use crate::wire::Mishap;

const HELP: &[&str] = &[
    "send HEX [TIMES]                 a packet comes from the wire",
    "pcap PATH [TIMES]                all packets of a capture file come from the wire",
    "sent [clear]                     packets that were sent",
    "loop on|off                      whether packets that are sent come back",
    "wire                             what has happened to packets between queue pairs on their way",
    "wire drop|repeat|swap NUMBER     the next so many are lost, come twice, come after the one behind them",
    "wire lose PERCENT [SEED]         so many are lost by chance",
    "lie count|status|length|event|data EVERY   the card is wrong about every so many",
    "port up|down                     the state of the port",
    "fail COMMAND STATUS [TIMES [SYNDROME [AFTER]]]   the next commands fail, or those after so many",
    "delay TIME [COMMAND]             commands take that long: milliseconds, or microseconds as in 50us",
    "limit counters NUMBER            no more counters than that",
    "cap NAME=VALUE                   sets a capability, for drivers that come",
    "heal                             nothing fails, is delayed or is lost any more",
    "commands                         how many commands there were, by opcode",
    "trace [clear]                    the last commands in full",
    "counters                         flow counters",
    "tables                           flow tables, groups and entries",
    "objects                          all objects",
    "statistics                       what became of packets",
];

fn small<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    number(word)
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{word} is no number of use here"))
}

/// A command by its name or its opcode in hexadecimal.
fn opcode(word: &str) -> Result<u16, String> {
    let named = COMMANDS.iter().find(|command| command.name.eq_ignore_ascii_case(word));
    named
        .map(|command| command.opcode)
        .or_else(|| u16::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .ok_or_else(|| format!("{word} is no command"))
}

fn bytes(word: &str) -> Result<Vec<u8>, String> {
    let digit = |c: u8| (c as char).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = word.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<_>> = pairs.iter().map(|[a, b]| Some(digit(*a)? << 4 | digit(*b)?)).collect();
    bytes
        .filter(|_| rest.is_empty())
        .ok_or_else(|| "an even number of hexadecimal digits is wanted".to_owned())
}

/// Milliseconds, or microseconds where it says so.
fn duration(word: &str) -> Result<Duration, String> {
    match word.strip_suffix("us") {
        Some(word) => Ok(Duration::from_micros(small::<u32>(word)?.into())),
        None => Ok(Duration::from_millis(small::<u32>(word)?.into())),
    }
}

fn times(words: &[&str]) -> Result<u32, String> {
    words.first().map_or(Ok(1), |word| small(word))
}

/// Executes one request.
///
/// # Errors
/// The reason of a refusal.
pub(crate) fn answer(device: &mut Device, words: &[&str]) -> Result<Vec<String>, String> {
    match words {
        ["help"] => return Ok(HELP.iter().map(ToString::to_string).collect()),
        ["send", packet, rest @ ..] if rest.len() <= 1 => {
            let packet = bytes(packet)?;
            let times = times(rest)?;
            device.burst(|device| (0..times).for_each(|_| device.receive(&packet)));
        }
        ["pcap", path, rest @ ..] if rest.len() <= 1 => {
            let file = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            let packets = crate::packet::pcap_packets(&file).map_err(|error| format!("{path}: {error}"))?;
            let times = times(rest)?;
            device.burst(|device| {
                (0..times).flat_map(|_| &packets).for_each(|packet| device.receive(packet));
            });
            return Ok(vec![format!("{} packets", packets.len())]);
        }
        ["sent"] => return Ok(show::sent(device)),
        ["sent", "clear"] => device.wire.sent.clear(),
        ["loop", state @ ("on" | "off")] => device.wire.is_loop = *state == "on",
        ["lie", lie, every] => {
            let lie = match *lie {
                "count" => Lie::Count,
                "status" => Lie::Status,
                "length" => Lie::Length,
                "event" => Lie::Event,
                "data" => Lie::Data,
                _ => return Err(format!("{lie} is no lie")),
            };
            device.lies.set(lie, small(every)?);
        }
        ["port", state @ ("up" | "down")] => device.set_port(*state == "up"),
        ["fail", command, status, rest @ ..] if rest.len() <= 3 => {
            let optional = |at: usize| rest.get(at).map_or(Ok(0), |word| small(word));
            let (syndrome, after) = (optional(1)?, optional(2)?);
            let fault = Fault { status: small(status)?, syndrome, times: times(rest)?, after };
            if fault.status == 0 || fault.times == 0 {
                return Err("a status and a number of times above zero are wanted".to_owned());
            }
            device.faults.fail(opcode(command)?, fault);
        }
        ["delay", time, rest @ ..] if rest.len() <= 1 => {
            let opcode = rest.first().map(|word| opcode(word)).transpose()?;
            device.faults.delay(opcode, duration(time)?);
        }
        ["limit", "counters", most] => device.objects.limit(Kind::Counter, small(most)?),
        ["cap", capability] => device.capabilities.set_by_text(capability)?,
        ["wire"] => return Ok(show::mishaps(device)),
        ["wire", "lose", percent, rest @ ..] if rest.len() <= 1 => {
            let percent = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            let percent = percent.ok_or_else(|| "a number from 0 to 100 is wanted".to_owned())?;
            device.wire.mishaps.lose(percent, rest.first().map_or(Ok(1), |word| small(word))?);
        }
        ["wire", mishap, times] => {
            let mishap = match *mishap {
                "drop" => Mishap::Drop,
                "repeat" => Mishap::Repeat,
                "swap" => Mishap::Swap,
                _ => return Err(format!("{mishap} happens to no packet")),
            };
            device.wire.mishaps.set(mishap, small(times)?);
        }
        ["heal"] => {
            device.faults.clear();
            device.lies.heal();
            device.wire.mishaps.heal();
        }
        ["commands"] => return Ok(show::commands(device)),
        ["trace"] => return Ok(device.trace.lines().map(ToString::to_string).collect()),
        ["trace", "clear"] => device.trace.clear(),
        ["counters"] => return Ok(show::counters(device)),
        ["tables"] => return Ok(show::tables(device)),
        ["objects"] => return Ok(show::objects(device)),
        ["statistics"] => return Ok(show::statistics(device)),
        _ => return Err("no such request; help lists them".to_owned()),
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Capabilities;

    fn ask(device: &mut Device, line: &str) -> Result<Vec<String>, String> {
        answer(device, &line.split_whitespace().collect::<Vec<_>>())
    }

    #[test]
    fn every_request_of_the_help_is_understood() {
        let mut device = Device::new(Capabilities::default());
        for line in [
            "help",
            "send 00112233445566778899aabb0800 3",
            "sent",
            "sent clear",
            "loop on",
            "lie count 1000",
            "lie status 1",
            "lie length 2",
            "lie event 3",
            "lie data 4",
            "heal",
            "port down",
            "port up",
            "fail QUERY_FLOW_COUNTER 5",
            "fail 93b 0x8 2 0x1234",
            "fail 93b 0x8 1 0 3",
            "delay 10",
            "delay 0 CREATE_CQ",
            "delay 50us QUERY_FLOW_COUNTER",
            "limit counters 7",
            "cap per_protocol_networking_offload_caps.max_lso_cap=16",
            "wire",
            "wire drop 1",
            "wire repeat 2",
            "wire swap 3",
            "wire lose 0.5",
            "wire lose 1 7",
            "heal",
            "commands",
            "trace",
            "trace clear",
            "counters",
            "tables",
            "objects",
            "statistics",
        ] {
            assert!(ask(&mut device, line).is_ok(), "{line}");
        }
        assert_eq!(device.statistics.received, 3);
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let mut device = Device::new(Capabilities::default());
        for line in [
            "bogus",
            "send",
            "send xy",
            "send 001",
            "send 00 many",
            "send 00 1 1",
            "loop maybe",
            "fail NOTHING 5",
            "fail 93b",
            "fail 93b 0",
            "fail 93b 5 0",
            "fail 93b 256",
            "delay soon",
            "delay us",
            "limit counters -1",
            "cap cmd_hca_cap.xrc",
            "cap cmd_hca_cap.nothing=1",
            "pcap /nowhere",
            "wire drop",
            "wire lose",
            "wire lose 101",
            "wire lose NaN",
            "wire lose 1 2 3",
            "wire bend 1",
            "lie white 1",
            "lie count",
        ] {
            assert!(ask(&mut device, line).is_err(), "{line}");
        }
    }
}
