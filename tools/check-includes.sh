#!/bin/bash
# check-includes.sh [ROOT]: holds every #include line against the rooms below and their arrows.
# check-includes.sh --self-test: plants every arrow that is not in the table, and other faults, and
# wants each of them reported.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

# ROOM or FILE : what it may include in quotes, rooms or files, beside its own room | in angles.
# A line for a file stands for the whole of what that file may do; tests may include everything.
# In angles: pagestash (public headers), C (what a freestanding header may use), system (all that is
# neither ours nor named here), cuda, cub, nvtx, jansson.
rooms() {
    cat <<'ROOMS'
include/pagestash    :  | pagestash C
kernels/core         :  | pagestash C
kernels              : kernels/core | pagestash C
kernels/host         : kernels kernels/core | pagestash system
kernels/cuda         : kernels kernels/core | pagestash system cuda
kernels/cuda/launch.cu : kernels/cuda kernels/cuda/paging kernels/cuda/fused kernels/cuda/compute | pagestash system cuda
kernels/cuda/paging  : kernels kernels/core kernels/cuda | pagestash system cuda
kernels/cuda/compute : kernels kernels/core kernels/cuda | pagestash system cuda
kernels/cuda/fused   : kernels kernels/core kernels/cuda kernels/cuda/paging | pagestash system cuda
host/base            : kernels/core | pagestash system
host/base/nvtx.c     : host/base | pagestash system nvtx
host/schedule        : host/base kernels/core | pagestash system
host/model           : host/base kernels/core | pagestash system
host/device          : host/base kernels kernels/core | pagestash system
host/device/device_cuda.h      : host/device | pagestash system cuda
host/device/device_cuda.c      : host/base host/device kernels/cuda/launch.h | pagestash system cuda
host/device/device_cuda_span.c : host/base host/device | pagestash system cuda
host/device/device_cuda_stream.c : host/base host/device | pagestash system cuda
host/stash           : host/base host/device kernels kernels/core | pagestash system
host/stash/pool_layout.h       : host/base kernels/core | pagestash system
host/stash/pool_layout.c       : host/base host/stash/pool_layout.h | pagestash system
host/comm            : host/base host/device host/stash kernels/core | pagestash system
host/linear          : host/base host/device host/stash host/comm kernels kernels/core | pagestash system
host/linear/linear_layout.h : | pagestash system
host/linear/linear_layout.c : host/base/arith.h host/linear/linear_layout.h | pagestash system
host/trace           : host/base host/schedule host/model kernels/core | pagestash system
host/plan            : host/base host/trace host/model host/stash/pool_layout.h kernels/core | pagestash system
host/arena           : host/base host/device host/trace host/plan kernels/core | pagestash system
host/program         : host/base host/schedule kernels/core | pagestash system
host/scheduler       : host/base host/device host/stash host/schedule host/program kernels/core | pagestash system
host/simulate        : host/base host/schedule host/program kernels/core | pagestash system
host/policy          : host/base host/schedule host/program host/simulate host/stash/pool_layout.h kernels/core | pagestash system
host/estimate        : host/base host/schedule host/model host/stash/pool_layout.h host/linear/linear_layout.h kernels/core | pagestash system
host/step            : host/base host/schedule host/model host/estimate kernels/core | pagestash system
tools                : tools/common | pagestash system jansson
tools/common         : | pagestash system jansson
tools/common/routing.c : tools/common host/base/lines.h | pagestash system
tools/replay         : tools/common host/base/arith.h | pagestash system jansson
tools/simulate       : tools/common tools/replay tools/estimate/estimate.h host/model/ledger.h host/schedule/schedule_file.h host/base/lines.h host/base/arith.h | pagestash system jansson
tools/trace          : tools/common | pagestash system jansson
tools/plan           : tools/common tools/trace tools/replay host/base/arith.h | pagestash system jansson
tools/estimate       : tools/common host/base/arith.h | pagestash system jansson
tools/top            : tools/common host/stash/top_file.h | pagestash system jansson
examples             : | pagestash system
bench/common         : tools/common | pagestash system jansson
bench/stash          : bench/common tools/common host/base/arith.h | pagestash system jansson
bench/stash/call_cost.c : bench/common bench/stash host/stash/stash.h | pagestash system
bench/stash/counting.h  : host/device/device.h | system
bench/stash/counting.c  : bench/stash kernels/cuda/launch.h | system
bench/stash/gpu_copy.cu : bench/stash/gpu.h kernels/cuda/paging/bulk.cuh kernels/cuda/copy.cuh | pagestash system cuda
bench/stash/gpu_cub.cu  : bench/stash/gpu.h | pagestash system cuda cub
bench/stash/placement.cu :  | system cuda
bench/plan           : bench/common tools/common | pagestash system jansson
bench/plan/tilings.c : bench/plan kernels/core/mix.h | system
bench/arena          : bench/common tools/common | pagestash system jansson
bench/schedule       : bench/common tools/common bench/stash/gemm.h | pagestash system jansson
bench/schedule/hooks.c : bench/common bench/schedule tools/common bench/stash/counting.h | pagestash system
bench/schedule/pure.c : bench/common bench/schedule tools/common host/program/program.h | pagestash system
bench/simulate       : bench/common tools/common | pagestash system jansson
bench/estimate       : bench/common tools/common | pagestash system jansson
python               : | pagestash system
python/allocator     : host/base/base.h host/base/table.h | pagestash system
python/pagestash/csrc : | pagestash system
ROOMS
}

# Reads "FILE:LINE:#include ..." and prints what is not allowed.
judge() {
    awk -v rooms="$(rooms)" '
    function folder(path) { return path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : "" }
    function angled(name) {
        if (name ~ /^pagestash\/[a-z_]+\.h$/) return "pagestash"
        if (name ~ /^(assert|stdbool|stddef|stdint|string)\.h$/) return "C"
        if (name ~ /^cuda(_[a-z0-9_]+)?\.h$/) return "cuda"
        if (name ~ /^cub\//) return "cub"
        if (name ~ /^nvtx3\//) return "nvtx"
        if (name == "jansson.h") return "jansson"
        if (name ~ /^(cu(da|blas|rand)|cooperative_groups|nccl)/) return "foreign"
        if (name ~ /^(gtest|pagestash|kernels|host|tools|bench|tests)\//) return "foreign"
        return "system"
    }
    function has(list, word) { return index(" " list " ", " " word " ") > 0 }
    BEGIN {
        count = split(rooms, lines, "\n")
        for (i = 1; i <= count; i++) {
            split(lines[i], parts, /[:|]/)
            key = parts[1]
            gsub(/ /, "", key)
            quoted[key] = parts[2]
            open[key] = parts[3]
        }
    }
    {
        split($0, place, ":")
        file = place[1]
        if (file ~ /^tests\// || !match($0, /include[ \t]*["<][^">]*/)) next
        name = substr($0, RSTART, RLENGTH)
        sub(/include[ \t]*/, "", name)
        mark = substr(name, 1, 1)
        name = substr(name, 2)
        room = file in quoted ? file : folder(file)
        if (!(room in quoted)) {
            printf "%s: no room: add %s to tools/check-includes.sh\n", file, folder(file)
            bad = 1
            next
        }
        if (mark == "<") {
            class = angled(name)
            good = has(open[room], class) || (class == "C" && has(open[room], "system"))
        } else {
            good = has(quoted[room], folder(name)) || has(quoted[room], name) ||
                   (room != file && (folder(name) == room || folder(name) == ""))
        }
        if (!good) {
            printf "%s:%s: %s may not include %s\n", file, place[2], room, name
            bad = 1
        }
    }
    END { exit bad }'
}

check_tree() {
    cd "$1"
    grep -rnE '^[[:space:]]*#[[:space:]]*include' include kernels host tools bench examples python \
        --include='*.c' --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' | judge
}

# "FILE NAME" for every arrow between two rooms, first those that the table allows, then the others.
arrows() { # allowed | forbidden
    rooms | awk -F'[:|]' -v want="$1" '
    {
        room = $1
        gsub(/ /, "", room)
        if (room ~ /\./ || room !~ /^(include|kernels|host|tools|bench|python)/) next
        all[++count] = room
        may[room] = $2
    }
    END {
        for (i = 1; i <= count; i++)
            for (j = 1; j <= count; j++) {
                if (i == j || all[j] ~ /^(include|python)/) continue
                allowed = index(" " may[all[i]] " ", " " all[j] " ") > 0
                if (allowed == (want == "allowed"))
                    printf "%s/planted.c:1:#include \"%s/planted.h\"\n", all[i], all[j]
            }
    }'
}

others() { # forbidden lines that are no arrow between rooms
    cat <<'OTHERS'
include/pagestash/pool.h:1:#include <stdio.h>
include/pagestash/pool.h:1:#include <cuda_runtime_api.h>
kernels/core/pool.h:1:#include <stdio.h>
kernels/core/pool.h:1:#include <cuda_runtime.h>
host/plan/planted.c:1:#include "host/stash/stash.h"
host/stash/planted.c:1:#include <cuda_runtime_api.h>
host/stash/planted.c:1:#include <jansson.h>
host/stash/pool_layout.c:1:#include "host/stash/stash.h"
host/stash/pool_layout.c:1:#include "host/device/device.h"
host/device/device.c:1:#include "kernels/cuda/launch.h"
host/device/device_cuda.c:1:#include <nccl.h>
host/comm/nccl.c:1:#include <nccl.h>
host/unknown/planted.c:1:#include <stdio.h>
tools/common/planted.c:1:#include <cuda.h>
examples/planted.c:1:#include "kernels/kernels.h"
bench/stash/planted.c:1:#include "host/stash/stash.h"
python/allocator/planted.c:1:#include "host/arena/arena.h"
python/allocator/planted.c:1:#include <cuda_runtime_api.h>
OTHERS
}

self_test() {
    local planted found spoiled
    planted=$({ arrows forbidden; others; } | wc -l)
    found=$({ arrows forbidden; others; } | judge | wc -l) || true
    spoiled=$(arrows allowed | judge | wc -l) || true
    printf '%d of %d planted includes are reported, and %d of %d allowed ones\n' \
        "$found" "$planted" "$spoiled" "$(arrows allowed | wc -l)"
    [ "$found" = "$planted" ] && [ "$spoiled" = 0 ]
}

case ${1-} in
--self-test) self_test ;;
*) check_tree "${1:-$here}" ;;
esac
