"""What test_megatron.py has two ranks do; each function answers what JSON can hold."""
import contextlib
import types

import torch
from megatron.core import parallel_state
from megatron.core.full_cuda_graph import FullCudaGraphWrapper
from megatron.core.transformer.moe import paged_stash

import pagestash.megatron
from common.megatron_model import Training

STEPS = 4


@contextlib.contextmanager
def parallel(pp=1, ep=2, chunks=1, tp=1, cp=1):
    """Megatron's groups."""
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tp, context_parallel_size=cp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
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


class NoGraph(FullCudaGraphWrapper):
    """Megatron's wrapper, but nothing is captured."""

    def __init__(self, schedule):
        super().__init__(schedule)
        self.resets = []

    def __call__(self, **kwargs):
        return self.forward_backward_func(**kwargs)

    def reset_cuda_graph(self, stage=None):
        self.resets.append(stage)


def tight_dispatcher(config):
    """A layer's dispatcher as HybridEP has it, over its budget in the second of all steps."""
    manager = types.SimpleNamespace(moe_expert_rank_capacity_factor=2.0)
    asked = []

    def check_over_budget():
        asked.append(manager.moe_expert_rank_capacity_factor)
        return torch.tensor([len(asked) == 2])

    dispatcher = types.SimpleNamespace(
        config=config, _comm_manager=manager, check_over_budget=check_over_budget,
        reset_over_budget=lambda: None, asked=asked)
    return types.SimpleNamespace(token_dispatcher=dispatcher)


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
        want = plain(overlap=True)
        for name, factor, options in (("grow", -0.4, {}), ("no_grow", -0.4, {"grow": False}),
                                      ("max_pages", -0.4, {"max_pages": 8}),
                                      ("dropless", -0.4, {"recovery": "dropless"}),
                                      ("over_budget", -1.5, {})):
            with installed(**options) as manager:
                training = Training(True, factor=factor, overlap=True)
                runner = runner_of(training)
                if name == "grow":  # as under a full-iteration graph, whose reset comes first
                    runner.forward_backward_func = graph = NoGraph(training.schedule)
                if name == "over_budget":
                    tight = tight_dispatcher(training.config)
                    runner.moe_layers.append(tight)
                got = train(training, call=runner, manager=manager)
                out[name] = dict(want=want, got=got, launches=manager.num_launches,
                                 pages=manager.num_pages, lost=manager.num_lost_steps,
                                 stash_on=training.config.moe_paged_stash)
        out["grow"]["resets"] = graph.resets
        out["over_budget"]["factors"] = tight.token_dispatcher.asked
    return out


def evaluations():
    """An evaluation before the first step, between steps, and with other micro-batches; through
    runners of training and of evaluation. Losses and weights of plain."""
    def run(stash):
        training = Training(stash, factor=-0.4)
        call = runner_of(training) if stash else training.schedule
        evaluate = runner_of(training) if stash else training.schedule
        out = []
        for num in (2, 5, 1):
            losses = training.run(evaluate, forward_only=True, micro_batches=num)
            out += train(training, steps=1, call=call)
            out[-1]["losses"] += losses
        return out

    with parallel():
        want = run(False)
        with installed() as manager:
            got = run(True)
            return {"runner": dict(want=want, got=got, pages=manager.num_pages)}


def micro_batches():
    """A ramp of micro-batches beyond what was recorded, at Megatron's default factor, by the
    runner."""
    ramp = [1, 2, 4, 2]
    with parallel():
        want = train(Training(False), micro_batches=ramp)
        with installed() as manager:
            training = Training(True)
            got = train(training, call=runner_of(training), manager=manager, micro_batches=ramp)
            return {"ramp": dict(want=want, got=got, lost=manager.num_lost_steps)}


def lost():
    """A step that nobody runs again: its gradients are numbers, and it is seen in the evaluation
    after it."""
    with parallel(), installed(grow=False) as manager:
        extra = {"scales": 0, "plain": 1}
        training = Training(True, factor=-0.4, extra=extra)
        for _ in range(2):
            training.run(training.schedule)
        finite = all(bool(p.main_grad.isfinite().all()) for p in training.parameters())
        overflow = bool(paged_stash.check_paged_stash_overflow())
        training.run(training.schedule, forward_only=True)
        again = bool(paged_stash.check_paged_stash_overflow())
        manager.overflow.zero_()
        return {"lost": dict(finite=finite, overflow=overflow, in_evaluation=again,
                             after=bool(paged_stash.check_paged_stash_overflow()),
                             named=sorted(why for *_, why in manager.named))}


def scales():
    """With a tensor of scales and one that is not tagged among the saved ones."""
    with parallel():
        want = plain()
        with installed() as manager:
            extra = {"scales": 0, "plain": 1}
            got = train(Training(True, factor=-1.5, extra=extra), manager=manager)
            return {"scales": dict(want=want, got=got, wrong_scales=extra["scales"],
                                   launches=manager.num_launches, named=len(manager.named))}
