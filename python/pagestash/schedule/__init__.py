"""Pipelines: schedules, and the scheduler's hooks for who writes a pipeline of their own.

    schedule = Schedule("1f1b", num_stages=4, stage=rank, num_micro_batches=8)
    scheduler = Scheduler(pool, layers, schedule=schedule)
    with scheduler.step():
        for p in schedule:
            ...
            with scheduler.forward(p.chunk, layer, p.micro_batch) as visit:
                my_forward(layer, sources[visit.set])

TorchScheduler keeps and hands back tensors of torch instead."""
from ._layers import Buffers, Layer, Part
from ._order import Pass, Schedule, ScheduleInfo, read_lists, write_lists
from ._scheduler import Scheduler
from ._visit import Stats, Visit
from ._words import KINDS, PASSES, VisitKey

__all__ = ["Buffers", "KINDS", "Layer", "PASSES", "Part", "Pass", "Schedule", "ScheduleInfo",
           "Scheduler", "Stats", "TorchScheduler", "Visit", "VisitKey", "form_of", "read_lists",
           "write_lists"]


def __getattr__(name):
    if name in ("TorchScheduler", "form_of"):  # torch is not needed for the others
        from . import _torch
        return getattr(_torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
