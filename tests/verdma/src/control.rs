//! The control line, by which tests change and read the state of the device. See README.md.

use vpci::control::number;

use crate::command::COMMANDS;
use crate::device::Device;

const HELP: &[&str] = &[
    "fail COMMAND [TIMES]   the next commands of this name fail",
    "heal                   nothing fails any more",
    "lose NUMBER            one in so many packets is lost; 0 for none",
    "objects                how many objects there are of each kind",
    "statistics             the counters of the port",
    "trace                  the last commands",
    "complaints [clear]     what the guest did that no device would take",
];

/// Executes one request.
///
/// # Errors
/// The reason of a refusal.
pub(crate) fn answer(device: &mut Device, words: &[&str]) -> Result<Vec<String>, String> {
    let wanted = |word: &str| {
        number(word)
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| format!("{word} is no number of use here"))
    };
    match words {
        ["help"] => return Ok(HELP.iter().map(ToString::to_string).collect()),
        ["fail", name, rest @ ..] if rest.len() <= 1 => {
            let known = COMMANDS.iter().find(|(_, known)| known == name);
            let (which, _) = known.ok_or_else(|| format!("{name} is no command"))?;
            let times = rest.first().map_or(Ok(1), |word| wanted(word))?;
            if times == 0 {
                return Err("a number of times is wanted".to_owned());
            }
            device.faults.insert(*which, times);
        }
        ["heal"] => device.faults.clear(),
        ["lose", word] => device.network.lose = wanted(word)?,
        ["objects"] => {
            let counts = [
                ("qp", device.qps.len()),
                ("cq", device.cqs.len()),
                ("mr", device.regions.len()),
                ("ah", device.addresses.len()),
                ("page", device.pages.len()),
                ("gid", device.gids.len()),
                ("eq", device.eqs.len()),
            ];
            return Ok(counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect());
        }
        ["statistics"] => {
            let names = [
                "tx_reqs",
                "tx_packets",
                "tx_bytes",
                "tx_drop",
                "tx_bps_drop",
                "tx_pps_drop",
                "rx_packets",
                "rx_bytes",
                "rx_drop",
                "rx_bps_drop",
                "rx_pps_drop",
            ];
            let values = device.statistics.list();
            return Ok(names.iter().zip(values).map(|(name, value)| format!("{name} {value}")).collect());
        }
        ["trace"] => return Ok(device.trace.iter().cloned().collect()),
        ["complaints"] => return Ok(device.complaints.iter().cloned().collect()),
        ["complaints", "clear"] => device.complaints.clear(),
        _ => return Err(format!("`{}` is not understood; `help` lists what is", words.join(" "))),
    }
    Ok(Vec::new())
}
