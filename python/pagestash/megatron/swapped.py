"""MEMO for layers of Megatron-Core: which models can have it, and what its schedules run."""
import inspect
import logging

import torch
from megatron.core.num_microbatches_calculator import get_num_microbatches
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.transformer_layer import TransformerLayer
from megatron.core.utils import make_viewless_tensor

from .._c import Error
from ..memo import _pieces, _run
from ..memo._unit import Unit
from ..schedule import Schedule

_log = logging.getLogger("pagestash")
_CORE = "self_attention.core_attention"
_OURS = ("attention", "token_dim", "micro_batches")
_DEFAULTS = {name: one.default for name, one in inspect.signature(_run.run).parameters.items()
             if one.kind is one.KEYWORD_ONLY and name not in _OURS}
_ENOUGH = 64  # micro-batches, whose slots are enough for any number of them
_ONE = "it moves the same tensors as MEMO: allowed is one of them"
_MAXIMA = "a layer that is run in pieces sees other maxima"
# Of the configuration: what must not be there, and why.
_REFUSED = (
    ("recompute_granularity", None, "what Megatron-Core computes again is not kept, and MEMO "
                                    "computes dropped tokens again by itself: leave it away"),
    ("cpu_offloading", False, _ONE),
    ("fine_grained_activation_offloading", False, _ONE),
    ("cuda_graph_impl", "none", "Megatron-Core's graphs replay layers without their calls"),
    ("overlap_moe_expert_parallel_comm", False, "its schedule calls parts of layers, not layers"),
    ("tp_comm_overlap", False, "its buffers are made for all tokens of a layer"),
    ("multi_latent_attention", False, "its rotary positions are counted from the begin of what "
                                      "it is given, so it cannot be run on some of the tokens"),
    ("mlp_chunks_for_training", 1, "pieces of the tokens would be cut once more, elsewhere"),
    ("fp8", None, _MAXIMA),
    ("fp4", None, _MAXIMA),
    ("experimental_attention_variant", None, "its attention is not one of queries, keys, values"),
)
_NO_TENSORS = ("context", "packed_seq_params", "inference_context", "inference_params",
               "rotary_pos_cos", "rotary_pos_sin", "rotary_pos_cos_sin", "sequence_len_offset")
_BY_TOKENS = ("rotary_pos_emb",)  # dimension 0; what else is a tensor goes whole


class LayerUnit(Unit):
    """A TransformerLayer: [tokens, batch, hidden]. With sequence parallelism these are the tokens
    of one rank, and attention has those of all ranks, one behind the other."""

    def __init__(self, run, place, module, **fields):
        super().__init__(run, place, module, **fields)
        if module.config.sequence_parallel:
            self.groups = module.pg_collection.tp.size()

    def hidden(self, args, kwargs):
        """See Unit. Errors: arguments that cannot be cut by tokens."""
        for name in _NO_TENSORS:
            if kwargs.get(name) is not None:
                raise Error(f"{self.name}: {name} is given: memo is for training without it")
        return super().hidden(args, kwargs)

    def part_of(self, rest, span, num_tokens):
        """See Unit."""
        def cut(leaf):
            if not isinstance(leaf, torch.Tensor):
                return leaf
            return _pieces.share_of(leaf, 0, span, self.groups)

        args, kwargs = rest
        parts = {name: torch.utils._pytree.tree_map(cut, kwargs.get(name)) for name in _BY_TOKENS}
        return args, {**kwargs, **parts}


class MegatronRun(_run.Run):
    """A Run (pagestash.memo) whose steps are those of Megatron-Core's schedules."""

    unit_type = LayerUnit

    def __init__(self, chunks, micro_batches, **fields):
        self.micro_batches = micro_batches
        super().__init__(chunks, micro_batches=1, token_dim=0, attention=_CORE, **fields)
        self.visits.ends_itself = True

    @property
    def trackers(self):
        """Megatron-Core's random states."""
        tracker = megatron_random._CUDA_RNG_STATE_TRACKER
        return () if tracker is None else (tracker,)

    def num_micro_batches(self):
        """See Run."""
        return _number(self.micro_batches)

    def _visited(self, unit, args, kwargs):
        """See Run. A stage's output is freed under its graph, which a view cannot be."""
        hidden, context = super()._visited(unit, args, kwargs)
        hidden = make_viewless_tensor(hidden, requires_grad=hidden.requires_grad, keep_graph=True)
        return hidden, context

    def micro_batch(self, unit):
        """Its schedules write it to the layers. A first one in an open step says that the one
        before lost some of its backwards, as an exception does."""
        number = getattr(unit.module, "current_microbatch", None)
        if number is None:
            return super().micro_batch(unit)
        if self.visits.is_open and number == 0 and unit.seat in self.visits.calls:
            _log.warning("pagestash.megatron.memo: a step ended without all its backwards: what "
                         "they would have read is given up")
            self.abort()
        return number


def _number(micro_batches):
    if micro_batches is None:
        try:
            return get_num_microbatches()
        except AttributeError:
            raise Error("pagestash.megatron.memo: Megatron-Core's calculator of micro-batches is not "
                        "initialised: say micro_batches") from None
    return micro_batches() if callable(micro_batches) else micro_batches


def run(model, *, micro_batches, schedule, **fields):
    """See pagestash.megatron.memo."""
    for name in _OURS[:2]:
        if name in fields:
            raise Error(f"pagestash.megatron.memo: {name}: it is Megatron-Core's, and not to be said")
    chunks = [_layers(chunk) for chunk in (model if isinstance(model, (list, tuple)) else [model])]
    layers = [layer for chunk in chunks for layer in chunk]
    if layers:  # a stage may have none
        config = layers[0].config
        _check(config)
        chunks = [[_unit_of(layer) for layer in chunk] for chunk in chunks]
        if schedule is None:
            number = micro_batches if isinstance(micro_batches, int) else _ENOUGH
            schedule = schedule_of(config, layers[0].pg_collection.pp, len(chunks), number)
        if fields.get("group") is None:
            fields["group"] = _group_of(layers[0])
    return MegatronRun(chunks, micro_batches, **{**_DEFAULTS, **fields, "schedule": schedule})


def _group_of(layer):
    """Ranks that run a layer together, and so have to choose alike; None: it is this one alone."""
    group = getattr(layer.pg_collection, "tp_cp", None) or getattr(layer.pg_collection, "tp", None)
    return group if group is not None and group.size() > 1 else None


def _layers(chunk):
    """TransformerLayers of its decoder, in order."""
    for module in chunk.modules():
        block = getattr(module, "decoder", None)
        if isinstance(getattr(block, "layers", None), torch.nn.ModuleList):
            return list(block.layers)
    raise Error(f"pagestash.megatron.memo: {type(chunk).__name__} has no decoder with layers: a "
                "GPTModel, or its list of chunks, is wanted")


def _unit_of(layer):
    """(module, method): of experts, which are paged, only what is before them."""
    name = f"pagestash.megatron.memo: layer {getattr(layer, 'layer_number', '?')}"
    if not isinstance(layer, TransformerLayer):
        raise Error(f"{name}: {type(layer).__name__} is no TransformerLayer")
    if not isinstance(layer.cross_attention, IdentityOp):
        raise Error(f"{name}: it has cross attention, whose context has other tokens")
    if not hasattr(layer.self_attention, "core_attention"):
        raise Error(f"{name}: {type(layer.self_attention).__name__} has no core_attention")
    return layer, "_forward_attention" if isinstance(layer.mlp, MoELayer) else "forward"


def _check(config):
    for name, allowed, why in _REFUSED:
        value = getattr(config, name, allowed)
        if value not in (allowed, None, False):
            raise Error(f"pagestash.megatron.memo: {name} is {value!r}: {why}")
    tracker = megatron_random._CUDA_RNG_STATE_TRACKER
    if (config.hidden_dropout or config.attention_dropout) and tracker is not None and \
            megatron_random.is_graph_safe_cuda_rng_tracker(tracker):
        raise Error("pagestash.megatron.memo: dropout, and random states for CUDA graphs: these are "
                    "references, so that tokens that are computed again could not draw as before")


def schedule_of(config, pp, num_chunks: int, num_micro_batches: int) -> Schedule:
    """The Schedule of this rank, as Megatron-Core runs it. pp: the group of the pipeline."""
    stages = pp.size()
    if stages == 1:
        return Schedule("1f1b", num_micro_batches=num_micro_batches)
    place = dict(num_stages=stages, stage=pp.rank())
    if num_chunks == 1:
        return Schedule("1f1b", num_micro_batches=num_micro_batches, **place)
    return Schedule("interleaved", num_micro_batches=num_micro_batches, num_chunks=num_chunks,
                    group=config.microbatch_group_size_per_vp_stage or 0, **place)
