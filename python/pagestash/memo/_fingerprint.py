"""What a plan is of: the parameters of a model, its layers, its input, and the ranks of a job."""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Optional

from .._c import Error

Blocks = Callable[[Any], Any]


def module_of(made: Any) -> Any:
    """The module in what a `build` gave: itself, the first of a sequence or of a dict's values, or the
    first attribute that is one."""
    import torch
    if isinstance(made, torch.nn.Module):
        return made
    values: list = []
    if isinstance(made, (tuple, list)):
        values = list(made)
    elif isinstance(made, dict):
        values = list(made.values())
    elif hasattr(made, "__dict__"):
        values = list(vars(made).values())
    for value in values:
        if isinstance(value, torch.nn.Module):
            return value
    raise Error(f"build: a {type(made).__name__} without a torch.nn.Module: allowed is a model, or "
                "something with one in it")


def blocks_of(made: Any, blocks: Optional[Blocks], layers: Optional[int]) -> list:
    """The layers: what `blocks` answers, else the ModuleList (or Sequential) of that many with most
    parameters; layers None: the longest."""
    import torch
    if blocks is not None:
        found = list(blocks(made))
        if layers is not None and len(found) != layers:
            raise Error(f"blocks: {len(found)} layers: build was asked for {layers}")
        return found
    best: list = []
    key = (-1, -1)
    for module in module_of(made).modules():
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            continue
        size = sum(parameter.nbytes for parameter in module.parameters())
        if size == 0 or layers is not None and len(module) != layers:
            continue
        now = (len(module) if layers is None else 0, size)
        if now > key:
            best, key = list(module), now
    if not best and layers is not None:
        raise Error(f"a model built with {layers} layers has no ModuleList of {layers}: blocks=, a "
                    "function of the model, names its layers")
    return best


def tensors(module: Any, wanted: set) -> dict:
    """{name: [dtype, shape, trained]} of those parameters whose ids are wanted."""
    return {name: [str(parameter.dtype).removeprefix("torch."), list(parameter.shape),
                   parameter.requires_grad]
            for name, parameter in module.named_parameters() if id(parameter) in wanted}


def of(made: Any, blocks: Optional[Blocks], layers: Optional[int]) -> dict:
    """The fingerprint of a model: {"layers": how many, "layer": {name: [dtype, shape, trained]} of
    each, "outside": the same of all else, "world": {name: size}}. Errors: layers that differ."""
    found = blocks_of(made, blocks, layers)
    inside: set = set()
    each: list[dict] = []
    for layer in found:
        own = set(map(id, layer.parameters()))
        each.append(tensors(layer, own))
        inside |= own
    for number, other in enumerate(each[1:], 1):
        if said := differs(each[0], other, "layer 0", f"layer {number}"):
            raise Error(f"{said}: allowed are layers that are alike")
    module = module_of(made)
    rest = set(map(id, module.parameters())) - inside
    return {"layers": len(found), "layer": each[0] if each else {}, "outside": tensors(module, rest),
            "world": world()}


def world() -> dict:
    """Sizes of the process groups: of torch.distributed, and of Megatron-Core if it has set them up."""
    import torch
    out = {}
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        out["world"] = torch.distributed.get_world_size()
    state = sys.modules.get("megatron.core.parallel_state")
    if state is not None and state.model_parallel_is_initialized():
        out["tensor"] = state.get_tensor_model_parallel_world_size()
        out["context"] = state.get_context_parallel_world_size()
        out["pipeline"] = state.get_pipeline_model_parallel_world_size()
    return out


def rank() -> int:
    """Of this process in torch.distributed, 0 without it."""
    import torch
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return 0


def differs(planned: dict, own: dict, one: str, other: str) -> str:
    """The first parameter in which two differ, in words; "" where they are alike."""
    for name, what in planned.items():
        if name not in own:
            return f"{one} has a parameter {name}, which {other} has not"
        if own[name] != what:
            return (f"{name} is {_said(what)} in {one}, and {_said(own[name])} in {other}")
    for name in own:
        if name not in planned:
            return f"{other} has a parameter {name}, which {one} has not"
    return ""


def _said(what):
    return f"{what[0]}[{', '.join(map(str, what[1]))}]{'' if what[2] else ' (frozen)'}"


def mismatch(plan: dict, model: dict) -> str:
    """What differs between the fingerprint of a plan and a model's, one sentence; "" where they agree."""
    if plan["layers"] != model["layers"]:
        return f"the plan is of {plan['layers']} layers, and the model has {model['layers']}"
    said = differs(plan["layer"], model["layer"], "the plan's layer", "the model's")
    said = said or differs(plan["outside"], model["outside"], "the plan", "the model")
    if said:
        return said
    for name in sorted({*plan["world"], *model["world"]}):
        planned, here = (part["world"].get(name, 1) for part in (plan, model))
        if planned != here:
            return f"the plan is of {name} size {planned}, and here it is {here}"
    return ""
