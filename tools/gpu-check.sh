#!/bin/bash
# gpu-check.sh [--dry-run] OUTDIR STAGE, or --list: what needs a GPU, after gpu-first.sh. One command runs
# one stage in under nine minutes. It ends at the first failure, of which a wrong byte is one, in
# measurements, too. What its limit leaves no time for is cut, and said to be.
# gpu-common.sh says what OUTDIR gets, and the exit codes; docs/gpu.md, what each figure decides.
# MEGATRON_OPS names the user's copy of Megatron-LM's paged_stash.py, which peers then times as well.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
program=gpu-check.sh usage='gpu-check.sh [--dry-run] OUTDIR STAGE, or --list for the stages'
. "$here/gpu-common.sh"

stages='correct      examples, recorded routing in many ways, NCCL
conformance  all behaviours in backend ldg, random cases with them
rings        the same in bulk and squeeze
budget       where the blocks of SM budgets land; speed over num_sms
bench        speed over sizes, pages, patterns, backends
glu          gated activations with pages: right, and how fast
linear       tensor-parallel linears: NCCL of one rank, and how fast
beside       products of cuBLAS beside stash and restore; random pairs
profile      Nsight Compute on stash and restore
host         the pinned tier
schedule     what the scheduler hides
sanitize     compute-sanitizer
peers        Triton, torch and Megatron-LM on the same work
train        an MoE trained in captured steps
memo         long sequences, swapped by tokens'

[ "${1-}" != --list ] || { printf '%s\n' "$stages" && exit; }
[ "${1-}" != --dry-run ] || { dry=yes && shift; }
[ $# -eq 2 ] && [ -n "$1" ] && [ "${1#-}" = "$1" ] || usage
grep -q "^$2 " <<<"$stages" || usage

# ---- steps of their own kind

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
    if [ "$was_cut" ]; then
        status=cut text=$(last_line)
    elif [ "$code" -eq 124 ]; then
        status=failed text=$(last_line)
    elif [ -n "$dry" ]; then
        status=planned text=$(last_line)
    elif [ -z "$text" ] || grep -qE "^=========.*($refusals)" "$scratch/output"; then
        status=unavailable
        text=$(grep -E "^=========.*($refusals|[Ee]rror)" "$scratch/output" | head -n 1)
        [ -n "$text" ] || text=$(last_line)
    elif [ "$code" -ne 0 ]; then
        status=failed
    fi
    note "$name" "$status" "$seconds" "$text"
    [ "$status" != failed ]
}

# One rank.
step_nccl() {
    local library=${PAGESTASH_NCCL_LIBRARY:-$(library_path libnccl.so.2)}
    if [ -z "$library" ]; then
        note nccl unavailable 0 'no libnccl.so.2 on this machine'
        return
    fi
    optional_step nccl 60 env PAGESTASH_REQUIRE_GPU=1 PAGESTASH_NCCL_LIBRARY="$library" \
        "$bin/pagestash_tests" --gtest_brief=1 '--gtest_filter=*Nccl.OneRankOnAGpu*'
}

# ---- stages

# Fault rows 72.
stage_correct() {
    local example trace=$data/bytelm-e64-top6-l6.csv
    local replay=("$bin/pagestash" replay --device cuda --routing "$trace" --expert-model-parallel-size 8)
    for example in "$bin"/example_*; do
        step "$(basename "$example")" 40 "$example" cuda || return
    done
    step 'replay' 60 "${replay[@]}" || return
    step 'replay segments zero' 60 "${replay[@]}" --layout segments --tail zero || return
    step 'replay 1f1b two streams' 60 "${replay[@]}" --stages 4 --num-micro-batches 10 --streams 2 || return
    step 'replay zb-h1 mxfp8 no-graph' 60 "${replay[@]}" --dtype mxfp8 --schedule zb-h1 --stages 4 \
        --num-micro-batches 10 --streams 4 --no-graph || return
    step 'replay dualpipe two streams' 60 "${replay[@]}" --schedule dualpipe --stages 4 \
        --num-micro-batches 10 --streams 2 || return
    step 'replay one ring' 60 "${replay[@]}" --stages 4 --num-micro-batches 10 --one-ring --sources 4 \
        --tail zero || return
    replay+=(--schedule gpipe-reversed --keeps-nothing)
    step 'replay spill' 60 "${replay[@]}" --headroom 0.5 --host-headroom 1.0 || return
    step 'replay offload scrub' 60 "${replay[@]}" --host-headroom 1.0 --offload-fraction 1/2 --scrub || return
    step 'replay grow' 60 "${replay[@]}" --headroom 0.5 --on-overflow grow || return
    step_nccl || return
}

conformance() { # NAME LIMIT FILTER
    find_cublaslt || note cublaslt unavailable 0 'no libcublasLt.so.13 or .12 on this machine'
    step "$1" "$2" env PAGESTASH_REQUIRE_GPU=1 "$bin/pagestash_tests" --gtest_brief=1 \
        --gtest_fail_fast "--gtest_filter=$3${missing_products:+-$missing_products}"
}

# Fault rows 6, 7, 8, 9, 10, 12, 15, 16, 17, 18, 22, 23, 24, 25, 28, 29, 30, 31, 33, 34, 35, 36, 37, 43, 45,
# 47, 50, 51.
stage_conformance() { conformance conformance 520 '*/cuda.*'; }
stage_rings() {
    local backend
    for backend in bulk squeeze; do
        replay_backend "$backend" || return
        [ -n "${lacks[$backend]-}" ] || conformance "conformance $backend" 230 "*/cuda_$backend.*" || return
    done
}

# A short set: the random cases take hours under a sanitizer.
# Fault rows 11, 48.
stage_sanitize() {
    local tool filter limit
    find_cublaslt || :
    if ! command -v compute-sanitizer >/dev/null; then
        note compute-sanitizer unavailable 0 'not on this machine'
        return
    fi
    for tool in memcheck initcheck synccheck racecheck; do
        filter="*/cuda.*-Random/*${missing_products:+:$missing_products}" limit=170
        [ "$tool" = memcheck ] || filter+=':Chaos/*' limit=60
        sanitizer_step "$tool" example 25 "$bin/example_01_stash_restore" cuda || return
        sanitizer_step "$tool" conformance $limit "$bin/pagestash_tests" --gtest_brief=1 \
            "--gtest_filter=$filter" || return
    done
}

stage_budget() {
    place_blocks 20
    bench_step num_sms 200 --sweep num_sms || return
    bench_step gemm 150 --sweep gemm
}

# In steps, so that one which takes too long loses only its own sweeps.
stage_bench() {
    bench_step bytes 150 --sweep bytes || return
    bench_step backend 110 --sweep backend || return
    bench_step pages 100 --sweep page_size,ring || return
    bench_step shapes 150 --sweep pattern,tensors,alignment,pitch
}

stage_glu() {
    conformance 'conformance glu' 150 'Glu*/cuda.*' || return
    bench_step glu 300 --sweep glu
}

stage_linear() {
    step_nccl
    conformance 'conformance linear' 90 'Linear*/cuda.*:Counted*/cuda.*:Scratch*/cuda.*' || return
    bench_step linear 200 --sweep linear
}

stage_beside() {
    bench_step gemm 200 --sweep gemm || return
    bench_step pairs 300 --sweep pairs
}

# A few launches of each kernel with all its counters, at the clocks that the GPU has by itself.
stage_profile() {
    local backend sections=(SpeedOfLight MemoryWorkloadAnalysis Occupancy LaunchStats WarpStateStats)
    if ! command -v ncu >/dev/null; then
        note ncu unavailable 0 'not on this machine'
        return
    fi
    for backend in ldg bulk squeeze; do
        measure "ncu-$backend" 170 ncu --clock-control none \
            "${sections[@]/#/--section=}" --kernel-name "regex:^(stash|restore)_${backend}_kernel" \
            --launch-skip 2 --launch-count 6 "$bin/pagestash" replay \
            --device cuda --backend "$backend" --no-graph --routing "$data/bytelm-e64-top6-l6.csv" \
            --expert-model-parallel-size 8 || return
    done
}

# Between the device and pinned memory; 16 GiB of it take a while to pin.
stage_host() { bench_step host 510 --sweep host; }

# What the scheduler hides: exposed time in several ways, graphs, simulated against measured.
stage_schedule() {
    local bench_program=pagestash-schedule-bench
    bench_step schedule-64MiB 120 --live 64MiB || return
    bench_step schedule-256MiB 160 --live 256MiB || return
    bench_step schedule-1GiB 230 --live 1GiB --layers 3
}

# They answer 4 where torch, its CUDA, Triton or the GPU is absent.
stage_peers() {
    local options=(--json="$work/peers-report.json" --library "$bin/libpagestash.so")
    [ -z "${MEGATRON_OPS:-}" ] || options+=(--megatron-ops "$MEGATRON_OPS")
    measure peers 510 python3 "$scripts/peers/run.py" "${options[@]}"
}

trainer_stage() { # NAME: of the stage and of gpu-NAME.py
    measure "$1" 510 env PAGESTASH_LIBRARY="$bin/libpagestash.so" python3 "$trainers/gpu-$1.py" "$work"
}

# An MoE whose captured steps are replayed: keeping everything, pages, host pages, recomputation.
# Fault rows 41.
stage_train() { trainer_stage train; }

# A GPT with long sequences: swapped by tokens, recomputed, kept in host memory, and kept.
stage_memo() { trainer_stage memo; }

open_stage "$2" "$1"
"stage_$stage"
conclude
