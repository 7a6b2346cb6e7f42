use super::*;

#[test]
fn copies_of_every_alignment_come_back() {
    let map = Mapping::block(64).unwrap();
    for offset in 0..16 {
        for len in 0..40 {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + offset) as u8).collect();
            assert!(map.write(offset, &bytes));
            let mut back = vec![0; len];
            assert!(map.read(offset, &mut back));
            assert_eq!(back, bytes);
        }
    }
}

#[test]
fn threads_may_copy_at_any_alignment() {
    let map = Mapping::block(64).unwrap();
    std::thread::scope(|scope| {
        for (offset, len) in [(0, 7), (7, 9), (16, 5), (21, 3)] {
            let map = &map;
            scope.spawn(move || {
                let mut back = [0; 64];
                for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
                    assert!(map.write(offset, &[len as u8; 9][..len]));
                    assert!(map.read(0, &mut back) && map.read(offset, &mut back[..len]));
                    // Threads that write other bytes of the same word have not changed these.
                    assert_eq!(back[..len], [len as u8; 9][..len]);
                }
            });
        }
    });
}

#[test]
fn nothing_happens_outside() {
    let map = Mapping::block(1).unwrap();
    assert_eq!(map.len(), PAGE);
    assert!(!map.write(PAGE - 1, &[1, 2]));
    assert!(!map.read(usize::MAX, &mut [0; 2]));
    map.store(PAGE, 1, Ordering::Relaxed);
    assert_eq!(map.load(PAGE, Ordering::Relaxed), 0);
    assert_eq!(map.load(2, Ordering::Relaxed), 0);
    assert_eq!(Mapping::block(0).unwrap_err(), Errno::EINVAL);
    assert_eq!(Mapping::block(usize::MAX).unwrap_err(), Errno::EINVAL);
}
#[test]
fn a_box_of_any_length_is_copied_to_its_edges_and_comes_back() {
    for len in 0..13 {
        // The bytes beside the edges do not belong to the box, so Miri reports an access to them.
        let map = Mapping::from(vec![1_u8; len].into_boxed_slice());
        assert_eq!((map.len(), map.is_empty()), (len, len == 0));
        for offset in 0..len {
            assert!(map.write(offset, &vec![2; len - offset]));
            let mut back = vec![0; len - offset];
            assert!(map.read(offset, &mut back));
            assert_eq!(back, vec![2; len - offset]);
        }
        assert!(!map.write(len, &[0]) && !map.read(len, &mut [0]) && map.write(len, &[]));
        let clone = map.clone();
        let map = Box::<[u8]>::try_from(map).unwrap_err();
        drop(clone);
        assert_eq!(*Box::<[u8]>::try_from(map).unwrap(), vec![2; len]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no files")]
fn a_file_must_be_open_for_both() {
    let path = std::env::temp_dir().join(format!("uverbs-mapping-{}", std::process::id()));
    std::fs::write(&path, [7; 100]).unwrap();
    let files = [File::open(&path).unwrap(), File::options().write(true).open(&path).unwrap()];
    let both = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for file in files {
        assert_eq!(Mapping::of_file(&file, 0, 100).unwrap_err().raw_os_error(), Some(Errno::EACCES as i32));
    }
    assert_eq!(Mapping::of_file(&both, 0, 0).unwrap_err().raw_os_error(), Some(Errno::EINVAL as i32));
    let (one, other) = (Mapping::of_file(&both, 0, 100).unwrap(), Mapping::of_file(&both, 0, 100).unwrap());
    assert!(one.write(3, b"x") && MmapMut::try_from(one).is_err());
    let mut byte = [0; 2];
    assert!(other.read(3, &mut byte));
    assert_eq!(byte, *b"x\x07");
}

#[test]
fn a_map_comes_back() {
    let map = Mapping::from(MmapMut::map_anon(100).unwrap());
    assert!(map.len() == 100 && map.write(98, &[1, 2]) && !map.write(99, &[1, 2]));
    let map = Box::<[u8]>::try_from(map).unwrap_err();
    let map = MmapMut::try_from(map).unwrap();
    assert_eq!(map[98..], [1, 2]);
}
