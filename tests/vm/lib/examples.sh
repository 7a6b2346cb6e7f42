# shellcheck shell=sh
# The programs of docs/examples on $device, for lanes that source this after guest.sh and have a line `# cargo:` for each. Every program runs
# or says in one line why not, and none waits without a limit.

# Each variable is the program of that name.
examples='completion_counters counter_watch datagrams rc_pingpong read_latency shared_receives statistics'

# play_examples NAME=PATTERN...: each prints a line with its pattern, or if that begins with `!`, it fails and says so. They are called like
# the programs, and all must be there.
play_examples() {
    for example in $examples; do
        pattern=
        for pair; do
            [ "${pair%%=*}" != "$example" ] || pattern=${pair#*=}
        done
        step "example-$example" play_example "$example" "$pattern"
    done
}

# shellcheck disable=SC2154  # who sources this has $device
play_example() { # play_example NAME PATTERN
    program=$(eval "printf '%s' \"\$EXAMPLE_$(echo "$1" | tr '[:lower:]' '[:upper:]')\"")
    if [ -z "$program" ] || [ -z "$2" ]; then
        echo "the lane says nothing of $1" >&2
        return 1
    fi
    code=0
    timeout $((60 * ${PATIENCE:-1})) "$program" "$device" || code=$?
    case $2 in
    !*) [ "$code" -eq 1 ] && [ "$(wc -l <"$OUT/$name.err")" -eq 1 ] && grep -q "^$1: .*${2#!}" "$OUT/$name.err" ;;
    *) [ "$code" -eq 0 ] && grep -q "$2" "$OUT/$name.out" ;;
    esac
}
