"""What test_megatron.py has two ranks do; each function answers what JSON can hold."""
import contextlib

import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe import paged_stash

import pagestash.megatron
from common.megatron_model import Training

STEPS = 4


@contextlib.contextmanager
def parallel(pp=1, ep=2, chunks=1):
    """Megatron's groups."""
    parallel_state.initialize_model_parallel(
        pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None)
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()


@contextlib.contextmanager
def installed(stash=True, **options):
    """The adapter, with the manager; None without stash."""
    manager = pagestash.megatron.install(**options) if stash else None
    try:
        yield manager
    finally:
        pagestash.megatron.uninstall()


def runner_of(training):
    """Megatron's runner, or what install put in its place."""
    return paged_stash.PagedStashRunner(training.config, False, training.model, None,
                                        training.schedule)


def train(training, steps=STEPS, call=None, manager=None, micro_batches=None):
    """Steps: what each one gave."""
    call, out = call or training.schedule, []
    for step in range(steps):
        num = micro_batches[step] if micro_batches else None
        losses = training.run(call, micro_batches=num)
        entry = {"losses": losses, "after": None}
        if manager is not None:
            entry["pages"] = manager.num_pages
            entry["overflow"] = bool(paged_stash.check_paged_stash_overflow())
        training.update()
        entry["after"] = training.fingerprint()
        out.append(entry)
    return out


def plain(**kwargs):
    """Without stash: what the others must give."""
    return train(Training(False, **kwargs))


def no_pipelining():
    """EP 2, Megatron's own schedule, fp32 and bf16."""
    out = {}
    with parallel():
        for dtype in (torch.float32, torch.bfloat16):
            want = plain(dtype=dtype)
            with installed() as manager:
                got = train(Training(True, factor=-1.5, dtype=dtype), manager=manager)
                status = manager.finish()
                out[str(dtype)] = dict(want=want, got=got, launches=manager.num_launches,
                                       in_use=status.in_use, faults=status.num_faults,
                                       lost=manager.num_lost_steps,
                                       named=len(manager.named))
    return out


def pipelining():
    """PP 2 over gloo: 1F1B, and interleaved with two chunks a rank."""
    out = {}
    for name, chunks, layers, micro in (("1f1b", 1, 4, 4), ("interleaved", 2, 4, 4)):
        shape = dict(layers=layers, micro_batches=micro, chunks=chunks)
        with parallel(pp=2, ep=1, chunks=chunks):
            want = plain(**shape)
            with installed() as manager:
                got = train(Training(True, factor=-1.5, **shape), manager=manager)
                status = manager.finish()
                out[name] = dict(want=want, got=got, launches=manager.num_launches,
                                 in_use=status.in_use, faults=status.num_faults,
                                 order=list(manager._pp_schedule))
    return out


def recovery():
    """Pools that are too small, through the runner: it grows, or goes dropless."""
    out = {}
    with parallel():
        want = plain()
        for name, factor, options in (("grow", -0.4, {}), ("no_grow", -0.4, {"grow": False}),
                                      ("max_pages", -0.4, {"max_pages": 12}),
                                      ("dropless", -0.4, {"recovery": "dropless"})):
            with installed(**options) as manager:
                training = Training(True, factor=factor)
                runner = runner_of(training)
                got = train(training, call=runner, manager=manager)
                out[name] = dict(want=want, got=got, launches=manager.num_launches,
                                 pages=manager.num_pages, lost=manager.num_lost_steps,
                                 stash_on=training.config.moe_paged_stash)
    return out
