"""What test_megatron_memo.py has two ranks do; each function answers what JSON can hold."""
import contextlib

import pagestash.megatron
from common.megatron_model import Training
from common.megatron_scenarios import installed, parallel, train

STEPS, CUT = 8, 10
FRACTIONS = (None, 0, "1/2", 1)


@contextlib.contextmanager
def swapped(training, fraction, **fields):
    """The layers of a Training, by tokens."""
    run = pagestash.megatron.memo(training.model, fraction, **{**dict(
        cut=CUT, block_tokens=16, micro_batches=training.micro_batches), **fields})
    try:
        yield run
    finally:
        run.close()


def figures(run):
    """Of its scheduler."""
    if run.scheduler is None:
        return None
    stats = run.scheduler.stats()
    return dict(steps=stats.steps, visits=stats.visits, swapped=stats.swapped,
                in_place=stats.kept_in_place, deviations=run.deviations,
                units=len(run.units), schedule=list(run.schedule))


def each_fraction(steps=STEPS, stash=False, fractions=FRACTIONS, memo=None, **shape):
    """Losses, weights and gradients of each, and figures."""
    out = {}
    for fraction in fractions:
        training = Training(stash, **shape)
        with swapped(training, fraction, **(memo or {})) as run:
            steps_of = train(training, steps=steps)
            out[str(fraction)] = dict(steps=steps_of, figures=figures(run))
    return out


def no_pipelining():
    """Dense layers, rotary embeddings or learned positions, dropout, gradient accumulation."""
    out = {}
    with parallel(ep=1):
        for position in ("rope", "learned_absolute"):
            shape = dict(experts=None, position=position)
            out[position] = each_fraction(**shape)
    return out


def pipelining():
    """PP 2 over gloo: 1F1B, and interleaved with two chunks a rank."""
    out = {}
    for name, chunks, layers in (("1f1b", 1, 6), ("interleaved", 2, 8)):
        with parallel(pp=2, ep=1, chunks=chunks):
            out[name] = each_fraction(experts=None, position="rope", layers=layers, chunks=chunks,
                                      micro_batches=4)
    return out
