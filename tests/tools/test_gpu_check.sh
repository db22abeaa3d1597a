#!/bin/bash
# test_gpu_check.sh SOURCE_DIR: tools/gpu-check.sh with a folder of fakes in place of the GPU, the
# sanitizer and the prebuilt binaries.
set -uo pipefail
check=$1/tools/gpu-check.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
megatron_ops=

# The whole PATH, so that a real GPU or sanitizer is not found.
path=$scratch/path
mkdir "$path"
for tool in bash basename cat cp dirname env grep head mkdir mktemp rm sed tail tee timeout; do
    ln -s "$(command -v $tool)" "$path/$tool"
done
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$path/python3"

fake() { # FILE BODY
    printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$1"
    chmod +x "$1"
}

prebuilt=$scratch/prebuilt
mkdir -p "$prebuilt/bin" "$prebuilt/data" "$prebuilt/bench/peers"
printf 'commit=abc123\ntoolkit=13.0.0\n' >"$prebuilt/BUILD"
peers() { # PYTHON
    printf 'import sys\n%s\n' "$1" >"$prebuilt/bench/peers/run.py"
}
fakes() { # the state in which everything passes
    fake "$path/nvidia-smi" 'case $* in
        -L) echo "GPU 0: Fake GPU (UUID: none)" ;;
        *query-gpu=name*) echo "Fake GPU" ;;
        *query-gpu=driver_version*) echo 1.2.3 ;;
        *) exit 1 ;;
        esac'
    fake "$path/ldconfig" 'echo "	libnccl.so.2 (libc6,x86-64) => /lib/libnccl.so.2"'
    fake "$path/compute-sanitizer" 'echo "========= COMPUTE-SANITIZER"
        echo "========= ERROR SUMMARY: 0 errors"'
    fake "$prebuilt/bin/pagestash" 'echo "$*"; echo "mismatched bytes: 0"'
    fake "$prebuilt/bin/pagestash_tests" 'echo "$*"; [ "$PAGESTASH_REQUIRE_GPU" = 1 ]'
    fake "$prebuilt/bin/example_01_stash_restore" 'echo done'
    fake "$prebuilt/bin/pagestash-bench" 'echo "$*"
        while [ $# -gt 0 ]; do
            [ "$1" != --json ] || echo "{\"schema_version\": 2}" >"$2"
            shift
        done'
    peers 'print(*sys.argv[1:]); open(sys.argv[2], "w").write("{}")'
}

# Runs gpu-check.sh, which must end with CODE; what it says is in stdout and stderr.
expect() { # WHAT CODE ARGUMENTS...
    what=$1
    local wanted=$2 code
    shift 2
    rm -rf "$scratch/out"
    env -i PATH="$path" TMPDIR="${TMPDIR:-/tmp}" PREBUILT="$prebuilt" MEGATRON_OPS="$megatron_ops" \
        "$check" "$@" \
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
holds correct '"*/cuda_bulk.*:*/cuda_squeeze.*" in step["conformance bulk squeeze"]["text"]'
holds correct '"OneRank" in step["nccl"]["text"] and step["nccl"]["status"] == "passed"'
holds correct '{"replay spill", "replay offload scrub", "replay grow"} <= set(step)'
holds correct 'step["example_01_stash_restore"]["text"] == "done"'
holds correct 'step["replay"]["text"] == "mismatched bytes: 0"'
holds bench 'd["reports"] == ["bench-quick.json"] and list(step) == ["quick"]'
holds bench '"--quick" in step["quick"]["text"]'
grep -q schema_version "$scratch/out/bench-quick.json" || { echo 'default: no report' && failures=$((failures + 1)); }
[ ! -e "$scratch/out/sanitize.json" ] || { echo 'default: ran sanitize' && failures=$((failures + 1)); }

expect 'all' 0 "$scratch/out" all
holds bench 'list(step) == ["bytes", "num_sms", "pages", "shapes", "beside"]'
grep -q schema_version "$scratch/out/bench-host.json" || { echo 'host: no report' && failures=$((failures + 1)); }
holds bench 'len(d["reports"]) == 5 and "--quick" not in str(d["steps"])'
holds bench '"--sweep page_size,ring " in step["pages"]["text"]'
holds bench '{n for s in d["steps"] for n in s["text"].split()[3].split(",")} == {"bytes", "num_sms",
    "page_size", "ring", "pattern", "tensors", "alignment", "backend", "gemm", "pairs"}'
holds sanitize 'r["status"] == "passed" and len(d["steps"]) == 8'
holds host 'r["status"] == "passed" and d["reports"] == ["bench-host.json"]'
holds host '"--sweep host " in step["host"]["text"]'
holds peers 'r["status"] == "passed" and d["reports"] == ["peers-report.json"]'
holds peers '"megatron" not in d["steps"][0]["text"] and "--library" in d["steps"][0]["text"]'
cmp -s "$scratch/stdout" "$scratch/out/summary.txt" || { echo 'all: no summary' && failures=$((failures + 1)); }

fake "$path/ldconfig" ''
fake "$path/find" ''
expect 'no nccl' 0 "$scratch/out" correct
holds correct 'step["nccl"]["status"] == "unavailable" and r["status"] == "passed"'

fake "$prebuilt/bin/pagestash" 'echo "mismatched bytes: 7"; exit 1'
expect 'bytes differ' 1 "$scratch/out"
holds correct 'r["status"] == "failed" and step["replay"]["text"] == "mismatched bytes: 7"'
holds correct 'step["conformance"]["status"] == "passed"'
holds bench 'r["status"] == "passed"'

fakes
fake "$prebuilt/bin/pagestash-bench" 'case $* in *num_sms*) echo "1 bytes differ"; exit 1 ;; esac'
expect 'one sweep fails' 1 "$scratch/out" bench
holds bench 'r["status"] == "failed" and step["num_sms"]["text"] == "1 bytes differ"'
holds bench 'step["beside"]["status"] == "passed" and d["reports"] == []'

fakes
fake "$prebuilt/bin/pagestash-bench" 'echo "pagestash-bench: 5 bytes differ"; exit 1'
expect 'host pages differ' 1 "$scratch/out" host
holds host 'r["status"] == "failed" and step["host"]["text"].endswith("5 bytes differ")'
holds host 'd["reports"] == []'

fakes
megatron_ops=/somewhere/paged_stash.py
expect 'Megatron' 0 "$scratch/out" peers
holds peers '"--megatron-ops /somewhere/paged_stash.py" in d["steps"][0]["text"]'
megatron_ops=
peers 'sys.exit(print("run.py: torch is not installed", file=sys.stderr) or 4)'
expect 'no torch' 0 "$scratch/out" peers
holds peers 'r["status"] == "unavailable" and "torch" in d["steps"][0]["text"]'
peers 'sys.exit(1)'
expect 'peers differ' 1 "$scratch/out" peers

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
