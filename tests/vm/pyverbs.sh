# shellcheck shell=sh disable=SC2154,SC2317
# The results of pyverbs' test suite with libibverbs and with the drop-in, side by side: for the lanes dropin and mlx5-pyverbs, which
# source this after dropin-common.sh.

# Which tests pass and which are skipped, without the reasons, which have numbers in them.
results() {
    sed 's/^\([^\t]*\)\t\([^ ]*\).*/\1 \2/' "$OUT/pyverbs-$1.out" >"$OUT/results.$1"
}

# Every test has the result that it has with libibverbs, or passes. Those that pass with ours alone are marked, and listed.
same_results() { # same_results [PATTERN]: of tests that ours skips, since it has not what they are of
    results theirs
    results ours
    awk 'NR == FNR { theirs[$1] = $2; next }
        { print $0 ($2 == theirs[$1] ? "" : ", with libibverbs " theirs[$1]); delete theirs[$1] }
        END { for (test in theirs) print test " nothing, with libibverbs " theirs[test] }' \
        "$OUT/results.theirs" "$OUT/results.ours" >"$OUT/results"
    if grep ', with libibverbs' "$OUT/results" | grep -v ' ok, with libibverbs \(skipped\|ERROR\|FAIL\)$' |
        if [ $# -gt 0 ]; then grep -v "^tests\.$1.* skipped, with libibverbs ok$"; else cat; fi | grep .; then
        echo "the tests above have another result with the drop-in" >&2
        return 1
    fi
    echo "compared: $(grep -c ' ok$' "$OUT/results") pass with both, $(grep -c ' ok,' "$OUT/results") with ours alone"
}
