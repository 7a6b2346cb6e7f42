# Prints the kernel's reports of faults, except those in splats.known. For those it prints how often: "known: TEXT: N times". guest.sh
# calls it.
#
# usage: awk -f splats.awk -v what=log|leaks -v splats=TEXT|TEXT... -v release="$(uname -r)" splats.known -

BEGIN {
    count = split(splats, splat, "|")
}

# Keep the rows that are meant for this kernel.
FILENAME != "-" {
    if ($0 !~ /^(#|$)/ && split($0, field, " [|] ") == 3) {
        if (field[1] == "*" || index(release, field[1]) == 1) known[++rows] = field[2]
    }
    next
}

function row_of(text, i) {
    for (i = 1; i <= rows; i++) if (index(text, known[i])) return i
    return 0
}

function end_of_leak(row) {
    if (leak == "") return
    row = row_of(leak)
    if (row) seen[row]++
    else print leak
    leak = ""
}

# All lines of one leaked object belong together: any function of its trace may be the known one.
what == "leaks" {
    if (index($0, splats)) end_of_leak()
    leak = leak == "" ? $0 : leak "\n" $0
    next
}

# A long report has a first line that says what it is, and a trace that belongs to it.
index($0, "==========") || index($0, "---[ end trace") { of_known = 0 }
{
    for (i = 1; i <= count && !index($0, splat[i]); i++);
    if (i > count) next
    if (splat[i] == "Call Trace:" && of_known) next
    row = row_of($0)
    of_known = row > 0
    if (row) seen[row]++
    else print
}

END {
    end_of_leak()
    for (row = 1; row <= rows; row++) if (seen[row]) printf "known: %s: %d times\n", known[row], seen[row]
}
