#!/bin/sh
# run.sh BUILD_DIR [ctest arguments]: ctest, with the number of C tests that ran and that were skipped
# for want of a GPU in front of its summary.
set -u
build=$1
shift
summary=$(mktemp)
trap 'rm -f "$summary"' EXIT

ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" 2>&1 |
    awk -v rest="$summary" '/^[0-9]+% tests passed/ { held = 1 } { if (held) print > rest; else print }'

awk '/^tests run: [0-9]+, passed/ { run += $3; passed += $5; failed += $7; skipped += $NF }
     END { printf "C tests run: %d, passed: %d, failed: %d, skipped for want of a GPU: %d\n",
                  run, passed, failed, skipped }' "$build/Testing/Temporary/LastTest.log"
cat "$summary"
grep -q '^100% tests passed' "$summary"
