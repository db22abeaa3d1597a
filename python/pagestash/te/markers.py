"""What Transformer Engine says about a tensor: the attributes that it sets, and how they are kept.

Its attributes stand on one Python object and are lost with detach(), a view, or a trip through autograd.
A marker that went through this module is also noted on the tensor's storage, which all of those share: for
exactly these bytes, as long as nobody writes into them."""
import functools
import sys
from typing import Any, Callable

import torch

from .._checks import Error, is_a
from ..torch.rows import Choice

GROUPED = "grouped_tensor_scale_inv"  # False: rows of data; True: scales, one row for 32 rows of data
NEVER = "_TE_do_not_offload"
BASE = "offload_base_tensor"
ROWS, SCALES = True, (1, 32)          # what `select` answers

# What the parts of marked quantised tensors hold, beside grouped ones. Of formats that keep columnwise data
# transposed (NVFP4, blockwise) nothing is known to have the layer's rows.
_PARTS = {
    "MXFP8TensorStorage": {"_rowwise_data": ROWS, "_columnwise_data": ROWS,
                           "_rowwise_scale_inv": (1, 1), "_columnwise_scale_inv": SCALES},
    "Float8TensorStorage": {"_data": ROWS},
}

_NOTES = "_pagestash_markers"         # of a storage: {(offset, bytes): (version, Choice)}
_PACKAGE = "transformer_engine.pytorch"


def select(tensor: torch.Tensor) -> Choice:
    """What a saved tensor is by its markers: True: it has the rows of the layer; (1, 32): it has scales, a
    row for 32 rows or a part of them; False: it stays (marked so, a parameter, or not marked at all).

    For Stash.layer(select=...), where all that is saved are plain tensors. `layer` knows more: quantised
    tensors, padded scales, layers of one group."""
    choice = marked(tensor)
    return False if choice is None else choice


def marked(tensor: torch.Tensor) -> Choice:
    """As `select`, but None for a tensor without a marker."""
    for one in (tensor, tensor._base):
        if isinstance(one, torch.nn.Parameter) or getattr(one, NEVER, False):
            return False
    noted = _noted(tensor)
    if noted is False:
        return False
    scales = getattr(tensor, GROUPED, None)
    if scales is not None:
        return SCALES if scales else ROWS
    return noted


def mark_grouped_tensor(*tensors: Any) -> None:
    """As Transformer Engine's function of this name: marks tensors that have the rows of the experts'
    input, or the columnwise data and scales of grouped ones; and notes it. None is skipped.
    Errors: a grouped tensor without columnwise data and scales."""
    for tensor in tensors:
        if tensor is None:
            continue
        if not hasattr(tensor, "columnwise_data"):
            is_a(tensor, torch.Tensor, "mark_grouped_tensor")
        if hasattr(tensor, "columnwise_data") and (tensor.columnwise_data is None or
                                                   tensor.columnwise_scale_inv is None):
            raise Error(f"mark_grouped_tensor: a {type(tensor).__name__} without columnwise data and "
                        "scales")
        if not hasattr(tensor, "columnwise_data"):
            setattr(tensor, GROUPED, False)
        else:
            setattr(tensor.columnwise_data, GROUPED, False)
            setattr(tensor.columnwise_scale_inv, GROUPED, True)
    note_grouped(*tensors)


def mark_not_offload(*tensors: Any) -> None:
    """As Transformer Engine's function of this name: these tensors stay where they are; and notes it."""
    for tensor in _with_parts(tensors):
        setattr(tensor, NEVER, True)
        note(tensor, False)


def note_grouped(*tensors: Any) -> None:
    """Notes the markers that mark_grouped_tensor has set."""
    for tensor in tensors:
        parts = parts_of(tensor)
        for name, choice in choices_of(tensor).items():
            if name in parts:
                note(parts[name], choice)
        if not parts and tensor is not None:
            note(tensor, ROWS)


def choices_of(tensor: Any) -> dict[str, Choice]:
    """What the parts of a marked quantised tensor are, by attribute; those that are not named stay."""
    choices = {}
    for kind in type(tensor).__mro__:
        choices = choices or _PARTS.get(kind.__name__, {})
    if hasattr(tensor, "columnwise_data"):
        choices = {"columnwise_data": ROWS, "columnwise_scale_inv": SCALES}
    if swizzled_as_one(tensor):
        return {name: not name.endswith("scale_inv") and choice for name, choice in choices.items()}
    return choices


def swizzled_as_one(tensor: Any) -> bool:
    """Whether the scales of a quantised object lie in the tiles of one matrix with all rows of its
    capacity: then no part of their bytes belongs to the live rows alone. Those of several groups follow
    one another."""
    return bool(getattr(tensor, "_with_gemm_swizzled_scales", False)) and \
        getattr(tensor, "num_tensors", 1) == 1


def note(tensor: torch.Tensor, choice: Choice) -> None:
    """Notes it on the storage of a tensor that has one."""
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return
    notes = getattr(storage, _NOTES, None)
    if notes is None:
        notes = {}
        setattr(storage, _NOTES, notes)
    notes[_extent(tensor)] = tensor._version, choice


def _noted(tensor):
    try:
        notes = getattr(tensor.untyped_storage(), _NOTES, None)
    except (RuntimeError, NotImplementedError):  # sparse
        return None
    if notes is None:
        return None
    first, num_bytes = _extent(tensor)
    for (begin, size), (_, choice) in notes.items():
        if choice is False and begin < first + num_bytes and first < begin + size:
            return False
    version, choice = notes.get((first, num_bytes), (None, None))
    return choice if version == tensor._version else None


def _extent(tensor):
    item = tensor.element_size()
    return tensor.storage_offset() * item, tensor.numel() * item


def parts_of(tensor: Any) -> dict[str, torch.Tensor]:
    """The tensors that a quantised object is made of, by attribute; of a plain tensor none."""
    if not hasattr(tensor, "prepare_for_saving"):
        return {}
    return {name: part for name, part in vars(tensor).items() if isinstance(part, torch.Tensor)}


def _with_parts(tensors):
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            yield tensor
        yield from parts_of(tensor).values()


def follow_markers(*modules: Any) -> Callable[[], None]:
    """Lets the markers that Transformer Engine sets be noted, too, so that they outlive detach() and views:
    replaces mark_grouped_tensor and mark_not_offload in these modules, None: in all of
    transformer_engine.pytorch that are loaded, by functions that call them and note. Answers a function
    that undoes it. What is followed already stays as it is."""
    if not modules:
        modules = [module for name, module in list(sys.modules.items())
                   if name.split(".")[:2] == _PACKAGE.split(".") and module is not None]
    undo = []
    for module in modules:
        for name, notes in (("mark_grouped_tensor", note_grouped), ("mark_not_offload", _note_never)):
            function = vars(module).get(name)
            if function is not None and not hasattr(function, "_pagestash_follows"):
                setattr(module, name, _following(function, notes))
                undo.append((module, name, function))

    def restore():
        while undo:
            setattr(*undo.pop())
    return restore


def _note_never(*tensors):
    for tensor in _with_parts(tensors):
        note(tensor, False)


def _following(function, notes):
    @functools.wraps(function)
    def marking(*tensors):
        answer = function(*tensors)
        notes(*tensors)
        return answer
    marking._pagestash_follows = function
    return marking
