#!/usr/bin/env python3
"""How long and in how much memory `pagestash estimate` answers, whole processes, beside the command's
own start (--version) in the same run."""
import os
import platform
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from common import script  # noqa: E402

SCHEMA_VERSION = 1
CASES = {
    "start of the command": ["--version"],
    "llama2-7b": ["estimate", "--preset", "llama2-7b"],
    "deepseek-v3, 1,024 GPUs": """estimate --preset deepseek-v3 --world-size 1024
        --pipeline-model-parallel-size 16 --decoder-last-pipeline-num-layers 1
        --expert-model-parallel-size 64 --expert-tensor-parallel-size 1 --global-batch-size 8192
        --bf16 --use-distributed-optimizer --json""".split(),
    "65,536 GPUs, 512 micro-batches, 16 chunks in each of 64 stages": """estimate --num-layers 1024
        --hidden-size 16384 --num-attention-heads 128 --seq-length 8192
        --max-position-embeddings 8192 --vocab-size 128000 --swiglu --sequence-parallel
        --tensor-model-parallel-size 8 --pipeline-model-parallel-size 64 --world-size 65536
        --num-virtual-stages-per-pipeline-rank 16 --global-batch-size 65536 --bf16
        --use-distributed-optimizer""".split(),
    "search over the splits of 61,440 GPUs": """estimate --preset deepseek-v3 --world-size 61440
        --num-layers 60 --moe-layer-freq 1 --global-batch-size 983040 --bf16
        --use-distributed-optimizer --search""".split(),
}


def measure(binary, arguments):
    """(seconds, those of a processor, KiB resident at most, exit code)"""
    nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    begin = time.perf_counter()
    pid = os.posix_spawn(binary, [binary, *arguments], os.environ, file_actions=nothing)
    _, status, usage = os.wait4(pid, 0)
    return (time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss,
            os.waitstatus_to_exitcode(status))


def main():
    parser = script.Parser("estimate.py", SCHEMA_VERSION, description=__doc__)
    parser.add_argument("binary", metavar="PAGESTASH")
    parser.add_argument("--repeat", type=int, default=15, help="runs of each case (%(default)s)")
    parser.add_json()
    options = parser.parse_args()
    parser.check_json(options.json)
    cases = []
    for name, arguments in CASES.items():
        runs = [measure(options.binary, arguments) for _ in range(options.repeat)]
        seconds, processor_seconds, kib, codes = zip(*runs)
        if any(code not in (0, 1) for code in codes):
            raise script.Stop(script.NO, f"{name}: exit code {codes[0]}")
        cases.append({"case": name, "arguments": arguments,
                      "seconds": [round(each, 6) for each in seconds],
                      "processor_seconds": [round(each, 6) for each in processor_seconds],
                      "resident_kib": max(kib)})
    if options.json != "-":
        print_table(cases)
    if options.json:
        script.write_json({"schema_version": SCHEMA_VERSION, "machine": platform.machine(),
                           "cpus": os.cpu_count(), "cases": cases}, options.json)
    return script.DONE


def print_table(cases):
    start = statistics.median(cases[0]["seconds"])
    print(f"{'case':64} {'median ms':>10} {'processor':>10} {'of the start':>13} {'MiB':>6}")
    for case in cases:
        median = statistics.median(case["seconds"])
        processor = statistics.median(case["processor_seconds"])
        print(f"{case['case']:64} {1e3 * median:10.2f} {1e3 * processor:10.2f} "
              f"{median / start:13.2f} {case['resident_kib'] / 1024:6.1f}")


if __name__ == "__main__":
    script.run("estimate.py", main)
