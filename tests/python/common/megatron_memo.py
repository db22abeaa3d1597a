"""What test_megatron_memo.py has two ranks do; each function answers what JSON can hold."""
import contextlib
import functools
from unittest import mock

import torch
from torch.distributed.nn.functional import all_gather
from megatron.core import parallel_state
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer.torch_norm import WrappedTorchNorm

import pagestash.megatron
from pagestash import Error
from common.megatron_model import Training
from common.megatron_scenarios import installed, parallel, runner_of, train
from common.pages import run_block

STEPS, CUT = 8, 10
FRACTIONS = (None, 0, "1/2", 1)


@contextlib.contextmanager
def swapped(training, fraction, **fields):
    """The layers of a Training, by tokens, by the line of docs/megatron.md."""
    names = {"pagestash": pagestash, "model": training.model}
    memo = functools.partial(pagestash.megatron.memo, fraction=fraction, **{**dict(
        cut=CUT, block_tokens=16, micro_batches=training.micro_batches), **fields})
    with mock.patch.object(pagestash.megatron, "memo", memo):
        run_block("docs/megatron.md", "pagestash.megatron.memo(", names)
    run = names["run"]
    try:
        yield run
    except BaseException:
        run.abort()
        raise
    finally:
        run.close()


def figures(run):
    """Of its scheduler."""
    if run.scheduler is None:
        return None
    stats = run.scheduler.stats()
    return dict(steps=stats.steps, visits=stats.visits, swapped=stats.swapped,
                in_place=stats.kept_in_place, deviations=run.deviations,
                units=len(run.units), aborted=stats.aborted_steps)


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
        out["dense"] = each_fraction(experts=None, position="rope")
    return out


def pipelining():
    """PP 2 over gloo: 1F1B, with a step of shorter sequences, and interleaved with two chunks a
    rank. Outputs of stages are freed once they were sent, as Megatron-Core's training loop has
    it."""
    out, shape = {}, dict(experts=None, position="rope", micro_batches=4,
                          deallocate_pipeline_outputs=True)
    with parallel(pp=2, ep=1):
        out["1f1b"] = each_fraction(layers=6, **shape)
        for fraction in (None, "1/2"):
            training = Training(False, layers=6, **shape)
            with swapped(training, fraction) as run:
                steps = []
                for seq in (32, 24, 32):
                    training.seq = seq
                    training.mask = torch.triu(torch.ones(1, 1, seq, seq, dtype=torch.bool), 1)
                    steps += train(training, steps=1)
                lengths = out.setdefault("length", {})
                lengths[str(fraction)] = dict(steps=steps, figures=figures(run))
    with parallel(pp=2, ep=1, chunks=2):
        out["interleaved"] = each_fraction(layers=4, chunks=2, **shape)
    return out


def _sequence_norm(_cls, config, hidden_size, eps=1e-5, **_fields):
    """Megatron-Core's norm of torch is without the mark that sequence parallelism wants."""
    norm = torch.nn.LayerNorm(hidden_size, eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    return norm


def tensor_parallel():
    """TP 2, with and without sequence parallelism."""
    out = {}
    norm = mock.patch.object(WrappedTorchNorm, "__new__", _sequence_norm)
    with parallel(tp=2, ep=1), norm:
        shape = dict(experts=None, position="rope", seq=64, num_query_groups=2)
        out["tensor"] = each_fraction(steps=4, fractions=(None, "1/2"), memo=dict(cut=20), **shape)
        shape["sequence_parallel"] = True
        out["sequence"] = each_fraction(steps=4, **shape)
        shape.update(hidden_dropout=0.0, attention_dropout=0.0)
        want = train(Training(False, **shape), steps=2)
        got = each_fraction(steps=2, fractions=("1/2",), **shape)["1/2"]["steps"]
        out["near"] = [(a["losses"], b["losses"]) for a, b in zip(want, got)]
    return out


class RingAttention(torch.nn.Module):
    """Stands for Transformer Engine's attention with context parallelism: a rank has two blocks of
    the sequence, one from each end, and keys and values come from all ranks."""

    def __init__(self, **_fields):
        super().__init__()
        self.group = parallel_state.get_context_parallel_group()

    def positions(self, rank, num_tokens):
        """Of the tokens of a rank."""
        half, blocks = num_tokens // 2, 2 * self.group.size()
        starts = torch.tensor([rank, blocks - 1 - rank]) * half
        return (starts[:, None] + torch.arange(half)).flatten()

    def forward(self, query, key, value, _mask, **_fields):
        """[tokens, batch, heads, width]."""
        ranks, own = range(self.group.size()), self.group.rank()
        keys, values = (torch.cat(all_gather(one.contiguous(), group=self.group))
                        for one in (key, value))
        where = torch.cat([self.positions(rank, key.shape[0]) for rank in ranks])
        seen = self.positions(own, query.shape[0])[:, None] >= where
        out = torch.nn.functional.scaled_dot_product_attention(
            *(one.permute(1, 2, 0, 3) for one in (query, keys, values)), attn_mask=seen)
        return out.permute(2, 0, 1, 3).flatten(2)


def context_parallel():
    """CP 2, with a stand-in for attention: each rank has its own tokens and positions."""
    shape = dict(experts=None, position="rope", attention=RingAttention)
    with parallel(cp=2, ep=1):
        out = {"context": each_fraction(steps=4, **shape)}
        shape.update(hidden_dropout=0.0)
        want = train(Training(False, **shape), steps=2)
        got = each_fraction(steps=2, fractions=("1/2",), **shape)["1/2"]["steps"]
        out["near"] = [(a["losses"], b["losses"]) for a, b in zip(want, got)]
        rank = parallel_state.get_context_parallel_rank()
        out["positions"] = RingAttention().positions(rank, 4).tolist()
        return out


def experts():
    """Two dense layers and two with experts, EP 2: by tokens, and the experts paged, as with
    neither."""
    shape = dict(layers=4, dense=2)
    with parallel():
        out = each_fraction(fractions=(None,), **shape)
        with installed() as manager:
            out.update(each_fraction(stash=True, factor=-1.5, fractions=(0, "1/2", 1), **shape))
            status = manager.finish()
        grown = {}
        for fraction in (None, "1/2"):  # pages run out in a step, which Megatron-Core's runner repeats
            with installed() as growing:
                training = Training(True, factor=-0.4)
                with swapped(training, fraction) as run:
                    steps = train(training, steps=3, call=runner_of(training), manager=growing)
                    grown[str(fraction)] = dict(steps=steps, figures=figures(run))
        return {"paged": out, "grown": grown, "pages": dict(
            launches=manager.num_launches, in_use=status.in_use, faults=status.num_faults,
            lost=manager.num_lost_steps)}


def around():
    """What is not a step as the others: evaluations, another number of micro-batches, an
    exception; and, in one piece, nothing but Megatron-Core's own steps."""
    def steps(training):
        out = []
        for micro_batches, broken in ((3, False), (1, True), (2, False), (4, False)):
            if broken:
                out.append(failing(training))
                continue
            training.micro_batches = micro_batches
            losses = training.run(training.schedule, forward_only=True, micro_batches=2)
            out += train(training, steps=1, micro_batches=[micro_batches])
            out[-1]["losses"] += losses
        return out

    with parallel(ep=1):
        out = {"swapped": {}}
        for fraction in (None, 0, "1/2"):
            training = Training(False, experts=None)
            with swapped(training, fraction, micro_batches=lambda: training.micro_batches) as run:
                out["swapped"][str(fraction)] = dict(steps=steps(training), figures=figures(run))
        training = Training(False, experts=None)
        whole = train(training, steps=2)
        training = Training(False, experts=None)
        with swapped(training, None, cut=0):
            out["whole"] = {"None": dict(steps=whole, figures=None),
                            "cut 0": dict(steps=train(training, steps=2), figures=None)}
    return out


def failing(training):
    """A step that ends between its forward and its backward. No gradients."""
    schedule, step = training.schedule, training.forward_step

    def broken(iterator, model):
        out, _ = step(iterator, model)
        return out, lambda out: 1 / 0

    training.forward_step = broken
    try:
        training.run(schedule)
    except ZeroDivisionError:
        pass
    training.forward_step = step
    return {"losses": [], "after": None}


def refused():
    """Sentences, and whether a layer was left as it was."""
    out = {}
    with parallel(ep=1):
        training = Training(False, experts=None)
        block = training.model[0].module.decoder
        layer = block.layers[1]

        def attempt(name, call):
            try:
                call()
                out[name] = None
            except Error as error:
                out[name] = str(error)

        def wrap():
            pagestash.megatron.memo(training.model, "1/2", micro_batches=3)

        for name, value in (("recompute_granularity", "selective"), ("cpu_offloading", True),
                            ("fine_grained_activation_offloading", True), ("fp8", "hybrid"),
                            ("cuda_graph_impl", "local"), ("multi_latent_attention", True)):
            with mock.patch.object(training.config, name, value):
                attempt(name, wrap)
        with mock.patch.object(megatron_random, "is_graph_safe_cuda_rng_tracker",
                                        lambda _tracker: True):
            attempt("dropout", wrap)
        with mock.patch.object(layer, "cross_attention", torch.nn.Linear(1, 1)):
            attempt("cross_attention", wrap)
        attempt("model", lambda: pagestash.megatron.memo(torch.nn.Linear(1, 1)))
        attempt("fraction", lambda: pagestash.megatron.memo(training.model, "3/2"))
        attempt("token_dim", lambda: pagestash.megatron.memo(training.model, token_dim=1))
        with mock.patch.object(block, "layers", torch.nn.ModuleList()):
            with swapped(training, "1/2") as run:  # a stage with none
                out["units"] = len(run.order)
        out["left"] = "forward" not in layer.__dict__
        with swapped(training, "1/2", micro_batches=None):
            attempt("micro_batches", lambda: training.run(training.schedule))
        with swapped(training, "1/2"):
            x = torch.randn(32, 2, 64, requires_grad=True)
            attempt("packed_seq_params", lambda: layer(x, packed_seq_params=object()))
            attention = layer.self_attention
            shifted = mock.patch.object(  # positions from the begin of what it is given
                type(attention), "forward", lambda self, x, **fields: (x + torch.linspace(
                    0, 1, x.shape[0])[:, None, None] + 0 * self.core_attention(
                        *(x.view(*x.shape[:2], 4, 16),) * 3, fields["attention_mask"]), None))
            with shifted:
                attempt("positions", lambda: training.run(training.schedule))
    return {"sentences": out}
