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
        (cd "$directory" && ./pan ${search:+"$search"} -m20000 -w24) >"$directory/pan.txt" 2>&1
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

one_ring='-DHOST_PAGES=0' # else 1
two_host='-DHOST_PAGES=2'

# Ordered pools, used as they should be.
ordered holds 'one stream, 3 operations' -DSCENARIO=PROPER $two -DOPS=3 -DMIGRATES
ordered holds 'one stream, 2 operations, scrub' -DSCENARIO=PROPER $two -DOPS=2 -DMIGRATES -DSCRUB
only_full ordered holds 'one stream, 3 operations, one ring' -DSCENARIO=PROPER $two -DOPS=3 $one_ring
only_full ordered holds 'damaged page table' -DSCENARIO=DAMAGED $two -DMIGRATES
ordered holds 'damaged page table, scrub' -DSCENARIO=DAMAGED $two -DMIGRATES -DSCRUB
only_full ordered holds 'damaged ring' -DSCENARIO=DAMAGED_RING $two
ordered holds 'damaged ring, scrub' -DSCENARIO=DAMAGED_RING $two -DSCRUB
only_full ordered holds 'one stream, 4 operations' -DSCENARIO=PROPER $two -DOPS=4 -DMIGRATES
only_full ordered holds 'one stream, 3 operations, 4 pages, scrub' -DSCENARIO=PROPER $two \
    -DOPS=3 -DMIGRATES $two_host -DSCRUB

# Ordered pools, misused: pages are conserved, damage to bytes is detected.
ordered holds 'two streams, 1 resident' -DSCENARIO=TWO_STREAMS $one
only_full ordered holds 'two streams, 2 resident' -DSCENARIO=TWO_STREAMS $two
ordered holds 'two streams, 1 resident, migrate' -DSCENARIO=TWO_STREAMS $one -DMIGRATES
ordered holds 'same ticket, 1 resident' -DSCENARIO=SAME_TICKET $one
ordered holds 'same ticket, 1 resident, migrate, scrub' -DSCENARIO=SAME_TICKET $one -DMIGRATES \
    -DSCRUB
only_full ordered holds 'two streams, 3 resident' -DSCENARIO=TWO_STREAMS $three
only_full ordered holds 'two streams, 2 resident, migrate, scrub' -DSCENARIO=TWO_STREAMS $two \
    -DMIGRATES -DSCRUB
only_full ordered holds 'same ticket, 2 resident' -DSCENARIO=SAME_TICKET $two
only_full ordered holds 'same ticket, 2 resident, migrate' -DSCENARIO=SAME_TICKET $two -DMIGRATES
only_full ordered holds 'same ticket, grids 1 and 3' -DSCENARIO=SAME_TICKET $two $small $large

# Seeded bugs of ordered pools.
ordered assertion 'BUG_ARRIVE_EARLY' -DSCENARIO=PROPER $two -DBUG_ARRIVE_EARLY
ordered assertion 'BUG_FREE_WITHOUT_CAS' -DSCENARIO=DAMAGED $two -DBUG_FREE_WITHOUT_CAS
ordered assertion 'BUG_OWNER_WITHOUT_PAGE' -DSCENARIO=DAMAGED $two -DBUG_OWNER_WITHOUT_PAGE
ordered assertion 'BUG_WRONG_RING' -DSCENARIO=PROPER $two -DBUG_WRONG_RING
ordered assertion 'BUG_DECIDES_TIERS_APART' -DSCENARIO=PROPER $two -DOPS=2 \
    -DBUG_DECIDES_TIERS_APART
ordered assertion 'BUG_MOVE_WRITES_TABLE_EARLY' -DSCENARIO=PROPER $two -DOPS=2 -DMIGRATES \
    -DBUG_MOVE_WRITES_TABLE_EARLY
ordered assertion 'BUG_SCRUB_BEFORE_READ' -DSCENARIO=PROPER $two -DSCRUB -DBUG_SCRUB_BEFORE_READ
ordered assertion 'BUG_SCRUB_AFTER_ARRIVAL' -DSCENARIO=PROPER $two -DSCRUB \
    -DBUG_SCRUB_AFTER_ARRIVAL
ordered assertion 'BUG_SCRUB_WITHOUT_OWNER' -DSCENARIO=DAMAGED $two -DSCRUB \
    -DBUG_SCRUB_WITHOUT_OWNER
ordered assertion 'BUG_SCRUB_WHAT_STAYS' -DSCENARIO=DAMAGED_RING $two -DSCRUB \
    -DBUG_SCRUB_WHAT_STAYS
ordered assertion 'BUG_RESET_SCRUBS_HELD' -DSCENARIO=TWO_STREAMS $one -DSCRUB \
    -DBUG_RESET_SCRUBS_HELD
ordered assertion 'BUG_NO_CLAIM' -DSCENARIO=TWO_STREAMS $two -DBUG_NO_CLAIM
ordered assertion 'BUG_NO_TAG_SUM' -DSCENARIO=TWO_STREAMS $two -DBUG_NO_TAG_SUM
ordered assertion 'BUG_LAUNCH_READ_LATE' -DSCENARIO=TWO_STREAMS $two -DBUG_LAUNCH_READ_LATE
ordered assertion 'BUG_RESET_KEEPS_ARRIVALS' -DSCENARIO=TWO_STREAMS $two \
    -DBUG_RESET_KEEPS_ARRIVALS
ordered assertion 'BUG_IDLE_EXITS' -DSCENARIO=SAME_TICKET $one -DBUG_IDLE_EXITS
ordered assertion 'BUG_NO_OP_NUMBER' -DSCENARIO=SAME_TICKET $one -DBUG_NO_OP_NUMBER
ordered assertion 'BUG_STORED_ARRIVALS' -DSCENARIO=SAME_TICKET $two $small $large \
    -DBUG_STORED_ARRIVALS

# Concurrent pools, used as they should be. A journey: stash, migrate, restore.
concurrent holds 'any operations, 1 resident' -DSCENARIO=PROPER $one
only_full concurrent holds 'any operations, 2 resident' -DSCENARIO=PROPER $two
concurrent holds 'migrate and any operations, 1 resident' -DSCENARIO=PROPER $one -DMIGRATES
concurrent holds 'one round, 2 resident' -DSCENARIO=ROUNDS $two
only_full concurrent holds 'one round, 2 resident, one ring' -DSCENARIO=ROUNDS $two $one_ring
only_full concurrent holds 'two rounds, 1 resident' -DSCENARIO=ROUNDS $one -DOPS=2
concurrent holds 'journeys, 1 resident' -DSCENARIO=JOURNEYS $one
concurrent holds 'journeys, 1 resident, scrub' -DSCENARIO=JOURNEYS $one -DSCRUB
concurrent holds 'handed over, 1 resident' -DSCENARIO=HANDOVER $one -DOPS=2
concurrent holds 'handed over, 2 resident' -DSCENARIO=HANDOVER $two
only_full concurrent holds 'damaged page table' -DSCENARIO=DAMAGED $two -DMIGRATES
concurrent holds 'damaged page table, scrub' -DSCENARIO=DAMAGED $two -DMIGRATES -DSCRUB
only_full concurrent holds 'damaged ring' -DSCENARIO=DAMAGED_RING $two
concurrent holds 'damaged ring, scrub' -DSCENARIO=DAMAGED_RING $two -DSCRUB
only_full concurrent holds 'two rounds, 2 resident' -DSCENARIO=ROUNDS $two -DOPS=2
only_full concurrent holds 'one round, 3 resident' -DSCENARIO=ROUNDS $three
only_full concurrent holds 'journeys, 2 resident' -DSCENARIO=JOURNEYS $two
only_full concurrent holds 'journey and round, 2 resident, scrub' -DSCENARIO=JOURNEYS $two \
    -DOPS_OTHERS=0 -DSCRUB
only_full concurrent holds 'journeys of 2 moves, 1 resident' -DSCENARIO=JOURNEYS $one -DOPS=2
only_full concurrent holds 'journeys, 1 resident, 4 pages' -DSCENARIO=JOURNEYS $one $two_host
only_full concurrent holds 'handed over twice, 2 resident' -DSCENARIO=HANDOVER $two -DOPS=2
only_full concurrent holds 'three streams, 1 resident' -DSCENARIO=ROUNDS $one -DSTREAMS=3 \
    -DTICKETS=3

# Concurrent pools, misused on one ticket.
concurrent holds 'same ticket, 1 resident' -DSCENARIO=SAME_TICKET $one
concurrent holds 'same ticket, 1 resident, migrate, scrub' -DSCENARIO=SAME_TICKET $one \
    -DMIGRATES -DSCRUB
only_full concurrent holds 'same ticket, 2 resident' -DSCENARIO=SAME_TICKET $two
only_full concurrent holds 'same ticket, 2 resident, migrate' -DSCENARIO=SAME_TICKET $two -DMIGRATES
only_full concurrent holds 'same ticket, grids 1 and 3' -DSCENARIO=SAME_TICKET $two $small $large

# Seeded bugs of concurrent pools.
concurrent deadlock 'BUG_LEADER_BLOCK0, 1 resident' -DSCENARIO=ROUNDS $one -DBUG_LEADER_BLOCK0
concurrent deadlock 'BUG_LEADER_BLOCK0, 2 resident' -DSCENARIO=ROUNDS $two -DBUG_LEADER_BLOCK0
concurrent deadlock 'BUG_LEADER_BLOCK0, migrate' -DSCENARIO=JOURNEYS $one -DBUG_LEADER_BLOCK0
concurrent deadlock 'BUG_RESERVE_TAIL, 1 resident' -DSCENARIO=ROUNDS $one $one_ring \
    -DBUG_RESERVE_TAIL
only_full concurrent deadlock 'BUG_RESERVE_TAIL, 2 resident' -DSCENARIO=ROUNDS $two $one_ring \
    -DBUG_RESERVE_TAIL -DSTREAMS=3 -DTICKETS=3
concurrent assertion 'BUG_GIVE_BACK_FIRST' -DSCENARIO=ROUNDS $one -DBUG_GIVE_BACK_FIRST
concurrent assertion 'BUG_ATOMIC_HEAD' -DSCENARIO=ROUNDS $two -DOPS=2 -DBUG_ATOMIC_HEAD
concurrent assertion 'BUG_UNLOCK_EARLY' -DSCENARIO=ROUNDS $two -DBUG_UNLOCK_EARLY
concurrent assertion 'BUG_READY_EARLY' -DSCENARIO=ROUNDS $two -DBUG_READY_EARLY
concurrent assertion 'BUG_READY_EARLY, migrate' -DSCENARIO=PROPER $two -DMIGRATES -DBUG_READY_EARLY
concurrent assertion 'BUG_EACH_DECIDES' -DSCENARIO=ROUNDS $one -DBUG_EACH_DECIDES
concurrent assertion 'BUG_ARRIVE_EARLY' -DSCENARIO=ROUNDS $two -DBUG_ARRIVE_EARLY
concurrent assertion 'BUG_FREE_WITHOUT_CAS' -DSCENARIO=DAMAGED $two -DBUG_FREE_WITHOUT_CAS
concurrent assertion 'BUG_OWNER_WITHOUT_PAGE' -DSCENARIO=DAMAGED $two -DBUG_OWNER_WITHOUT_PAGE
concurrent assertion 'BUG_WRONG_RING' -DSCENARIO=JOURNEYS $one -DBUG_WRONG_RING
concurrent assertion 'BUG_DECIDES_TIERS_APART' -DSCENARIO=JOURNEYS $one -DBUG_DECIDES_TIERS_APART
for bug in FREES_SOURCE_EARLY WRITES_TABLE_EARLY ONE_OWNER TAKES_LATE STALE_SCRATCH; do
    concurrent assertion "BUG_MOVE_$bug" -DSCENARIO=JOURNEYS $one -DBUG_MOVE_$bug
done
concurrent assertion 'BUG_MOVE_REFUSED_COMMITS' -DSCENARIO=SAME_TICKET $two -DMIGRATES \
    -DBUG_MOVE_REFUSED_COMMITS
concurrent assertion 'BUG_MOVE_TAKES_UNLOCKED' -DSCENARIO=JOURNEYS $two -DBUG_MOVE_TAKES_UNLOCKED
concurrent assertion 'BUG_SCRUB_BEFORE_READ' -DSCENARIO=JOURNEYS $one -DSCRUB \
    -DBUG_SCRUB_BEFORE_READ
concurrent assertion 'BUG_SCRUB_AFTER_ARRIVAL' -DSCENARIO=JOURNEYS $two -DSCRUB \
    -DBUG_SCRUB_AFTER_ARRIVAL
concurrent assertion 'BUG_SCRUB_WITHOUT_OWNER' -DSCENARIO=DAMAGED $two -DSCRUB \
    -DBUG_SCRUB_WITHOUT_OWNER
concurrent assertion 'BUG_SCRUB_WHAT_STAYS' -DSCENARIO=DAMAGED_RING $two -DSCRUB \
    -DBUG_SCRUB_WHAT_STAYS
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
