#!/bin/bash
# gpu-first.sh [--dry-run] OUTDIR: the first ten minutes on a GPU, in the order in which what is wrong
# shows soonest: is it right at all, where do blocks land, how fast is it, is it right in everything.
# Ends at the first failure. gpu-common.sh says what OUTDIR gets, and the exit codes; docs/gpu.md, what
# each figure decides.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
program=gpu-first.sh usage='gpu-first.sh [--dry-run] OUTDIR'
. "$here/gpu-common.sh"

[ "${1-}" != --dry-run ] || { dry=yes && shift && set -- "${1:-none}"; }
[ $# -eq 1 ] && [ -n "$1" ] && [ "${1#-}" = "$1" ] || usage

backends='ldg bulk squeeze'

first_ten_minutes() {
    local backend
    # 1. the machine, and whether anything runs
    [ -n "$dry" ] || step nvidia-smi 10 nvidia-smi || return
    step example_01_stash_restore 20 "$bin/example_01_stash_restore" cuda || return
    step example_02_graph_replay 20 "$bin/example_02_graph_replay" cuda || return
    # 2. recorded routing through each backend, every byte compared
    for backend in $backends; do
        replay_backend "$backend" || return
    done
    # 3. over which SMs the blocks of a budget spread
    place_blocks 15
    # 4. to 6. the figures that decide most
    bench_step bytes 60 --quick --sweep bytes || return
    bench_step backend 50 --quick --sweep backend || return
    bench_step shapes 60 --quick --sweep tensors,pattern || return
    bench_step num_sms 90 --quick --sweep num_sms || return
    # 7. every behaviour, in each backend; the random cases are for gpu-check.sh
    find_cublaslt || note cublaslt unavailable 0 'no libcublasLt.so.13 or .12 on this machine'
    local others="Random/*:Chaos/*${missing_products:+:$missing_products}"
    step 'conformance ldg' 80 env PAGESTASH_REQUIRE_GPU=1 "$bin/pagestash_tests" --gtest_brief=1 \
        --gtest_fail_fast "--gtest_filter=*/cuda.*-$others" || return
    for backend in bulk squeeze; do
        [ -z "${lacks[$backend]-}" ] || { note "conformance $backend" unavailable 0 "${lacks[$backend]}" && continue; }
        step "conformance $backend" 80 env PAGESTASH_REQUIRE_GPU=1 "$bin/pagestash_tests" \
            --gtest_brief=1 --gtest_fail_fast "--gtest_filter=*/cuda_$backend.*-$others" || return
    done
}

open_stage first "$1"
first_ten_minutes
conclude
