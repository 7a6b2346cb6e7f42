//! The rows of `tests/common/differences/programs.rs` that occur in programs.

#[path = "../../common/differences/programs.rs"]
#[allow(unreachable_pub, reason = "the file is no part of this crate")]
mod rows;

pub use rows::Row;

use crate::language::Step;
use crate::play::Played;
use crate::world::Outcome;

/// The rows for a device, by its driver and whether its port is an InfiniBand port.
pub fn of(driver: &str, is_infiniband: bool) -> &'static [&'static [Row]] {
    match driver {
        "rxe" => &[rows::ON_RXE],
        "mlx5" if is_infiniband => &[rows::ON_INFINIBAND, rows::ON_MLX5],
        "mlx5" => &[rows::ON_ETHERNET, rows::ON_MLX5],
        _ => &[],
    }
}

/// The row that allows the last of these steps to differ in this way.
pub fn listed(rows: &[&'static [Row]], steps: &[Step], soft: &str, device: &Played) -> Option<&'static Row> {
    let kernel = kernel();
    let (last, before) = steps.split_last()?;
    let text = last.to_string();
    let end = device.outcomes.get(before.len())?.to_string();
    let was_done = |pattern| {
        let mut done = before.iter().zip(&device.outcomes);
        done.any(|(step, end)| is_like(pattern, &step.to_string()) && matches!(end, Outcome::Done(_)))
    };
    rows.iter().copied().flatten().find(|row| {
        (row.from..row.below).contains(&kernel)
            && is_like(row.step, &text)
            && is_like(row.soft, soft)
            && is_like(row.device, &end)
            && (!row.fewer || is_part(&end, soft))
            && (!row.more || is_part(soft, &end))
            && (row.behind.is_empty() || row.behind.iter().copied().any(was_done))
    })
}

/// Whether a text matches a pattern, in which `*` stands for anything.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| is_like(tail, &rest[at..]))
}

/// Whether everything in one text, after its number, is also in the other one, and as often.
fn is_part(text: &str, of: &str) -> bool {
    let told = |text: &str| -> Vec<String> {
        let list = text.splitn(3, ' ').nth(2).unwrap_or_default();
        list.split("; ").filter(|one| !one.is_empty()).map(str::to_owned).collect()
    };
    let mut rest = told(of);
    told(text).iter().all(|one| {
        let at = rest.iter().position(|other| other == one);
        at.map(|at| rest.swap_remove(at)).is_some()
    })
}

/// The version of the kernel.
pub fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{is_like, is_part};

    #[test]
    fn a_star_stands_for_anything() {
        assert!(is_like("send *", "send 0 write"));
        assert!(is_like("*", ""));
        assert!(is_like("qp * raw* x", "qp 0 raw-up 1 x"));
        assert!(!is_like("qp * raw", "qp 0 rc"));
        assert!(!is_like("ok", "ok 1"));
    }

    #[test]
    fn a_part_has_nothing_of_its_own() {
        assert!(is_part("ok 0 ", "ok 2 100 x0; 200 x1"));
        assert!(is_part("ok 1 200 x1", "ok 2 100 x0; 200 x1"));
        assert!(!is_part("ok 2 200 x1; 200 x1", "ok 2 100 x0; 200 x1"));
        assert!(!is_part("ok 1 300 x1", "ok 2 100 x0; 200 x1"));
    }
}
