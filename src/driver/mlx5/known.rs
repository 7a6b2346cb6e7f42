//! The queue pairs that complete in a queue, by the index in its entries.

use std::sync::Arc;

use super::track::Track;

/// A hash table with an empty place after each chain of occupied places. Indices are given one after the other, so most queue pairs are
/// at the place of their index.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Their number is a power of two, or zero.
    places: Vec<Option<Arc<Track>>>,
    /// The place of the queue pair that was noted last.
    #[cfg(feature = "raw")]
    last: usize,
}

impl Known {
    pub(super) fn new(tracks: &[Arc<Track>]) -> Self {
        // At least half of the places are empty.
        let mut places = vec![None; tracks.len().saturating_mul(2).next_power_of_two()];
        let mask = places.len() - 1;
        for track in tracks {
            let mut at = track.index() as usize & mask;
            while places[at].is_some() {
                at = (at + 1) & mask;
            }
            places[at] = Some(track.clone());
        }
        Self {
            places,
            #[cfg(feature = "raw")]
            last: 0,
        }
    }

    /// The queue pair whose entries have this index, in the byte order of an entry.
    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> Option<&Track> {
        match self.place(u32::from_be(index) as usize)? {
            track if track.is_of(index) => Some(track),
            _ => self.place(self.find(index)?),
        }
    }

    /// The queue pair that was noted last, if it has this index.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(super) fn again(&self, index: u32) -> Option<&Track> {
        self.places.get(self.last)?.as_deref().filter(|track| track.is_of(index))
    }

    /// Notes the queue pair with this index.
    #[cfg(feature = "raw")]
    pub(super) fn note(&mut self, index: u32) {
        self.last = self.find(index).unwrap_or(self.last);
    }

    #[inline(always)]
    fn place(&self, at: usize) -> Option<&Track> {
        self.places.get(at & self.places.len().wrapping_sub(1))?.as_deref()
    }

    #[inline(never)]
    fn find(&self, index: u32) -> Option<usize> {
        let mask = self.places.len().wrapping_sub(1);
        let mut at = u32::from_be(index) as usize & mask;
        while !self.place(at)?.is_of(index) {
            at = (at + 1) & mask;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::track::Source;
    use super::*;

    #[test]
    fn each_is_found_by_its_index_and_no_other() {
        assert!(Known::default().get(0).is_none() && Known::new(&[]).get(0).is_none());
        for indices in
            [vec![0], vec![7, 8, 9, 11], vec![0xff_ffff, 0, 1], (0..40).map(|i| i * 128 + 3).collect()]
        {
            let track =
                |index: &u32| Arc::new(Track::new("test", *index, false, 1, &Source::Own(1)).unwrap());
            let tracks: Vec<_> = indices.iter().map(track).collect();
            let known = Known::new(&tracks);
            for index in (0..6000).chain(0xff_ff00..=0xff_ffff).step_by(if cfg!(miri) { 7 } else { 1 }) {
                let found = known.get(u32::to_be(index)).map(Track::index);
                assert_eq!(found, indices.contains(&index).then_some(index), "{index} of {indices:?}");
            }
        }
    }
}
