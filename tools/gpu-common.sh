# gpu-common.sh: what gpu-first.sh and gpu-check.sh share; they source it. A run is one stage: named
# steps, each a command with a limit, all within one limit for the whole. OUTDIR gets STAGE.tar.gz,
# written anew after each step, and STAGE-summary.txt: a kill loses only the running step.
#
# The packed file holds STAGE.json (the steps with their verdicts), log.txt (all output), steps.txt, and
# the reports that steps leave in $work.
# Verdicts: passed; failed; cut (the time was over); unavailable (what it needs is not on this machine).
# Exit codes: 0 nothing failed; 1 a step failed; 2 usage; 3 nothing failed, but something was cut;
# 4 there is no GPU.
# GPU_STAGE_SECONDS shortens the stage. With --dry-run nothing runs and no GPU is needed: the commands
# are printed, and those that are not there are failures.

most_seconds=530 # under nine minutes with 5 s to kill the last step, and the packing
dry=

say() { printf '%s: %s\n' "$program" "$1" >&2; }
usage() {
    say "usage: $usage"
    exit 2
}

# ---- machine and binaries

open_machine() {
    if [ -n "$dry" ]; then
        machine=none driver=none
        return
    fi
    if ! command -v nvidia-smi >/dev/null; then
        say 'no GPU: there is no nvidia-smi on this machine'
        exit 4
    fi
    machine=$(timeout 10 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
    driver=$(timeout 10 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)
    if ! timeout 10 nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
        say 'no GPU: nvidia-smi lists none'
        exit 4
    fi
}

open_output() { # OUTDIR
    scratch=$(mktemp -d) && mkdir "$scratch/packed" || exit 2
    trap 'rm -rf "$scratch"' EXIT
    if [ -n "$dry" ]; then out=$scratch; else mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2; fi
    work=$scratch/packed
    log=$work/log.txt
    : >"$log"
    : >"$work/steps.txt"
}

build_from_source() {
    local build=$root/build/gpu-source
    say "building in $build"
    {
        timeout "$stage_seconds" cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
            -DPAGESTASH_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native -DPAGESTASH_TEST_TSAN=OFF &&
            timeout "$stage_seconds" cmake --build "$build"
    } >>"$log" 2>&1 || return
    bin=$scratch/bin data=$root/bench/data
    mkdir "$bin" && ln -s "$build"/bin/pagestash{,-bench,-schedule-bench,-placement} \
        "$build"/libpagestash.so "$build"/tests/pagestash_tests "$build"/tests/example_* "$bin"
    scripts=$root/bench trainers=$here
    commit=$(git -C "$root" describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null) || commit=unknown
    toolkit=$(nvcc --version 2>/dev/null | sed -n 's/.*, V\([0-9.]*\).*/\1/p')
}

# The prebuilt folder PREBUILT, or the one that this lies in, or build/gpu; else it is built here.
open_binaries() {
    local prebuilt=${PREBUILT:-}
    [ -n "$prebuilt" ] || for prebuilt in "$here" "$root/build/gpu" ''; do
        [ ! -f "$prebuilt/BUILD" ] || break
    done
    if [ -z "$prebuilt" ]; then
        if ! build_from_source; then
            pack
            say "the build failed, see log.txt in $out/$stage.tar.gz; tools/gpu-package.sh makes a prebuilt folder"
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
}

# ---- steps: one command each

pack() {
    [ -z "$dry" ] || return 0
    tar -C "$work" -czf "$out/.packed" . && mv "$out/.packed" "$out/$stage.tar.gz" ||
        say "$out/$stage.tar.gz was not written"
}

note() { # NAME VERDICT SECONDS TEXT
    local text=${4//$'\t'/ }
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$text" >>"$work/steps.txt"
    [ -n "$dry" ] || text=${text:0:150}
    printf '%-11s %4d s  %s: %s\n' "$2" "$3" "$1" "$text"
    pack
}

last_line() { grep -v '^[[:space:]]*$' "$scratch/output" | tail -n 1; }

# The command that is run behind `env A=B` and the like.
program_of() {
    local word
    for word; do
        case $word in env | *=*) ;; *) printf '%s' "$word" && return ;; esac
    done
}

# Runs a command for at most LIMIT seconds of what the stage has left. Sets code, seconds, and was_cut
# if the stage's limit ended it, or left it no time.
run() { # NAME LIMIT COMMAND...
    local name=$1 limit=$2 left=$((stage_seconds - SECONDS)) begin=$SECONDS
    shift 2
    was_cut= code=0 seconds=0
    : >"$scratch/output"
    if [ -n "$dry" ]; then
        printf '%s\n' "$*" >"$scratch/output"
        command -v "$(program_of "$@")" >/dev/null || code=127
        [ "$code" -eq 0 ] || printf 'not there: %s\n' "$*" >"$scratch/output"
        return
    fi
    if [ "$left" -lt 1 ]; then
        was_cut=yes code=124
        printf 'not begun: the %d s of the stage are over\n' "$stage_seconds" >"$scratch/output"
        return
    fi
    [ "$limit" -le "$left" ] || limit=$left was_cut=yes
    printf '\n== %s, at most %d s: %s\n' "$name" "$limit" "$*" >>"$log"
    # the outer one is for what bash says of a killed command
    { timeout -k 5 "$limit" "$@" >"$scratch/output" 2>&1 </dev/null; } 2>/dev/null
    code=$? seconds=$((SECONDS - begin))
    # 137: it did not heed the signal, and was killed
    [ "$code" -ne 137 ] || [ "$seconds" -lt "$limit" ] || code=124
    [ "$code" -eq 124 ] || was_cut=
    cat "$scratch/output" >>"$log"
    printf '== exit code %d\n' "$code" >>"$log"
    [ "$code" -ne 124 ] || printf 'took more than %d s%s\n' "$limit" \
        "${was_cut:+, which is what the stage had left}" >>"$scratch/output"
}

# Notes what run left. WHEN_4 and WHEN_LATE: the verdict for exit code 4, and for a command that took
# longer than its own limit. False if the stage must end.
judge() { # NAME WHEN_4 WHEN_LATE
    local verdict=failed
    case $code in
    0) verdict=${dry:+planned} && verdict=${verdict:-passed} ;;
    4) verdict=$2 ;;
    124) verdict=$3 && [ -z "$was_cut" ] || verdict=cut ;;
    esac
    note "$1" "$verdict" "$seconds" "$(last_line)"
    [ "$verdict" = failed ] && [ -z "$dry" ] || return 0
    printf '%s\n' "stopped: $1 failed, nothing after it was run"
    return 1
}

# A check: whatever is wrong ends the stage.
step() { # NAME LIMIT COMMAND...
    run "$@"
    judge "$1" failed failed
}

# A check of what this GPU or machine need not have.
optional_step() { # NAME LIMIT COMMAND...
    run "$@"
    judge "$1" unavailable failed
}

# Recorded routing through a backend, every byte compared. Every GPU has ldg; the others end in `lacks` where it
# has them not.
declare -A lacks=()
replay_backend() { # BACKEND
    local attempt=optional_step
    [ "$1" != ldg ] || attempt=step
    "$attempt" "replay $1" 30 "$bin/pagestash" replay --device cuda --backend "$1" \
        --routing "$data/bytelm-e64-top6-l6.csv" --expert-model-parallel-size 8 || return
    [ "$code" -ne 4 ] || lacks[$1]='this GPU has no such backend'
}

# A measurement: a wrong byte or a crash ends the stage; one that takes too long loses its own figures.
measure() { # NAME LIMIT COMMAND...
    run "$@"
    cp "$scratch/output" "$work/$1.txt"
    judge "$1" unavailable cut
}

# Over which SMs the blocks of a budget spread. One that spreads too far is a failure, but the bytes are
# right and what follows is worth its time.
place_blocks() { # LIMIT
    local verdict=failed
    run placement "$1" "$bin/pagestash-placement" --json="$work/placement.json"
    cp "$scratch/output" "$work/placement.txt"
    [ "$code" -ne 0 ] || verdict=${dry:+planned}
    [ "$code" -ne 124 ] || verdict=cut
    note placement "${verdict:-passed}" "$seconds" "$(last_line)"
}

# Its table, the goals and its JSON are packed, whatever becomes of the other steps.
bench_step() { # NAME LIMIT OPTIONS...
    local name=bench-$1 limit=$2
    shift 2
    measure "$name" "$limit" "$bin/${bench_program:-pagestash-bench}" --device cuda "$@" \
        --json="$work/$name.json" || return
    [ ! -f "$work/$name.json" ] || [ "$code" -ne 0 ] ||
        timeout 10 python3 "$scripts/goals.py" "$work/$name.json" >>"$work/$name.txt" 2>&1 || true
}

# ---- the end

# Writes STAGE.json and the summary; the exit code of the stage.
conclude() {
    local verdicts verdict=unavailable result=0
    verdicts=$(cut -f 2 "$work/steps.txt")
    case $verdicts in *passed*) verdict=passed ;; esac
    case $verdicts in *cut*) verdict=cut result=3 ;; esac
    case $verdicts in *failed*) verdict=failed result=1 ;; esac
    if [ -n "$dry" ]; then
        return $result
    fi
    {
        printf '%s, driver %s, CUDA %s, commit %s\n' "$machine" "$driver" "${toolkit:-unknown}" "$commit"
        printf '%s %s in %d s of %d s\n' "$stage" "$verdict" "$SECONDS" "$stage_seconds"
        sed 's/^\([^\t]*\)\t\([^\t]*\)\t\([^\t]*\)\t/\2  \3 s  \1: /' "$work/steps.txt"
    } >"$out/$stage-summary.txt"
    cp "$out/$stage-summary.txt" "$work/summary.txt"
    timeout 10 python3 - "$work" "$stage" "$verdict" "$SECONDS" "$machine" "$driver" "$toolkit" \
        "$commit" <<'PYTHON' || say "$stage.json was not written"
import json, os, sys
work, stage, status, seconds, machine, driver, toolkit, commit = sys.argv[1:]
steps = []
for line in open(work + "/steps.txt", errors="replace"):
    name, verdict, took, text = line.rstrip("\n").split("\t")
    steps.append({"step": name, "status": verdict, "seconds": int(took), "text": text})
reports = sorted(name for name in os.listdir(work) if name.endswith(".json"))
with open(f"{work}/{stage}.json", "w") as out:
    json.dump({"stage": stage, "status": status, "seconds": int(seconds), "machine": machine,
               "driver": driver, "toolkit": toolkit or None, "commit": commit,
               "details": {"steps": steps, "reports": reports}}, out, indent=2)
    out.write("\n")
PYTHON
    pack
    printf '%s: %s in %d s; everything is in %s\n' "$stage" "$verdict" "$SECONDS" "$out/$stage.tar.gz"
    return $result
}

open_stage() { # STAGE OUTDIR
    stage=$1 stage_seconds=${GPU_STAGE_SECONDS:-$most_seconds}
    if ! [[ $stage_seconds =~ ^[0-9]{1,3}$ ]] || [ "$stage_seconds" -gt "$most_seconds" ]; then
        say "GPU_STAGE_SECONDS=$stage_seconds: at most $most_seconds"
        exit 2
    fi
    open_machine
    open_output "$2"
    open_binaries
}

# Where a library is: the system's, or the one that torch brought along; nothing where there is none.
library_path() { # FILE...
    local file found folders
    for file in "$@"; do
        found=$(ldconfig -p 2>/dev/null | sed -n "s/.* => \(.*${file//./\\.}\)\$/\1/p" | head -n 1)
        if [ -z "$found" ]; then
            mapfile -t folders < <(python3 -c 'import site; print(*site.getsitepackages(), sep="\n")')
            found=$(find "${folders[@]}" -name "$file" 2>/dev/null | head -n 1)
        fi
        [ -z "$found" ] || { printf '%s\n' "$found" && return; }
    done
}

# Names cuBLASLt, whose products dense layers have. False where there is none: then missing_products has the
# tests that need it, for a filter.
missing_products=
find_cublaslt() {
    local found=${PAGESTASH_CUBLASLT_LIBRARY:-$(library_path libcublasLt.so.13 libcublasLt.so.12)}
    export PAGESTASH_CUBLASLT_LIBRARY=${found:-auto}
    [ -n "$found" ] || missing_products='Linear/*.*Dense*:Linear/*.Products*'
    [ -n "$found" ]
}
