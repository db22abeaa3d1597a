#!/bin/bash
# check-includes.sh [ROOT]: holds every #include line against the order of the folders,
#   include <- kernels/core <- kernels/{host,cuda} <- host <- tools, bench, tests, python
# check-includes.sh --self-test: plants one violation of every kind and wants each found.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

cuda='cuda(_[a-z0-9_]+)?\.h'
pst='pagestash/[a-z_]+\.h'
core='kernels/core/[a-z_]+\.h'
# Headers that a folder gets only if its rule names them; OTHERS stands for all the rest.
foreign='(cu(da|blas|rand)[a-z_]*|cooperative_groups|nccl|jansson)(\.h|\.cuh)?'
foreign+='|(cuda|cub|nvtx3|cooperative_groups|benchmark|gtest)/.*'
ours='(pagestash|kernels|host|tools|bench|tests)/.*'

# PATH QUOTED ANGLED: extended regular expressions of whole names; the last PATH that fits decides.
rules() {
    local host="host/[a-z]+/[a-z_]+\.h|kernels/kernels\.h|$core"
    cat <<RULES
include/pagestash/.*  -  $pst|std(bool|def|int)\.h
kernels/core/.*       $core  $pst|(assert|std(bool|def|int)|string)\.h
kernels/kernels\.h    $core  $pst|std(bool|def|int)\.h
kernels/host/.*       kernels/(kernels|(core|host)/[a-z_]+)\.h  $pst|OTHERS
kernels/cuda/.*       kernels/(kernels|(core|cuda(/paging)?)/[a-z_]+)\.(h|cuh)  $pst|$cuda|OTHERS
host/.*               $host  $pst|OTHERS
host/device/device_cuda(_span)?\.[ch]  $host|kernels/cuda/launch\.h  $pst|$cuda|OTHERS
host/base/nvtx\.c     $host  $pst|nvtx3/.*|OTHERS
tools/.*              (tools/[a-z]+/)?[a-z0-9_]+\.h  $pst|jansson\.h|OTHERS
examples/.*           -  $pst|OTHERS
bench/.*              (bench|tools)/[a-z]+/[a-z_]+\.h  $pst|jansson\.h|benchmark/.*|OTHERS
bench/stash/call_cost\.c    bench/stash/bench\.h|host/base/internal\.h|kernels/cuda/launch\.h  $pst|OTHERS
bench/stash/gpu_[a-z]+\.cu  bench/stash/gpu\.h|kernels/cuda/(paging/bulk|copy)\.cuh  $pst|$cuda|cub/device/[a-z_]+\.cuh|OTHERS
python/.*             (python/)?[a-z_]+\.h  $pst|OTHERS
python/torch/.*       [a-z_]+\.h|host/base/internal\.h  $pst|OTHERS
tests/.*              .*  .*
RULES
}

allowed() { # FILE KIND NAME
    local path quoted angled pattern=
    while read -r path quoted angled; do
        [[ $1 =~ ^($path)$ ]] || continue
        [ "$2" = '"' ] && pattern=$quoted || pattern=$angled
    done < <(rules)
    [[ $3 =~ ^($pattern)$ ]] ||
        [[ $pattern == *OTHERS* && ! $3 =~ ^($foreign)$ && ! $3 =~ ^($ours)$ ]]
}

check_tree() {
    local bad=0 file line text kind name
    cd "$1"
    while IFS=: read -r file line text; do
        [[ $text =~ include[[:space:]]*([\"<])([^\">]*) ]] || continue
        kind=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]}
        allowed "$file" "$kind" "$name" && continue
        printf '%s:%s: %s may not include %s\n' "$file" "$line" "${file%/*}" "$name"
        bad=1
    done < <(find include kernels host tools bench examples python tests -type f \
        -regextype posix-extended -regex '.*\.(c|h|cc|cu|cuh)' -print0 2>/dev/null | sort -z |
        xargs -0r grep -nHE '^[[:space:]]*#[[:space:]]*include')
    return $bad
}

self_test() {
    local total=0 right=0 wanted file name judged
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    while read -r wanted file name; do
        rm -rf "${scratch:?}"/*
        mkdir -p "$scratch/$(dirname "$file")"
        printf '#include %s\n' "$name" >"$scratch/$file"
        judged=bad
        (check_tree "$scratch") >/dev/null && judged=good
        total=$((total + 1))
        if [ "$judged" = "$wanted" ]; then
            right=$((right + 1))
        else
            printf '%s with #include %s: %s, should be %s\n' "$file" "$name" "$judged" "$wanted"
        fi
    done <<'CASES'
bad include/pagestash/pool.h <stdio.h>
bad include/pagestash/pool.h <cuda_runtime_api.h>
bad include/pagestash/pool.h "kernels/core/layout.h"
good include/pagestash/pool.h <pagestash/device.h>
bad kernels/core/pool.h <stdio.h>
bad kernels/core/pool.h <cuda_runtime.h>
bad kernels/core/pool.h "kernels/kernels.h"
bad kernels/core/pool.h "host/base/internal.h"
good kernels/core/pool.h "kernels/core/fn.h"
bad kernels/kernels.h "kernels/host/runners.h"
bad kernels/host/move.c "host/base/internal.h"
bad kernels/host/move.c "kernels/cuda/ptx.cuh"
good kernels/host/move.c <string.h>
bad kernels/cuda/paging/move.cu "kernels/host/runners.h"
good kernels/cuda/paging/move.cu "kernels/cuda/launch.cuh"
bad host/stash/pool.c <cuda_runtime_api.h>
bad host/stash/pool.c "kernels/host/runners.h"
bad host/stash/pool.c "tools/common/tool.h"
bad host/stash/pool.c <jansson.h>
bad host/device/device_cuda.c <nccl.h>
bad host/comm/nccl.c <nccl.h>
good host/comm/nccl.c <dlfcn.h>
good host/device/device_cuda.c <cuda_runtime_api.h>
good host/device/device_cuda.c "kernels/cuda/launch.h"
bad host/device/device.c "kernels/cuda/launch.h"
good host/stash/pool.c <pthread.h>
good host/stash/pool.c "host/base/internal.h"
bad tools/pagestash.c "host/base/internal.h"
bad tools/pagestash.c "kernels/kernels.h"
bad tools/pagestash.c <cuda.h>
good tools/pagestash.c "tools/common/tool.h"
good tools/estimate/estimate_pr482.c "tools/estimate/estimate_compat.h"
good tools/pagestash.c <argp.h>
bad examples/01_stash_restore.c "tools/common/tool.h"
bad examples/01_stash_restore.c "kernels/kernels.h"
bad bench/stash/host_bench.c "host/base/internal.h"
bad bench/stash/host_bench.c "host/plan/plan.h"
bad python/other.c "host/base/internal.h"
bad python/torch/pagestash_torch.c "host/arena/arena.h"
bad python/torch/pagestash_torch.c <cuda_runtime_api.h>
good python/torch/pagestash_torch.c "host/base/internal.h"
good tests/host/stash/pool_test.c "host/base/internal.h"
CASES
    printf '%d of %d planted lines judged rightly\n' "$right" "$total"
    [ "$right" = "$total" ]
}

case ${1-} in
--self-test) self_test ;;
*) check_tree "${1:-$here}" ;;
esac
