#!/bin/sh
# run.sh BUILD_DIR [ctest arguments]: ctest, with the number of C tests that ran and that were skipped
# for want of a GPU in front of its summary, with each test that was skipped and why, and once more the end of what
# each test printed that failed, so that it stands beside the summary.
# Where PSTI_TEST_ALL_TOOLS is 1, as in .ci/run, a skipped test fails the run, also one among others of Python in one
# entry. Two may be skipped: model.litmus, whose herd7 is in no package of Debian's, and tools.peers_triton, since
# nothing else wants Triton: gpu-check.sh peers runs it, on a GPU.
set -u
build=$1
shift
summary=$(mktemp)
skipped=$(mktemp)
trap 'rm -f "$summary" "$skipped"' EXIT

ctest --test-dir "$build" --output-on-failure --no-tests=error "$@" 2>&1 |
    awk -v rest="$summary" -v skipped="$skipped" '
        /^[0-9]+% tests passed/ { held = 1 }
        { if (held) print > rest; else { print; fflush() } }
        /\*\*\*Skipped/ { sub(/.*Test +#[0-9]+: /, ""); sub(/ .*/, ""); print > skipped }'

log=$build/Testing/Temporary/LastTest.log
awk '$2 == "Testing:" { name = $3 }
     /^Output:$/ { reading = 1; count = 0; next }
     /^<end of output>$/ { reading = 0 }
     reading && (count > 0 || !/^-+$/) { line[count++ % 25] = $0 }
     /^Test Failed\.$/ {
         printf "%s failed:\n", name
         for (i = count > 25 ? count - 25 : 0; i < count; i++) print "    " line[i % 25]
     }' "$log"
awk '/^tests run: [0-9]+, passed/ { run += $3; passed += $5; failed += $7; skipped += $NF }
     END { printf "C tests run: %d, passed: %d, failed: %d, skipped for want of a GPU: %d\n",
                  run, passed, failed, skipped }' "$log"
cat "$summary"
# The last line of what it printed says why.
awk -v skipped="$skipped" 'BEGIN { while ((getline name < skipped) > 0) why[name] = "no reason was printed" }
     $2 == "Testing:" { name = $3 }
     /^Output:$/ { reading = 1; next }
     /^<end of output>$/ { reading = 0 }
     reading && name in why && !/^-+$/ && NF { why[name] = $0 }
     END { for (name in why) printf "skipped %s: %s\n", name, why[name] }' "$log" | sort
# unittest says only how many.
awk -v skipped="$skipped" '$2 == "Testing:" { name = $3 }
     /^OK \(.*skipped=[0-9]/ { print "skipped within " name ": " $0; print name >> skipped }' "$log"
grep -q '^100% tests passed' "$summary" || exit 1
if [ "${PSTI_TEST_ALL_TOOLS-}" = 1 ] && grep -qvxE 'model\.litmus|tools\.peers_triton' "$skipped"; then
    echo "PSTI_TEST_ALL_TOOLS is 1: no test may be skipped but model.litmus and tools.peers_triton"
    exit 1
fi
