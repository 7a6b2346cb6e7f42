//! The rows of `tests/common/differences.rs` that programs meet.

#[path = "../../common/differences/programs.rs"]
#[allow(unreachable_pub, reason = "the file is no part of this crate")]
mod rows;

pub use rows::Row;

use crate::language::Step;
use crate::play::Played;
use crate::world::Outcome;

/// The row that says that the last of these steps may differ so.
pub fn listed(driver: &str, steps: &[Step], soft: &str, device: &Played) -> Option<&'static Row> {
    let kernel = kernel();
    let (last, before) = steps.split_last()?;
    let text = last.to_string();
    let end = device.outcomes.get(before.len())?.to_string();
    let was_done = |pattern| {
        let mut done = before.iter().zip(&device.outcomes);
        done.any(|(step, end)| is_like(pattern, &step.to_string()) && matches!(end, Outcome::Done(_)))
    };
    let rows = match driver {
        "rxe" => rows::ON_RXE,
        "mlx5" => rows::ON_MLX5,
        _ => &[],
    };
    rows.iter().find(|row| {
        (row.from..row.below).contains(&kernel)
            && is_like(row.step, &text)
            && is_like(row.soft, soft)
            && is_like(row.device, &end)
            && (row.behind.is_empty() || row.behind.iter().copied().any(was_done))
    })
}

/// Whether a text is as a pattern says, in which `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| is_like(tail, &rest[at..]))
}

/// The version of the kernel.
pub fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(is_like("send *", "send 0 write"));
        assert!(is_like("*", ""));
        assert!(is_like("qp * raw* x", "qp 0 raw-up 1 x"));
        assert!(!is_like("qp * raw", "qp 0 rc"));
        assert!(!is_like("ok", "ok 1"));
    }
}
