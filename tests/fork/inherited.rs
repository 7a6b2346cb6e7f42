//! A device that was opened before the fork and with which nothing was created, as by a program that calls daemon(3) after opening.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use uverbs::{AccessFlags, Context};

use super::*;

/// Every query.
fn ask(context: &Context) {
    context.query_device().unwrap();
    context.query_port(1).unwrap();
    context.gid_table().unwrap();
    context.next_event().unwrap();
}

/// Runs on every device of the kernel; a soft one is memory of its process.
fn on_every_device_of_the_kernel(behaviour: impl Fn(&Target)) {
    on_every_device(|target| match &target.soft {
        None => behaviour(target),
        Some(soft) => {
            let context = target.open();
            if let Some(child) = split() {
                return wait_for(child);
            }
            in_the_child(|| {
                gone(context.query_device());
                gone(context.alloc_pd());
                gone(target.device.open());
                soft.inject(&[0; 60]);
                soft.unplug();
                assert!(soft.resources().is_empty());
            });
        }
    });
}

/// Use of it.
fn work(context: &Context) {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).unwrap();
    pd.register(100, AccessFlags::LOCAL_WRITE).unwrap().destroy().map_err(|(_, error)| error).unwrap();
    cq.destroy().map_err(|(_, error)| error).unwrap();
    pd.destroy().map_err(|(_, error)| error).unwrap();
}

fn tell(stream: &mut UnixStream) {
    stream.write_all(b"x").unwrap();
}

fn hear(stream: &mut UnixStream) {
    stream.read_exact(&mut [0]).unwrap();
}

pub(crate) fn first_user() {
    on_every_device_of_the_kernel(|target| {
        // The parent may continue to query it, and cannot create anything with it.
        let context = target.open();
        ask(&context);
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                ask(&context);
                work(&context);
                ask(&context);
                work(&context);
            });
        }
        gone(context.create_cq(4));
        gone(context.alloc_pd());
        gone(context.query_device());
        gone(context.next_event());
        // Or the parent is the first, after the fork.
        let context = target.open();
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let Some(child) = split() else {
            in_the_child(|| {
                ask(&context);
                tell(&mut there);
                hear(&mut there);
                gone(context.create_cq(4));
                gone(context.query_device());
            });
        };
        hear(&mut here);
        work(&context);
        tell(&mut here);
        wait_for(child);
        work(&context);
        // A device with a watcher, which may have locks, belongs to the process that opened it.
        let context = target.device.open_with(uverbs::transport::Fault::new(0, EIO)).unwrap();
        if let Some(child) = split() {
            return wait_for(child);
        }
        in_the_child(|| {
            gone(context.query_device());
            gone(context.alloc_pd());
        });
    });
}

/// Who owns which device is noted on one page for all of them, and each process begins a page of its own.
pub(crate) fn several() {
    on_every_device_of_the_kernel(|target| {
        let [first, second, third] = [(); 3].map(|()| target.open());
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let Some(child) = split() else {
            in_the_child(|| {
                work(&first);
                let own = [(); 2].map(|()| own(target));
                tell(&mut there);
                hear(&mut there);
                gone(second.create_cq(4));
                own.iter().for_each(work);
                work(&first);
                work(&third);
            });
        };
        let later = [(); 2].map(|()| target.open());
        hear(&mut here);
        gone(first.create_cq(4));
        drop(first);
        work(&second);
        later.iter().for_each(work);
        tell(&mut here);
        wait_for(child);
        gone(third.create_cq(4));
        drop(third);
        work(&second);
        later.iter().for_each(work);
    });
}

pub(crate) fn domain() {
    on_every_device_of_the_kernel(|target| {
        let context = target.open();
        let pd = context.alloc_pd().unwrap();
        // A child that drops its copy destroys nothing, and does not become the owner.
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                pd.destroy().map_err(|(_, error)| error).unwrap();
                ask(&context);
            });
        }
        // The next one continues with it.
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                let region = pd.register(100, AccessFlags::LOCAL_WRITE).unwrap();
                region.destroy().map_err(|(_, error)| error).unwrap();
                pd.destroy().map_err(|(_, error)| error).unwrap();
                work(&context);
            });
        }
        gone(pd.register(100, AccessFlags::LOCAL_WRITE));
        pd.destroy().map_err(|(_, error)| error).unwrap();
    });
}

pub(crate) fn grandchild() {
    on_every_device_of_the_kernel(|target| {
        let untouched = target.open();
        let parents = target.open();
        // Not every device can announce completions of a queue without a channel.
        let announcing = |context: &Context| {
            let channel = context.create_comp_channel().unwrap();
            context.cq(4).channel(&channel).create().unwrap()
        };
        let cq = announcing(&parents);
        if let Some(child) = split() {
            wait_for(child);
        } else {
            in_the_child(|| {
                let childs = own(target);
                let childs_cq = announcing(&childs);
                if let Some(grandchild) = split() {
                    wait_for(grandchild);
                } else {
                    in_the_child(|| {
                        for (context, cq) in [(&parents, &cq), (&childs, &childs_cq)] {
                            gone(context.alloc_pd());
                            gone(cq.notify(false));
                        }
                        own(target);
                        work(&untouched);
                        drop((cq, childs_cq));
                    });
                }
                gone(untouched.alloc_pd());
                childs_cq.notify(false).unwrap();
                gone(cq.notify(false));
            });
        }
        gone(untouched.create_cq(4));
        cq.notify(false).unwrap();
    });
}
