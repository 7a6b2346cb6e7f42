//! One flow table: entries by match, grouped by mask.
//!
//! As on mlx5, entries with the same mask form a group, and a frame can match only one entry of a group. A look-up therefore costs one
//! hash per *mask* in use, however many rules there are. Only the words of a mask that have a bit set are compared, and values are stored
//! without the others.

use super::Delivery;
use crate::soft::matcher::{Actions, Match};
use crate::soft::packet::{Depth, Words};
use nix::errno::Errno;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// `MLX5_FS_MAX_ENTRIES` (drivers/infiniband/hw/mlx5/fs.c, Linux 6.1).
const MAX_ENTRIES: usize = 1 << 16;

/// A match as words, with the port as one more field that every rule compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    mask: Words,
    value: Words,
    depth: Depth,
}

impl Key {
    pub(super) fn new(matching: &Match, port: u8) -> Self {
        let (mut value, mut mask) = (matching.value, matching.mask);
        (value.port, mask.port) = (port, 0xff);
        Self { mask: mask.words(), value: value.words(), depth: Depth::of(&mask) }
    }
}

/// One flow in an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) flow: u32,
    pub(super) qp: u32,
    pub(super) counters: Option<u32>,
    pub(super) loop_back: bool,
    /// The first flow of its queue pair in the entry, which delivers the frame.
    pub(super) first: bool,
}

impl Member {
    /// Whether the flow receives frames of this sender.
    pub(super) fn hears(&self, sender: Option<u32>) -> bool {
        self.loop_back || sender != Some(self.qp)
    }

    /// The visitor's argument for this flow.
    pub(super) fn delivery(&self) -> Delivery {
        Delivery {
            flow: self.flow,
            qp: Some(self.qp).filter(|_| self.first),
            counters: self.counters,
            tag: None,
            drop: false,
        }
    }
}

/// All flows with one match in one table.
#[derive(Debug)]
pub(super) struct Entry {
    order: u64,
    /// The tag of the flow that created the entry. The entry keeps it after that flow is gone, as `flow_context` of an fte does.
    tag: Option<u32>,
    pub(super) drop: bool,
    members: Vec<Member>,
}

impl Entry {
    /// The flows that receive frames of this sender.
    pub(super) fn members(&self, sender: Option<u32>) -> impl Iterator<Item = &Member> {
        let hears = move |member: &&Member| member.hears(sender);
        self.members.iter().filter(hears)
    }

    /// `check_conflicting_ftes` (fs_core.c): only a *new* tag can conflict.
    fn conflicts(&self, actions: &Actions) -> bool {
        let tags = actions.tag.is_some_and(|tag| tag != self.tag.unwrap_or(0));
        self.drop != actions.drop || tags
    }

    /// Marks the first flow of a queue pair. Flows that receive frames of their own queue pair come first, so that a frame which any of
    /// them receives is delivered by one of them.
    fn mark_first(&mut self, qp: u32) {
        self.members.sort_by_key(|member| !member.loop_back);
        let mut first = true;
        for member in self.members.iter_mut().filter(|member| member.qp == qp) {
            member.first = first;
            first = false;
        }
    }

    /// The visitor's argument for a flow of received frames.
    pub(super) fn received(&self, member: &Member) -> Delivery {
        let delivery = member.delivery();
        Delivery {
            qp: delivery.qp.filter(|_| !self.drop),
            tag: self.tag.filter(|_| !self.drop),
            drop: self.drop,
            ..delivery
        }
    }

    /// The visitor's argument for a flow of sent frames: the destination is the port, not a queue pair.
    pub(super) fn sent(&self, member: &Member) -> Delivery {
        Delivery { qp: None, drop: self.drop, ..member.delivery() }
    }
}

/// A word in which a mask has bits.
#[derive(Clone, Copy, Debug)]
struct Part {
    word: usize,
    bits: u64,
}

/// The entries with one mask.
#[derive(Debug)]
struct Group {
    mask: Words,
    /// The words of the mask that are not zero.
    parts: Vec<Part>,
    depth: Depth,
    /// By the values of all parts.
    entries: HashMap<Box<[u64]>, Entry, BuildHasherDefault<WordHasher>>,
}

impl Group {
    fn new(key: &Key) -> Self {
        let words = key.mask.iter().enumerate().filter(|(_, bits)| **bits != 0);
        let parts = words.map(|(word, bits)| Part { word, bits: *bits }).collect();
        Self { mask: key.mask, parts, depth: key.depth, entries: HashMap::default() }
    }

    /// These fields under the mask, one value for each part.
    fn masked<'a>(&'a self, fields: &'a Words) -> impl Iterator<Item = u64> + 'a {
        self.parts.iter().map(|part| fields.get(part.word).map_or(0, |field| field & part.bits))
    }

    /// The value of a match with this mask.
    fn value(&self, key: &Key) -> Box<[u64]> {
        self.masked(&key.value).collect()
    }

    /// The entry that these fields match.
    #[inline]
    fn find(&self, fields: &Words) -> Option<&Entry> {
        if self.entries.len() == 1 {
            let (value, entry) = self.entries.iter().next()?;
            return self.masked(fields).zip(value).all(|(field, value)| field == *value).then_some(entry);
        }
        let mut value = [0; size_of::<Words>() / 8];
        value.iter_mut().zip(self.masked(fields)).for_each(|(to, field)| *to = field);
        self.entries.get(value.get(..self.parts.len())?)
    }
}

/// One flow table.
#[derive(Debug, Default)]
pub(super) struct Tier {
    groups: Vec<Group>,
    entries: usize,
    /// The depth of the deepest group.
    depth: Depth,
}

impl Tier {
    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The depth to which a frame must be read for its rules.
    pub(super) fn depth(&self) -> Depth {
        self.depth
    }

    /// The entry that this frame matches, for frames of this sender. If there are several, the oldest.
    #[inline]
    pub(super) fn find(&self, fields: &Words, sender: Option<u32>) -> Option<&Entry> {
        let mut oldest: Option<&Entry> = None;
        for group in &self.groups {
            let found = group.find(fields).filter(|entry| entry.members(sender).next().is_some());
            if let Some(entry) = found
                && oldest.is_none_or(|oldest| entry.order < oldest.order)
            {
                oldest = Some(entry);
            }
        }
        oldest
    }

    /// Adds a flow to the entry of this match, or creates the entry.
    pub(super) fn insert(
        &mut self,
        key: &Key,
        actions: &Actions,
        member: Member,
        order: u64,
    ) -> Result<(), Errno> {
        let full = self.entries >= MAX_ENTRIES;
        let index = self.groups.iter().position(|group| group.mask == key.mask);
        let existing = index.and_then(|index| {
            let group = &mut self.groups[index];
            let value = group.value(key);
            group.entries.get_mut(&value)
        });
        if let Some(entry) = existing {
            if entry.conflicts(actions) {
                return Err(Errno::EEXIST);
            }
            entry.members.push(member);
            entry.mark_first(member.qp);
            return Ok(());
        }
        if full {
            return Err(Errno::ENOSPC);
        }
        let index = index.unwrap_or_else(|| {
            self.groups.push(Group::new(key));
            self.groups.len() - 1
        });
        let group = &mut self.groups[index];
        let entry = Entry { order, tag: actions.tag, drop: actions.drop, members: vec![member] };
        group.entries.insert(group.value(key), entry);
        self.entries += 1;
        self.depth = self.depth.max(key.depth);
        Ok(())
    }

    /// Removes a flow from the entry of this match. An entry without flows is removed, and so is a group without entries.
    pub(super) fn remove(&mut self, key: &Key, flow: u32) {
        let Some(index) = self.groups.iter().position(|group| group.mask == key.mask) else {
            return;
        };
        let group = &mut self.groups[index];
        let value = group.value(key);
        let Some(entry) = group.entries.get_mut(&value) else {
            return;
        };
        let Some(at) = entry.members.iter().position(|member| member.flow == flow) else {
            return;
        };
        let gone = entry.members.remove(at);
        entry.mark_first(gone.qp);
        if entry.members.is_empty() {
            group.entries.remove(&value);
            self.entries -= 1;
        }
        if group.entries.is_empty() {
            self.groups.remove(index);
            self.depth = self.groups.iter().map(|group| group.depth).max().unwrap_or_default();
        }
    }
}

/// Multiply and rotate, eight bytes at a time. The owner of the device chooses the keys of a table, so frames from outside cannot cause
/// collisions.
#[derive(Debug, Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0.rotate_left(32)
    }
}
