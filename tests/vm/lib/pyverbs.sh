# shellcheck shell=sh disable=SC2154,SC2317
# The results of pyverbs' test suite with libibverbs and with the drop-in, side by side: for the lanes dropin, dropin-pyverbs, mlx5-pyverbs,
# mlx5-pyverbs-trixie and mlx5-pyverbs-sid, which source this after dropin-common.sh.

# Which tests pass and which are skipped, without the reasons, since those contain numbers. If a lane has several releases, the steps'
# names begin with $release.
results() {
    sed 's/^\([^\t]*\)\t\([^ ]*\).*/\1 \2/' "$OUT/${release:-}pyverbs-$1.out" >"$OUT/results.$1"
}

# Every test must have the result that it has with libibverbs, or pass. Tests that pass only with ours are marked and listed.
same_results() { # same_results [PATTERN]: of tests that ours skips, since it has not what they are of
    results theirs
    results ours
    awk 'NR == FNR { theirs[$1] = $2; next }
        { print $0 ($2 == theirs[$1] ? "" : ", with libibverbs " theirs[$1]); delete theirs[$1] }
        END { for (test in theirs) print test " nothing, with libibverbs " theirs[test] }' \
        "$OUT/results.theirs" "$OUT/results.ours" >"$OUT/results"
    if grep ', with libibverbs' "$OUT/results" | grep -v ' ok, with libibverbs \(skipped\|ERROR\|FAIL\)$' |
        if [ $# -gt 0 ]; then grep -v "^tests\.$1.* skipped, with libibverbs \\(ok\\|ERROR\\)$"; else cat; fi | grep .; then
        echo "the tests above have another result with the drop-in" >&2
        return 1
    fi
    echo "compared: $(grep -c '^[^ ]* ok$' "$OUT/results") pass with both, $(grep -c ' ok,' "$OUT/results") with ours alone"
}

# For the lanes of mlx5, on a card with RoCE: $root is the root of another release of Debian, or empty.

make_card() {
    # Some tests want large pages.
    echo 16 >/proc/sys/vm/nr_hugepages
    make_device && with_address "$device" 10.0.0.1 && cp "$vm/lib/pyverbs" /tmp/pyverbs && loop_back || return
    if [ -n "$root" ]; then enter "$root"; fi
}

# Frames that a card sends to its own address come back; tests of flows rely on this.
loop_back() {
    control_line && echo loop on >&9 && read -r answer <&9 && [ "$answer" = ok ] && exec 9>&-
}

suite() { # suite ours|theirs [PATTERN...]: the tests of pyverbs, a line for each
    library=$1
    shift
    PYVERBS_GID=$(gid_of "$device" 10.0.0.1) "$library" timeout 1500 ${root:+chroot "$root"} /tmp/pyverbs "$device" "$net" "$@"
}

# The steps with a release's own pyverbs, libibverbs and libmlx5.
card_of_release() { # card_of_release ROOT PATTERN: of tests that ours skips
    root=$1
    begin make_card
    step pyverbs-theirs suite theirs -test_mlx5 -test_efa
    step pyverbs-ours suite ours -test_mlx5 -test_efa
    step pyverbs same_results "$2"
    step only-ours-was-loaded only_ours_was_loaded
    step kernel-log kernel_log_is_clean
}
