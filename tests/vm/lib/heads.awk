# Reads the heads of scripts that run in a guest: the comments before a script's first empty line. It prints a line for each thing that a
# head says: the script, a key and the text, with tabs between them. `.ci/run` and `tests/vm/run` know the lanes from this.
#
# usage: awk -f tests/vm/lib/heads.awk tests/vm/*/*.sh tests/vm/*/*/*.sh
#
# A head begins with what the lane is, and a line that is empty but for the `#`; of this text the first sentence is printed, as `about`:
#
#     # Lane NAME: what it is
#     #
#
# Then it says, with as many lines of each as it needs, when `.ci/run` runs the lane:
#
#     # kernels: 6.1 7.x              the kernels on which `.ci/run --all` runs it; without this line `.ci/run` does not have the lane
#     # by default: 7.x               the one of these on which it is run if it is due; without this line only --all runs it
#     # due: PATH !PATH $GROUP        it is due when a file that these match has changed since it last passed: as of the steps of `.ci/run`,
#                                     which also has the groups. If the first word is `later`, it is not due on a machine where it has not
#                                     passed yet. The script, and its folder if that is the lane's own (tests/vm/DEVICE/FOLDER), always count.
#
# and what `tests/vm/run` needs to run it:
#
#     # order: 1                      of several lanes the lowest is begun first, the longest; 99 if it does not say
#     # limit: 1800                   how many seconds it may take on a busy machine, if that is more than --limit
#     # only: 6.1                     where it can run, if not everywhere
#     # packages: gcc libc6-dev       Debian packages for the host
#     # boot: --append=log_buf_len=8M how the guest is booted, beyond what all lanes have
#     # vhca: --cap NAME=VALUE        it has a virtual ConnectX for each such line, with these options before those of UVERBS_VHCA_OPTIONS
#     # vefa: --cap NAME=VALUE        the same of a virtual EFA and UVERBS_VEFA_OPTIONS; not both in one lane
#     # verdma: --lose NUMBER         the same of a virtual eRDMA and UVERBS_VERDMA_OPTIONS
#     # vmana: --cap NAME=VALUE       the same of a virtual MANA and UVERBS_VMANA_OPTIONS
#     # nic: PATH,PEER mac=MAC        it has a network interface of virtio, with a wire between these sockets, as of a card's --wire, or
#                                     without one, and with a hardware address, if it says so
#     # peer: FILE.sh                 a second guest beside it, with a script beside this one and a head of its own (lib/far.sh); wires go
#                                     from one to the other
#     # cargo: VARIABLE build ...     an executable, or a library for C, that cargo builds; the guest finds its path in VARIABLE
#     # compile: VARIABLE FILE.c ...  a program in C below tests/vm, and options for it; `*` stands for several
#     # static: VARIABLE CC LIBRARY FILE.c ...   the same, compiled by CC and linked statically with the archive beside what cargo built for
#                                     LIBRARY
#     # roots: sid                    other releases of Debian, in ROOT_sid; their names in ROOTS
#     # systems: sid                  small systems of them that are installed, in SYSTEM_sid; their names in SYSTEMS
#     # monitors: sid                 systems of them that have systemd and Prometheus, in MONITORS_sid
#     # datapath: sid                 DPDK of them, in DATAPATH_sid; their names in DATAPATH
#     # consumers: sid                programs of them that are linked to libibverbs (dropin/releases/consumers), in CONSUMERS_sid; their names
#                                     in CONSUMERS
#     # crates: VARIABLE              programs of Rust's registry that bind libibverbs (dropin/releases/crates), in that directory
#     # compile-each: VARIABLE FILE.c the same as compile, with the headers of each of these and with those of the machine, in VARIABLE_sid
#     # module: VARIABLE siw          a module that modules.py builds for the kernel; where it cannot be built the lane is skipped
#     # passes: VARIABLE              what the guest is told of the runner's environment
#     # tests: any::device fork       programs of tests/, and modules of them, in the order in which they run; in TESTS
#
# It fails if a head says something else, or if what it says does not fit together.

BEGIN {
    keys = "kernels|by default|due|order|limit|only|packages|boot|vhca|vefa|verdma|vmana|nic|peer|cargo|compile|static|roots|systems|monitors|datapath|consumers"
    keys = keys "|crates|compile-each|module|passes|tests"
}

FNR == 1 { end_of_head(); file = FILENAME; place = "before" }

$0 == "" { place = "after" }

place == "after" { next }

place == "before" && /^# Lane [^ :]+: / {
    lane = substr($3, 1, length($3) - 1)
    about = $0
    sub(/^# Lane [^ ]+ /, "", about)
    place = "about"
    next
}

$0 == "#" { place = "keys"; next }

place == "about" { about = about substr($0, 2) }

place == "keys" && match($0, "^# (" keys "):( |$)") {
    key = substr($0, 3, index($0, ":") - 3)
    text = substr($0, RLENGTH + 1)
    said[key] = said[key] " " text
    printed = printed file "\t" key "\t" text "\n"
    next
}

place == "keys" && (lane != "" || printed != "") && /^# [a-z][a-z-]*:( |$)/ { wrong("`" substr($2, 1, length($2) - 1) "` is none of " keys) }

END { if (!has_failed) end_of_head() }

function end_of_head(    name) {
    if (lane != "") {
        name = file
        sub(/.*\//, "", name)
        if (name != lane ".sh") wrong("the name of lane " lane " is not the script's")
        if (("by default" in said) != ("due" in said)) wrong("`by default` and `due` go together")
        if ("by default" in said && index(said["kernels"] " ", said["by default"] " ") == 0) wrong("`by default` is none of `kernels`")
        sub(/\. .*/, "", about)
        sub(/\.$/, "", about)
        print file "\tlane\t" lane
        print file "\tabout\t" about
    } else if ("kernels" in said || "due" in said) {
        wrong("it is no lane")
    }
    printf "%s", printed
    lane = about = printed = ""
    split("", said)
}

function wrong(what) {
    print file ": " what >"/dev/stderr"
    has_failed = 1
    exit 1
}
