#!/bin/sh
# run.sh [quick|full|given] [WORKDIR] checks the allocation protocols with Spin, as configurations.txt says, or the
# lines of it that standard input has (given). One line per configuration; quick runs one at once, the others as many
# as there are processors.
# Exit 0: all as expected; 1: not; 2: usage; 77: no spin or no gcc.
set -u
here=$(cd "$(dirname "$0")" && pwd)
memory_mib=6000

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

# search MODEL EXPECTED DEFINE...: runs Spin in the current directory and prints the verdict.
search() {
    model=$1 expected=$2
    shift 2
    case $expected in
    holds) compile='-O1' option='' ;;
    assertion) compile='-O0' option='-E' ;; # other errors hidden
    deadlock) compile='-O0' option='-A' ;;
    esac
    if ! spin -a "$@" "$here/$model.pml" >spin.txt 2>&1 || grep -Eiq 'error|warning' spin.txt; then
        echo 'spin failed'
    elif ! gcc "$compile" -w -fwrapv -DSAFETY -DCOLLAPSE -DMEMLIM=$memory_mib -o pan pan.c >gcc.txt 2>&1; then
        echo 'gcc failed'
    else
        ./pan ${option:+"$option"} -m20000 -w24 >pan.txt 2>&1
        verdict pan.txt
    fi
}

# check WORKDIR LINE: one configuration.
check() {
    IFS='|' read -r tier model expected name defines <<EOF
$2
EOF
    directory=$1/$model-$(echo "$name" | tr -c 'a-zA-Z0-9\n' '-')
    mkdir -p "$directory" && cd "$directory" || exit 1
    start=$(date +%s%N)
    result=$(search "$model" "$expected" $(printf -- '-D%s ' $defines))
    seconds=$(awk -v ns=$(($(date +%s%N) - start)) 'BEGIN { printf "%.1f", ns / 1e9 }')
    states=$(awk '/states, stored$/ { print $1 }' pan.txt 2>/dev/null)
    [ "$result" = "$expected" ] && mark=ok || mark=WRONG
    printf '%-5s %-10s %-48s expected %-9s got %-11s %10s states %6s s\n' \
        $mark "$model" "$name" "$expected" "$result" "${states:--}" "$seconds"
    [ $mark = ok ]
}

mode=${1:-quick} jobs=1
case $mode in
quick) tiers=quick ;;
full | given) tiers='quick|full' jobs=$(nproc) ;;
check)
    check "$2" "$3"
    exit
    ;;
*)
    echo "usage: run.sh [quick|full|given] [WORKDIR]; '$mode' is none of these" >&2
    exit 2
    ;;
esac
for program in spin gcc; do
    command -v "$program" >/dev/null 2>&1 || {
        echo "skipped: $program is not installed"
        [ "${PSTI_TEST_ALL_TOOLS-}" = 1 ] && exit 1 # .ci/run
        exit 77
    }
done
if [ $# -ge 2 ]; then
    mkdir -p "$2" && work=$(cd "$2" && pwd) || exit 2
else
    work=$(mktemp -d) || exit 2
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
fi

source=$here/configurations.txt
[ "$mode" != given ] || source=-
rows=$(grep -E "^($tiers)\\|" "$source")
echo "$rows" | xargs -d '\n' -P "$jobs" -n 1 "$0" check "$work"
result=$?
echo "$mode: $(echo "$rows" | wc -l) configurations, $([ $result -eq 0 ] && echo all || echo not all) as expected"
exit $((result != 0))
