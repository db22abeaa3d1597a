#!/bin/sh
# full_disk.sh PROGRAM...: --help and --version of each program onto a full disk are refused, and those of
# each command of pagestash.
set -u
bad=0

check() {
    said=$("$@" 2>&1 >/dev/full)
    code=$?
    case $code:$said in
    3:*'standard output: No space left on device') ;;
    *) echo "$*: exit $code, \"$said\"" && bad=1 ;;
    esac
}

for program; do
    check "$program" --help
    check "$program" --version
    [ "$(basename "$program")" = pagestash ] || continue
    for command in replay trace plan simulate estimate top env; do
        check "$program" "$command" --help
        check "$program" "$command" --version
        check "$program" help "$command"
    done
done
exit $bad
