#!/bin/sh
# Checks the allocation protocols with Spin.
# usage: run.sh [quick|full] [WORKDIR]
# One line per configuration. Exit 0: all as expected; 1: not; 2: usage; 77: no spin or no gcc.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-quick}
case $mode in
quick | full) ;;
*)
    echo "usage: run.sh [quick|full] [WORKDIR]; '$mode' is neither quick nor full" >&2
    exit 2
    ;;
esac
for program in spin gcc; do
    if ! command -v "$program" >/dev/null 2>&1; then
        echo "skipped: $program is not installed"
        exit 77
    fi
done
if [ $# -ge 2 ]; then
    work=$2
    mkdir -p "$work" || exit 2
else
    work=$(mktemp -d) || exit 2
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
fi

memory_mib=6000
configurations=0
failures=0

# What pan says in its output, as one word.
verdict() {
    if grep -q '^pan:1: assertion violated' "$1"; then
        echo assertion # pan stops at the first error
    elif grep -q '^pan:1: invalid end state' "$1"; then
        echo deadlock
    elif grep -Eq 'Search not completed|too small|out of memory|reached -DMEMLIM' "$1"; then
        echo incomplete
    elif ! grep -q '^Full statespace search for:' "$1"; then
        echo crashed
    elif grep -q 'errors: 0$' "$1"; then
        echo holds
    else
        echo unknown
    fi
}

# check MODEL EXPECTED NAME DEFINE...
# EXPECTED: holds, or the one error that is looked for and must be found: assertion, deadlock.
check() {
    model=$1 expected=$2 name=$3
    shift 3
    directory=$work/$model-$(echo "$name" | tr -c 'a-zA-Z0-9\n' '-')
    mkdir -p "$directory" || exit 1
    case $expected in
    holds) compile='-O1' search='' ;;
    assertion) compile='-O0' search='-E' ;; # other errors hidden
    deadlock) compile='-O0' search='-A' ;;
    esac
    start=$(date +%s%N)
    states=-
    if ! (cd "$directory" && spin -a "$@" "$here/$model.pml") >"$directory/spin.txt" 2>&1 ||
        grep -Eiq 'error|warning' "$directory/spin.txt"; then
        result='spin failed'
    elif ! (cd "$directory" && gcc "$compile" -w -DSAFETY -DCOLLAPSE -DMEMLIM=$memory_mib \
        -o pan pan.c) >"$directory/gcc.txt" 2>&1; then
        result='gcc failed'
    else
        (cd "$directory" && ./pan ${search:+"$search"} -m20000 -w22) >"$directory/pan.txt" 2>&1
        result=$(verdict "$directory/pan.txt")
        states=$(awk '/states, stored$/ { print $1 }' "$directory/pan.txt")
    fi
    seconds=$(awk -v ns=$(($(date +%s%N) - start)) 'BEGIN { printf "%.1f", ns / 1e9 }')
    configurations=$((configurations + 1))
    mark=ok
    if [ "$result" != "$expected" ]; then
        mark=WRONG
        failures=$((failures + 1))
    fi
    printf '%-5s %-10s %-48s expected %-9s got %-11s %10s states %6s s\n' \
        "$mark" "$model" "$name" "$expected" "$result" "$states" "$seconds"
}

ordered() { check ordered "$@"; }
concurrent() { check concurrent "$@"; }
only_full() { [ "$mode" = full ] && check "$@"; }

one='-DRESIDENT=1'
two='-DRESIDENT=2'
three='-DRESIDENT=3'

small='-DGRID=1' # the launches of the first stream
large='-DGRID_OTHERS=3'

# Ordered pools, used as they should be.
ordered holds 'one stream, 3 operations' -DSCENARIO=PROPER $two -DOPS=3
ordered holds 'damaged page table' -DSCENARIO=DAMAGED $two
only_full ordered holds 'one stream, 5 operations' -DSCENARIO=PROPER $two -DOPS=5

# Ordered pools, misused: pages are conserved, damage to bytes is detected.
ordered holds 'two streams, 1 resident' -DSCENARIO=TWO_STREAMS $one
ordered holds 'two streams, 2 resident' -DSCENARIO=TWO_STREAMS $two
ordered holds 'same ticket, 1 resident' -DSCENARIO=SAME_TICKET $one
only_full ordered holds 'two streams, 3 resident' -DSCENARIO=TWO_STREAMS $three
only_full ordered holds 'two streams, 2+1 operations' -DSCENARIO=TWO_STREAMS $two -DOPS=2 \
    -DOPS_OTHERS=1
only_full ordered holds 'same ticket, 2 resident' -DSCENARIO=SAME_TICKET $two
only_full ordered holds 'same ticket, grids 1 and 3' -DSCENARIO=SAME_TICKET $two $small $large

# Seeded bugs of ordered pools.
ordered assertion 'BUG_ARRIVE_EARLY' -DSCENARIO=PROPER $two -DBUG_ARRIVE_EARLY
ordered assertion 'BUG_FREE_WITHOUT_CAS' -DSCENARIO=DAMAGED $two -DBUG_FREE_WITHOUT_CAS
ordered assertion 'BUG_OWNER_WITHOUT_PAGE' -DSCENARIO=DAMAGED $two -DBUG_OWNER_WITHOUT_PAGE
ordered assertion 'BUG_NO_CLAIM' -DSCENARIO=TWO_STREAMS $two -DBUG_NO_CLAIM
ordered assertion 'BUG_NO_TAG_SUM' -DSCENARIO=TWO_STREAMS $two -DBUG_NO_TAG_SUM
ordered assertion 'BUG_LAUNCH_READ_LATE' -DSCENARIO=TWO_STREAMS $two -DBUG_LAUNCH_READ_LATE
ordered assertion 'BUG_RESET_KEEPS_ARRIVALS' -DSCENARIO=TWO_STREAMS $two \
    -DBUG_RESET_KEEPS_ARRIVALS
ordered assertion 'BUG_IDLE_EXITS' -DSCENARIO=SAME_TICKET $one -DBUG_IDLE_EXITS
ordered assertion 'BUG_NO_OP_NUMBER' -DSCENARIO=SAME_TICKET $one -DBUG_NO_OP_NUMBER
ordered assertion 'BUG_STORED_ARRIVALS' -DSCENARIO=SAME_TICKET $two $small $large \
    -DBUG_STORED_ARRIVALS

# Concurrent pools, used as they should be.
concurrent holds 'any operations, 1 resident' -DSCENARIO=PROPER $one
concurrent holds 'any operations, 2 resident' -DSCENARIO=PROPER $two
concurrent holds 'one round, 2 resident' -DSCENARIO=ROUNDS $two
concurrent holds 'two rounds, 1 resident' -DSCENARIO=ROUNDS $one -DOPS=2
concurrent holds 'handed over, 1 resident' -DSCENARIO=HANDOVER $one -DOPS=2
concurrent holds 'handed over, 2 resident' -DSCENARIO=HANDOVER $two
concurrent holds 'damaged page table' -DSCENARIO=DAMAGED $two
only_full concurrent holds 'two rounds, 2 resident' -DSCENARIO=ROUNDS $two -DOPS=2
only_full concurrent holds 'one round, 3 resident' -DSCENARIO=ROUNDS $three
only_full concurrent holds 'handed over twice, 2 resident' -DSCENARIO=HANDOVER $two -DOPS=2
only_full concurrent holds 'three streams, 1 resident' -DSCENARIO=ROUNDS $one -DSTREAMS=3 \
    -DTICKETS=3

# Concurrent pools, misused on one ticket.
concurrent holds 'same ticket, 1 resident' -DSCENARIO=SAME_TICKET $one
only_full concurrent holds 'same ticket, 2 resident' -DSCENARIO=SAME_TICKET $two
only_full concurrent holds 'same ticket, grids 1 and 3' -DSCENARIO=SAME_TICKET $two $small $large

# Seeded bugs of concurrent pools.
concurrent deadlock 'BUG_LEADER_BLOCK0, 1 resident' -DSCENARIO=ROUNDS $one -DBUG_LEADER_BLOCK0
concurrent deadlock 'BUG_LEADER_BLOCK0, 2 resident' -DSCENARIO=ROUNDS $two -DBUG_LEADER_BLOCK0
concurrent deadlock 'BUG_RESERVE_TAIL, 1 resident' -DSCENARIO=ROUNDS $one -DBUG_RESERVE_TAIL
only_full concurrent deadlock 'BUG_RESERVE_TAIL, 2 resident' -DSCENARIO=ROUNDS $two \
    -DBUG_RESERVE_TAIL -DSTREAMS=3 -DTICKETS=3
concurrent assertion 'BUG_GIVE_BACK_FIRST' -DSCENARIO=ROUNDS $one -DBUG_GIVE_BACK_FIRST
concurrent assertion 'BUG_ATOMIC_HEAD' -DSCENARIO=ROUNDS $two -DOPS=2 -DBUG_ATOMIC_HEAD
concurrent assertion 'BUG_UNLOCK_EARLY' -DSCENARIO=ROUNDS $two -DBUG_UNLOCK_EARLY
concurrent assertion 'BUG_READY_EARLY' -DSCENARIO=ROUNDS $two -DBUG_READY_EARLY
concurrent assertion 'BUG_EACH_DECIDES' -DSCENARIO=ROUNDS $one -DBUG_EACH_DECIDES
concurrent assertion 'BUG_ARRIVE_EARLY' -DSCENARIO=ROUNDS $two -DBUG_ARRIVE_EARLY
concurrent assertion 'BUG_FREE_WITHOUT_CAS' -DSCENARIO=DAMAGED $two -DBUG_FREE_WITHOUT_CAS
concurrent assertion 'BUG_OWNER_WITHOUT_PAGE' -DSCENARIO=DAMAGED $two -DBUG_OWNER_WITHOUT_PAGE
concurrent assertion 'BUG_NO_CLAIM' -DSCENARIO=SAME_TICKET $two -DBUG_NO_CLAIM
concurrent assertion 'BUG_NO_TAG_SUM' -DSCENARIO=SAME_TICKET $one -DBUG_NO_TAG_SUM
concurrent assertion 'BUG_NO_OP_NUMBER' -DSCENARIO=SAME_TICKET $one -DBUG_NO_OP_NUMBER
only_full concurrent assertion 'BUG_STORED_ARRIVALS' -DSCENARIO=SAME_TICKET $two $small $large \
    -DBUG_STORED_ARRIVALS
concurrent assertion 'BUG_RESET_KEEPS_ARRIVALS' -DSCENARIO=SAME_TICKET $one \
    -DBUG_RESET_KEEPS_ARRIVALS
concurrent assertion 'BUG_RESET_KEEPS_READY' -DSCENARIO=SAME_TICKET $two -DBUG_RESET_KEEPS_READY

echo "$mode: $configurations configurations, $failures not as expected"
[ "$failures" -eq 0 ]
