//! Objects by number.

use std::collections::BTreeMap;

/// Objects with numbers from a range. A free number is assigned again only after all others, so that the use of a destroyed object is
/// detected.
#[derive(Debug)]
pub struct Table<T> {
    entries: BTreeMap<u32, T>,
    first: u32,
    count: u32,
    next: u32,
}

impl<T> Table<T> {
    /// Numbers from `first` on, `count` of them.
    pub fn new(first: u32, count: u32) -> Self {
        Self { entries: BTreeMap::new(), first, count, next: 0 }
    }

    /// Adds an object if there are fewer than `most`, and returns its number.
    pub fn insert(&mut self, most: u32, value: T) -> Option<u32> {
        if self.entries.len() >= most.min(self.count) as usize {
            return None;
        }
        loop {
            let number = self.first.wrapping_add(self.next);
            self.next = (self.next + 1) % self.count;
            if let std::collections::btree_map::Entry::Vacant(place) = self.entries.entry(number) {
                place.insert(value);
                return Some(number);
            }
        }
    }

    /// The object of a number.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(&number)
    }

    /// The object of a number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(&number)
    }

    /// Removes an object.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.entries.remove(&number)
    }

    /// Whether there is an object with this number.
    pub fn has(&self, number: u32) -> bool {
        self.entries.contains_key(&number)
    }

    /// All objects with their numbers, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(number, value)| (*number, value))
    }

    /// All objects.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    /// All objects, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.values_mut()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_last() {
        let mut table = Table::new(3, 3);
        let numbers = [(); 4].map(|()| table.insert(9, 'a'));
        assert_eq!(numbers, [Some(3), Some(4), Some(5), None]);
        assert_eq!((table.remove(4), table.remove(3), table.len()), (Some('a'), Some('a'), 1));
        assert_eq!(
            (table.insert(1, 'b'), table.insert(2, 'b'), table.insert(9, 'c')),
            (None, Some(3), Some(4))
        );
    }
}
