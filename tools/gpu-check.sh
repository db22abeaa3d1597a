#!/bin/bash
# gpu-check.sh OUTDIR [correct|sanitize|bench|host|schedule|peers|train|memo|all]: what needs a GPU, each stage in under
# eight minutes. Without a stage: correct, and a quick bench.
#
# Leaves in OUTDIR one JSON for each stage, log.txt, and summary.txt, the table that is printed last;
# besides bench-NAME.json for each step of bench, host and schedule, peers-report.json, train-report.json,
# memo-report.json, and the tables that they print.
# MEGATRON_OPS names the user's copy of Megatron-LM's paged_stash.py, which peers then times as well.
# Runs the prebuilt folder PREBUILT (tools/gpu-package.sh makes it; build/gpu if that is there), or
# builds from source in build/gpu-source.
# Exit codes: 0 nothing failed; 1 something failed; 2 usage; 4 there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
stage_seconds=470

say() { printf 'gpu-check.sh: %s\n' "$1" >&2; }

# ---- arguments and machine

case ${2-} in
'') stages='correct bench' quick=--quick ;;
correct | sanitize | bench | host | schedule | peers | train | memo) stages=$2 quick= ;;
all) stages='correct sanitize bench host schedule peers train memo' quick= ;;
*) stages= ;;
esac
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ -z "$1" ] || [ -z "$stages" ]; then
    say 'usage: gpu-check.sh OUTDIR [correct|sanitize|bench|host|schedule|peers|train|memo|all]'
    exit 2
fi

if ! command -v nvidia-smi >/dev/null; then
    say 'no GPU: there is no nvidia-smi on this machine'
    exit 4
fi
machine=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
    say 'no GPU: nvidia-smi lists none'
    exit 4
fi

mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2
log=$out/log.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$log"

# ---- binaries

prebuilt=${PREBUILT:-}
[ -n "$prebuilt" ] || for prebuilt in "$here" "$root/build/gpu" ''; do
    [ ! -f "$prebuilt/BUILD" ] || break
done

build_from_source() {
    local build=$root/build/gpu-source
    say "building in $build"
    {
        cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPAGESTASH_CUDA=ON \
            -DCMAKE_CUDA_ARCHITECTURES=native -DPAGESTASH_TEST_TSAN=OFF && cmake --build "$build"
    } >>"$log" 2>&1 || return
    bin=$scratch/bin data=$root/bench/data
    mkdir "$bin" && ln -s "$build"/bin/pagestash{,-bench,-schedule-bench} "$build"/libpagestash.so \
        "$build"/tests/pagestash_tests "$build"/tests/example_* "$bin"
    scripts=$root/bench trainers=$here
    commit=$(git -C "$root" describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null) || commit=unknown
    toolkit=$(nvcc --version 2>/dev/null | sed -n 's/.*, V\([0-9.]*\).*/\1/p')
}

if [ -z "$prebuilt" ]; then
    if ! build_from_source; then
        say "the build failed, see $log; tools/gpu-package.sh makes a prebuilt folder on another machine"
        exit 1
    fi
elif [ -f "$prebuilt/BUILD" ] && [ -x "$prebuilt/bin/pagestash" ]; then
    bin=$prebuilt/bin data=$prebuilt/data scripts=$prebuilt/bench trainers=$prebuilt
    commit=$(sed -n 's/^commit=//p' "$prebuilt/BUILD")
    toolkit=$(sed -n 's/^toolkit=//p' "$prebuilt/BUILD")
else
    say "PREBUILT=$prebuilt: no prebuilt folder, which tools/gpu-package.sh makes"
    exit 2
fi

# ---- steps: one command each

# A line of the stage's record: NAME STATUS SECONDS TEXT, between tabs.
note() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4//$'\t'/ }" >>"$scratch/steps"; }

last_line() { grep -v '^[[:space:]]*$' "$scratch/output" | tail -n 1; }

# Runs a command for at most LIMIT seconds of what the stage has left. Sets code and seconds.
run() { # NAME LIMIT COMMAND...
    local name=$1 limit=$2 left=$((deadline - SECONDS)) begin=$SECONDS
    shift 2
    [ "$left" -ge 1 ] || left=1
    [ "$limit" -le "$left" ] || limit=$left
    printf '\n== %s, at most %d s: %s\n' "$name" "$limit" "$*" >>"$log"
    timeout -k 10 "$limit" "$@" >"$scratch/output" 2>&1 </dev/null
    code=$? seconds=$((SECONDS - begin))
    cat "$scratch/output" >>"$log"
    printf '== exit code %d\n' "$code" >>"$log"
    [ "$code" -ne 124 ] || printf 'took more than %d s\n' "$limit" >>"$scratch/output"
}

step() { # NAME LIMIT COMMAND...
    local status=passed
    run "$@"
    [ "$code" -eq 0 ] || status=failed
    note "$1" "$status" "$seconds" "$(last_line)"
}

# A tool that cannot do its work here comes to no summary, or says so: that is no failure of ours.
sanitizer_step() { # TOOL NAME LIMIT COMMAND...
    local tool=$1 name="$1 $2" limit=$3 status=passed text
    local refusals='not supported|Internal Sanitizer Error|nsufficient [Pp]ermission|timed-out|before first instrumented|No attachable process'
    local options=(--tool "$tool" --error-exitcode 86)
    shift 3
    # some tests provoke errors of the CUDA API
    [ "$tool" != memcheck ] || options+=(--report-api-errors no)
    run "$name" "$limit" env PAGESTASH_REQUIRE_GPU=1 compute-sanitizer "${options[@]}" "$@"
    text=$(grep ' SUMMARY: ' "$scratch/output" | tail -n 1)
    if [ "$code" -eq 124 ]; then
        status=failed text=$(last_line)
    elif [ -z "$text" ] || grep -qE "^=========.*($refusals)" "$scratch/output"; then
        status=unavailable
        text=$(grep -E "^=========.*($refusals|[Ee]rror)" "$scratch/output" | head -n 1)
        [ -n "$text" ] || text=$(last_line)
    elif [ "$code" -ne 0 ]; then
        status=failed
    fi
    note "$name" "$status" "$seconds" "$text"
}

# One rank: NCCL is where the user says, or the one that torch brought along.
step_nccl() {
    local library=${PAGESTASH_NCCL_LIBRARY:-} folders
    [ -n "$library" ] || library=$(ldconfig -p | sed -n 's/.* => \(.*libnccl\.so\.2\)$/\1/p' | head -n 1)
    if [ -z "$library" ]; then
        mapfile -t folders < <(python3 -c 'import site; print(*site.getsitepackages(), sep="\n")')
        library=$(find "${folders[@]}" -name libnccl.so.2 2>/dev/null | head -n 1)
    fi
    if [ -z "$library" ]; then
        note nccl unavailable 0 'no libnccl.so.2 on this machine'
        return
    fi
    step nccl 60 env PAGESTASH_REQUIRE_GPU=1 PAGESTASH_NCCL_LIBRARY="$library" \
        "$bin/pagestash_tests" --gtest_brief=1 '--gtest_filter=Nccl.OneRankOnAGpuAgreesWithItself'
}

# ---- stages

stage_correct() {
    local example trace=$data/bytelm-e64-top6-l6.csv
    local replay=("$bin/pagestash" replay --device cuda --routing "$trace" --expert-model-parallel-size 8)
    for example in "$bin"/example_*; do
        step "$(basename "$example" cuda)" 60 "$example"
    done
    step 'replay' 60 "${replay[@]}"
    step 'replay segments zero' 60 "${replay[@]}" --layout segments --tail zero
    step 'replay 1f1b two streams' 60 "${replay[@]}" --stages 4 --num-micro-batches 10 --streams 2
    step 'replay zb-h1 mxfp8 no-graph' 60 "${replay[@]}" --dtype mxfp8 --schedule zb-h1 --stages 4 \
        --num-micro-batches 10 --streams 4 --no-graph
    step 'replay dualpipe two streams' 60 "${replay[@]}" --schedule dualpipe --stages 4 \
        --num-micro-batches 10 --streams 2
    step 'replay one ring' 60 "${replay[@]}" --stages 4 --num-micro-batches 10 --one-ring --sources 4 \
        --tail zero
    replay+=(--schedule gpipe-reversed --keeps-nothing)
    step 'replay spill' 60 "${replay[@]}" --headroom 0.5 --host-headroom 1.0
    step 'replay offload scrub' 60 "${replay[@]}" --host-headroom 1.0 --offload-fraction 1/2 --scrub
    step 'replay grow' 60 "${replay[@]}" --headroom 0.5 --on-overflow grow
    step_nccl
    step conformance 200 env PAGESTASH_REQUIRE_GPU=1 "$bin/pagestash_tests" --gtest_brief=1 \
        '--gtest_filter=*/cuda.*'
    step 'conformance bulk squeeze' 300 env PAGESTASH_REQUIRE_GPU=1 "$bin/pagestash_tests" \
        --gtest_brief=1 '--gtest_filter=*/cuda_bulk.*:*/cuda_squeeze.*'
}

# A short set: the random cases take hours under a sanitizer.
stage_sanitize() {
    local tool filter limit
    if ! command -v compute-sanitizer >/dev/null; then
        note compute-sanitizer unavailable 0 'not on this machine'
        return
    fi
    for tool in memcheck initcheck synccheck racecheck; do
        filter='*/cuda.*-Random/*' limit=170
        [ "$tool" = memcheck ] || filter+=':Chaos/*' limit=60
        sanitizer_step "$tool" example 25 "$bin/example_01_stash_restore" cuda
        sanitizer_step "$tool" conformance $limit "$bin/pagestash_tests" --gtest_brief=1 \
            "--gtest_filter=$filter"
    done
}

# Its table, the goals and its JSON stay in OUTDIR, whatever becomes of the other steps.
bench_step() { # NAME LIMIT OPTIONS...
    local name=$1 limit=$2
    shift 2
    rm -f "$out/bench-$name.json"
    step "$name" "$limit" "$bin/${program:-pagestash-bench}" --device cuda "$@" \
        --json="$out/bench-$name.json"
    cp "$scratch/output" "$out/bench-$name.txt"
    [ ! -f "$out/bench-$name.json" ] ||
        python3 "$scripts/goals.py" "$out/bench-$name.json" >>"$out/bench-$name.txt" 2>&1
}

# In steps, so that one which takes too long loses only its own sweeps.
stage_bench() {
    if [ -n "$quick" ]; then
        bench_step quick 460 --quick
        return
    fi
    bench_step bytes 130 --sweep bytes
    bench_step num_sms 130 --sweep num_sms
    bench_step pages 70 --sweep page_size,ring
    bench_step shapes 90 --sweep pattern,tensors,alignment,pitch,backend
    bench_step beside 60 --sweep gemm,pairs
}

# Between the device and pinned memory; 16 GiB of it take a while to pin.
stage_host() { bench_step host 460 --sweep host; }

# What the scheduler hides: exposed time in several ways, graphs, simulated against measured.
stage_schedule() {
    local program=pagestash-schedule-bench
    bench_step schedule-64MiB 110 --live 64MiB
    bench_step schedule-256MiB 150 --live 256MiB
    bench_step schedule-1GiB 200 --live 1GiB --layers 3
}

stage_peers() {
    local status=passed options=(--json="$out/peers-report.json" --library "$bin/libpagestash.so")
    [ -z "${MEGATRON_OPS:-}" ] || options+=(--megatron-ops "$MEGATRON_OPS")
    rm -f "$out/peers-report.json"
    run peers 460 python3 "$scripts/peers/run.py" "${options[@]}"
    cp "$scratch/output" "$out/peers.txt"
    # torch, Triton or the GPU is absent for it
    [ "$code" -ne 4 ] || status=unavailable
    [ "$code" -eq 0 ] || [ "$code" -eq 4 ] || status=failed
    note peers "$status" "$seconds" "$(last_line)"
}

trainer_stage() { # NAME: of the stage and of gpu-NAME.py
    local status=passed
    rm -f "$out/$1-report.json"
    run "$1" 460 env PAGESTASH_LIBRARY="$bin/libpagestash.so" python3 "$trainers/gpu-$1.py" "$out"
    cp "$scratch/output" "$out/$1.txt"
    # torch, or its CUDA, is absent
    [ "$code" -ne 4 ] || status=unavailable
    [ "$code" -eq 0 ] || [ "$code" -eq 4 ] || status=failed
    note "$1" "$status" "$seconds" "$(last_line)"
}

# An MoE whose captured steps are replayed: keeping everything, pages, host pages, recomputation.
stage_train() { trainer_stage train; }

# A GPT with long sequences: swapped by tokens, recomputed, kept in host memory, and kept.
stage_memo() { trainer_stage memo; }

# Writes the stage's JSON and its line of the table; false if the stage failed.
conclude() { # STAGE SECONDS
    python3 - "$out/$1.json" "$scratch" "$@" "$machine" "$driver" "$toolkit" "$commit" <<'PYTHON'
import json, os, sys
path, scratch, stage, seconds, machine, driver, toolkit, commit = sys.argv[1:]
steps = []
for line in open(scratch + "/steps", errors="replace"):
    name, status, took, text = line.rstrip("\n").split("\t")
    steps.append({"step": name, "status": status, "seconds": int(took), "text": text})
count = lambda status: sum(step["status"] == status for step in steps)
status = "failed" if count("failed") else "passed" if count("passed") else "unavailable"
details = {"steps": steps}
reports = [f"bench-{step['step']}.json" for step in steps] if stage in ("bench", "host", "schedule") \
    else [f"{stage}-report.json"] if stage in ("peers", "train", "memo") else []
details["reports"] = [name for name in reports
                      if os.path.exists(os.path.join(os.path.dirname(path), name))]
with open(path, "w") as out:
    json.dump({"stage": stage, "status": status, "seconds": int(seconds), "machine": machine,
               "driver": driver, "toolkit": toolkit or None, "commit": commit, "details": details},
              out, indent=2)
    out.write("\n")
words = ", ".join(f"{count(s)} {s}" for s in ("passed", "failed", "unavailable") if count(s))
first = next((s for s in steps if s["status"] == "failed"), None) \
    or next((s for s in steps if s["status"] == "unavailable"), None)
if first:
    words += f"; {first['step']}: {first['text'][:80]}"
with open(scratch + "/table", "a") as table:
    table.write(f"{stage:9} {status:12} {seconds:>7}  {words}\n")
sys.exit(status == "failed")
PYTHON
}

result=0
printf '%-9s %-12s %7s  %s\n' stage status seconds steps >"$scratch/table"
for stage in $stages; do
    begin=$SECONDS
    deadline=$((SECONDS + stage_seconds))
    : >"$scratch/steps"
    "stage_$stage"
    conclude "$stage" $((SECONDS - begin)) || result=1
done
{
    printf '%s, driver %s, CUDA %s, commit %s\n' "$machine" "$driver" "${toolkit:-unknown}" "$commit"
    cat "$scratch/table"
} | tee "$out/summary.txt"
exit $result
