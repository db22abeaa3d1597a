#!/bin/bash
# test_gpu_check.sh SOURCE_DIR: tools/gpu-check.sh with a folder of fakes in place of the GPU, the
# sanitizer and the prebuilt binaries.
set -uo pipefail
check=$1/tools/gpu-check.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# The whole PATH, so that a real GPU or sanitizer is not found.
path=$scratch/path
mkdir "$path"
for tool in bash basename cat dirname env grep head mkdir mktemp rm sed tail tee timeout; do
    ln -s "$(command -v $tool)" "$path/$tool"
done
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$path/python3"

fake() { # FILE BODY
    printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
    chmod +x "$1"
}

prebuilt=$scratch/prebuilt
mkdir -p "$prebuilt/bin" "$prebuilt/data"
printf 'commit=abc123\ntoolkit=13.0.0\n' >"$prebuilt/BUILD"
fakes() { # the state in which everything passes
    fake "$path/nvidia-smi" 'case $* in
        -L) echo "GPU 0: Fake GPU (UUID: none)" ;;
        *query-gpu=name*) echo "Fake GPU" ;;
        *query-gpu=driver_version*) echo 1.2.3 ;;
        *) exit 1 ;;
        esac'
    fake "$path/compute-sanitizer" 'echo "========= COMPUTE-SANITIZER"
        echo "========= ERROR SUMMARY: 0 errors"'
    fake "$prebuilt/bin/pagestash" 'echo "$*"; echo "mismatched bytes: 0"'
    fake "$prebuilt/bin/pagestash_tests" 'echo "$*"; [ "$PAGESTASH_REQUIRE_GPU" = 1 ]'
    fake "$prebuilt/bin/example_01_stash_restore" 'echo done'
    fake "$prebuilt/bin/pagestash-bench" 'while [ $# -gt 0 ]; do
            [ "$1" != --json ] || echo "{\"schema_version\": 1}" >"$2"
            [ "$1" != --quick ] || echo quick
            shift
        done'
}

# Runs gpu-check.sh, which must end with CODE; what it says is in stdout and stderr.
expect() { # WHAT CODE ARGUMENTS...
    what=$1
    local wanted=$2 code
    shift 2
    rm -rf "$scratch/out"
    env -i PATH="$path" TMPDIR="${TMPDIR:-/tmp}" PREBUILT="$prebuilt" "$check" "$@" \
        >"$scratch/stdout" 2>"$scratch/stderr"
    code=$?
    [ $code -eq "$wanted" ] && return
    printf '%s: exit code %d, not %d\n' "$what" $code "$wanted"
    cat "$scratch/stdout" "$scratch/stderr"
    failures=$((failures + 1))
}

# A Python expression that must be true; r is the stage's record, d its details.
holds() { # STAGE EXPRESSION
    python3 - "$scratch/out/$1.json" "$2" <<'PYTHON' && return
import json, sys
r = json.load(open(sys.argv[1]))
d = r["details"]
step = {s["step"]: s for s in d["steps"]}
if not eval(sys.argv[2]):
    sys.exit(json.dumps(r, indent=1))
PYTHON
    printf '%s: %s.json: not true: %s\n' "$what" "$1" "$2"
    failures=$((failures + 1))
}

holds_line() { # FILE PATTERN: the only line of FILE
    [ "$(wc -l <"$scratch/$1")" -eq 1 ] && grep -q "$2" "$scratch/$1" && return
    printf '%s: %s is not one line with "%s":\n' "$what" "$1" "$2"
    cat "$scratch/$1"
    failures=$((failures + 1))
}

fakes
expect 'usage: no folder' 2
expect 'usage: unknown stage' 2 "$scratch/out" everything
holds_line stderr usage

rm "$path/nvidia-smi"
expect 'no nvidia-smi' 4 "$scratch/out"
holds_line stderr 'no GPU'
fake "$path/nvidia-smi" 'echo "No devices were found"; exit 6'
expect 'no device' 4 "$scratch/out" all
holds_line stderr 'no GPU'

fakes
expect 'default' 0 "$scratch/out"
holds correct 'r["status"] == "passed" and r["stage"] == "correct"'
holds correct '(r["machine"], r["driver"], r["toolkit"], r["commit"]) == ("Fake GPU", "1.2.3", "13.0.0", "abc123")'
holds correct '"*/cuda.*" in step["conformance"]["text"]'
holds correct 'step["example_01_stash_restore"]["text"] == "done"'
holds correct 'step["replay"]["text"] == "mismatched bytes: 0"'
holds bench 'd["report"] == {"schema_version": 1} and d["steps"][0]["text"] == "quick"'
[ ! -e "$scratch/out/sanitize.json" ] || { echo 'default: ran sanitize' && failures=$((failures + 1)); }

expect 'all' 0 "$scratch/out" all
holds bench 'd["steps"][0]["text"] == ""'
holds sanitize 'r["status"] == "passed" and len(d["steps"]) == 8'
for stage in host peers; do
    holds $stage 'r["status"] == "unavailable" and d["steps"][0]["text"] == "not built yet"'
done
cmp -s "$scratch/stdout" "$scratch/out/summary.txt" || { echo 'all: no summary' && failures=$((failures + 1)); }

fake "$prebuilt/bin/pagestash" 'echo "mismatched bytes: 7"; exit 1'
expect 'bytes differ' 1 "$scratch/out"
holds correct 'r["status"] == "failed" and step["replay"]["text"] == "mismatched bytes: 7"'
holds correct 'step["conformance"]["status"] == "passed"'
holds bench 'r["status"] == "passed"'

fakes
fake "$path/compute-sanitizer" 'echo "========= ERROR SUMMARY: 3 errors"
    case $* in *"--error-exitcode 86 "*) exit 86 ;; esac'
expect 'sanitizer finds errors' 1 "$scratch/out" sanitize
holds sanitize 'r["status"] == "failed" and "3 errors" in d["steps"][0]["text"]'
fake "$path/compute-sanitizer" 'echo "========= ERROR SUMMARY: 0 errors"; exit 1'
expect 'tests fail under the sanitizer' 1 "$scratch/out" sanitize
fake "$path/compute-sanitizer" 'case $* in
    *racecheck*) echo "========= Error: No attachable process found. compute-sanitizer timed-out."; exit 1 ;;
    *) echo "========= ERROR SUMMARY: 0 errors" ;;
    esac'
expect 'one sanitizer refused' 0 "$scratch/out" sanitize
holds sanitize 'r["status"] == "passed"'
holds sanitize 'step["racecheck example"]["status"] == "unavailable"'
holds sanitize '"attachable" in step["racecheck example"]["text"]'
rm "$path/compute-sanitizer"
expect 'no sanitizer' 0 "$scratch/out" sanitize
holds sanitize 'r["status"] == "unavailable"'

[ $failures -eq 0 ] && echo 'gpu-check.sh: all as expected'
