#!/bin/sh
# Lane siw-path: what posting and polling cost on the kernel's software iWARP device, through the drop-in and through libibverbs with libsiw. Runs in the guest; see
# guest.sh, beside/README.md.
#
# order: 9
# kernels: 6.1 7.x
# packages: mmdebstrap gcc libc6-dev libibverbs-dev librdmacm-dev
# module: SIW_MODULE siw
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# compile: SIW_PATH beside/siw.c -libverbs -lrdmacm
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/siw-device.sh
. "$here/siw-device.sh"
# shellcheck source=tests/vm/dropin-common.sh
. "$here/dropin-common.sh"

measure() { "$1" "$SIW_PATH" "$address"; } # measure SIDE

# Each operation of both sides, in a table. Ours is to take no more instructions; until then this many times as many. It makes no more system calls,
# and allocates nothing.
UNTIL_THEN=2.60
compare_sides() {
    awk -F': ' '
        NR == FNR { theirs[$1] = $2; next }
        FNR == 1 { print "| operation | drop-in | libsiw | drop-in / libsiw |"; print "| --- | --- | --- | --- |" }
        {
            split($2, ours, " "); split(theirs[$1], other, " ")
            printf "| %s | %d | %d | %.2f |\n", $1, ours[1], other[1], ours[1] / (other[1] ? other[1] : 1)
            rows++
            if (ours[1] <= 0 || other[1] <= 0 || ours[1] > other[1] * MOST || ours[2] > other[2] || ours[3] > 0) {
                print $1 ": " $2 ", theirs " theirs[$1] > "/dev/stderr"
                bad = 1
            }
        }
        END { exit bad || rows != ROWS }' MOST="$UNTIL_THEN" ROWS="$(wc -l <"$OUT/path-theirs.out")" "$OUT/path-theirs.out" "$OUT/path-ours.out"
}

begin make_siw
step library library_is_ours "$SIW_PATH"
step path-theirs measure theirs
step path-ours measure ours
step table compare_sides
step only-ours-was-loaded only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
