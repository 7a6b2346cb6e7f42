//! What one of the programs printed.

/// A command that the device received, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) name: String,
    /// The device's status, and up to 1,024 bytes each of input and output.
    pub(crate) status: String,
    pub(crate) bytes: [Vec<u8>; 2],
    pub(crate) lens: [usize; 2],
}

/// One step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) text: String,
    pub(crate) results: Vec<String>,
    pub(crate) sent: Vec<Sent>,
}

fn hex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// A line of the device's trace: `NUMBER OPCODE NAME status=S in=LEN:HEX out=LEN:HEX`.
fn sent(line: &str) -> Option<Sent> {
    let [_number, _opcode, name, status, input, output] = line.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let part = |word: &str, prefix: &str| {
        let (len, bytes) = word.strip_prefix(prefix)?.split_once(':')?;
        Some((len.parse::<usize>().ok()?, hex(bytes)?))
    };
    let (input, output) = (part(input, "in=")?, part(output, "out=")?);
    Some(Sent {
        name: name.to_owned(),
        status: status.strip_prefix("status=")?.to_owned(),
        bytes: [input.1, output.1],
        lens: [input.0, output.0],
    })
}

/// Reads a recording. Lines that begin with `#` are for human readers.
pub(crate) fn read(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(text) = line.strip_prefix("step ") {
            steps.push(Step { text: text.to_owned(), ..Step::default() });
            continue;
        }
        let step = steps.last_mut().ok_or_else(|| format!("before the first step: {line}"))?;
        if let Some(result) = line.strip_prefix("result ") {
            step.results.push(result.to_owned());
        } else {
            let command = line.strip_prefix("| ").and_then(sent);
            step.sent.push(command.ok_or_else(|| format!("{}: no command: {line:.80}", step.text))?);
        }
    }
    Ok(steps)
}
