"""What pages and waits a pipeline costs before anything runs, as in a notebook: python simulate.py [FOLDER]

Four stages of 1F1B, four MoE layers each, with the rows of a recorded routing trace. Writes timeline.html,
and timeline.svg where matplotlib is installed, to FOLDER."""
import importlib.util
import pathlib
import sys

import pagestash
from pagestash.pool import Form, Rows, Space
from pagestash.schedule import Schedule

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
TRACE = pathlib.Path(__file__).parents[2] / "bench" / "data" / "bytelm-e64-top6-l6.csv"
HIDDEN, FFN = 512, 256

# What an MoE layer keeps for its backward, rows of bf16: input, two products, and a weight in fp32.
form = Form([Space(capacity=1 << 14)],
            [Rows(2 * HIDDEN), Rows(2 * 2 * FFN), Rows(2 * FFN), Rows(4)])
schedules = Schedule.pipeline("1f1b", num_stages=4, num_micro_batches=8)
layers = pagestash.routed_layers(
    schedules, TRACE, form, num_layers=4, expert_model_parallel_size=8,
    forward_ns=(30_000, 120_000, 30_000), backward_ns=(60_000, 240_000, 60_000))
rates = {"stash_ns": 5_000, "restore_ns": 5_000, "stash_rate": 10**11, "restore_rate": 10**11}

result = pagestash.simulate(schedules, layers, **rates)
print(result, result.table(), sep="\n")
theirs = pagestash.simulate(schedules, layers, rule="next", **rates)  # as Megatron-LM restores
print(f"rule next: {theirs.demand} pages, {theirs.makespan_ns - result.makespan_ns} ns longer")
chosen = pagestash.policy(schedules, layers, gpu_bytes=1 << 30, set_bytes=form.measure().payload_bytes,
                          **rates)
print(chosen)

stashes = [event for event in result.raw_events() if result.EVENT_KINDS[event.kind] == "stash"]
slowest = max(stashes, key=lambda event: event.end_ns - event.begin_ns)
print(f"{len(stashes)} stashes, of which the slowest takes {slowest.end_ns - slowest.begin_ns} ns")
result.to_html(FOLDER / "timeline.html")
if importlib.util.find_spec("matplotlib"):
    result.plot(stages=[0, 3]).savefig(FOLDER / "timeline.svg")
