#!/bin/sh
# Lane siw-path: what posting and polling cost on the kernel's software iWARP device, through the drop-in and through libibverbs with libsiw. Runs in the guest; see
# lib/guest.sh, beside/README.md.
#
# kernels: 6.1 7.x
# order: 9
# only: 6.1 7.x
# packages: mmdebstrap gcc libc6-dev libibverbs-dev librdmacm-dev
# module: SIW_MODULE siw
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# compile: SIW_PATH beside/siw.c -libverbs -lrdmacm
# compile: UVERBS_COUNTED beside/counted.c -shared -fPIC
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

measure() { "$1" "$SIW_PATH" "$address"; } # measure SIDE

in_rust() { LD_PRELOAD=$UVERBS_COUNTED "$UVERBS_BESIDE" managed "$device"; }

# A table of each operation, through C and in Rust, beside libsiw. Ours must take no more instructions and make no more system calls than
# libsiw, and allocate nothing. For each system call it may take 23 instructions more, those of the C library's ioctl: libsiw calls
# write, which takes 7.
compare_sides() {
    awk -F': ' '
        function look(side, ours, theirs) {
            if (ours[1] <= 0 || theirs[1] <= 0 || ours[1] > theirs[1] + 23 * ours[2] || ours[2] > theirs[2] || ours[3] > 0) {
                print $1 ", " side ": " ours[1] " " ours[2] " " ours[3] ", theirs " theirs[1] " " theirs[2] > "/dev/stderr"
                bad = 1
            }
        }
        FNR == 1 { file++ }
        file == 1 { theirs[$1] = $2; next }
        file == 2 { rust[$1] = $2; next }
        FNR == 1 {
            print "| operation | drop-in | libsiw | drop-in / libsiw | in Rust | in Rust / libsiw |"
            print "| --- | --- | --- | --- | --- | --- |"
        }
        {
            split($2, c, " "); split(rust[$1], r, " "); split(theirs[$1], t, " ")
            by = t[1] ? t[1] : 1
            printf "| %s | %d | %d | %.2f | %d | %.2f |\n", $1, c[1], t[1], c[1] / by, r[1], r[1] / by
            rows++
            look("drop-in", c, t)
            look("in Rust", r, t)
        }
        END { exit bad || rows != ROWS }' ROWS="$(wc -l <"$OUT/path-theirs.out")" "$OUT/path-theirs.out" "$OUT/path-rust.out" "$OUT/path-ours.out"
}

begin make_siw
step library library_is_ours "$SIW_PATH"
step path-theirs measure theirs
step path-ours measure ours
step path-rust in_rust
step table compare_sides
step only-ours-was-loaded only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
