"""Bytes that torch's CPU allocator holds, as the profiler sees every allocation."""
import contextlib
import gc
import re

import torch
from torch.autograd.profiler import record_function

_MARK = re.compile(r"pagestash (out|in) (\d+)")


class Timeline:
    """(kind, bytes) in order: "held": in use in the process from here on; "out", "in": a layer's static
    buffers, which a stash lets go and brings back here."""

    def __init__(self):
        self.points = []

    def peak(self):
        """The most that was held."""
        return max(held for kind, held in self.points if kind == "held")

    def peak_of_one_layer(self):
        """The most that would have been held, had the layers' static buffers been there only while
        their layer runs: everything else, and the working set of one layer."""
        away = most = held = 0
        for kind, num_bytes in self.points:
            if kind == "held":
                held = num_bytes
            else:
                away += num_bytes if kind == "out" else -num_bytes
            most = max(most, held - away)
        return most


def mark(kind, num_bytes):
    """Notes in the running measurement that `num_bytes` go "out" or come "in"."""
    with record_function(f"pagestash {kind} {num_bytes}"):
        pass


@contextlib.contextmanager
def measured():
    """The Timeline of what runs inside, relative to what is held at its begin."""
    gc.collect()
    timeline = Timeline()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        yield timeline
    tree = profile.profiler.kineto_results.experimental_event_tree()
    points = sorted(_points(tree), key=lambda point: point[0])
    base = next(held - change for _, kind, held, change in points if kind == "held")
    timeline.points += [(kind, held - base if kind == "held" else held)
                        for _, kind, held, _ in points]


def _points(events):
    for event in events:
        if event.tag == torch._C._profiler._EventType.Allocation:
            fields = event.extra_fields
            yield event.start_time_ns, "held", fields.total_allocated, fields.alloc_size
        else:
            found = _MARK.fullmatch(event.name)
            if found:
                yield event.start_time_ns, found[1], int(found[2]), 0
        yield from _points(event.children)
