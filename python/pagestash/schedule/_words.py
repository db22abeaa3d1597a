"""Names of kinds and what else the scheduler's Python shares: addresses, streams, shares."""
import fractions
from typing import NamedTuple

from .. import _abi
from .._checks import Error, integer, shown

KINDS = ("1f1b", "interleaved", "gpipe", "gpipe-reversed", "zb-h1", "zb-h2", "zb-v", "dualpipe",
         "dualpipe-v", "list")
PASSES = ("forward", "backward", "backward_input", "backward_weight")
LETTERS = ("F", "B", "I", "W")  # of lists in files, docs/formats.md
KEEPS = ("paged", "swapped", "planned", "recomputed")
MOVES = ("direct", "demote")
RULES = ("asap", "next")
USES = {"both": 0, "backward": _abi.PST_USE_BACKWARD, "weight": _abi.PST_USE_WEIGHT}


class VisitKey(NamedTuple):
    """Which visit: kind of pass ("forward", "backward", "backward_input", "backward_weight"), chunk of
    this GPU, layer within the chunk, micro-batch; all from 0."""
    kind: str
    chunk: int
    layer: int
    micro_batch: int

    def __str__(self):
        return (f"{self.kind} of chunk {self.chunk}, layer {self.layer}, "
                f"micro-batch {self.micro_batch}")


def address_of(place, what):
    """Of an address, None or an object with data_ptr(), a tensor say."""
    pointer = getattr(place, "data_ptr", None)
    if pointer is not None:
        return pointer()
    return 0 if place is None else integer(place, what, 64)


def stream_of(stream):
    """The handle of a stream: an int, None, or an object with cuda_stream, as torch.cuda.Stream."""
    return integer(getattr(stream, "cuda_stream", stream) or 0, "stream", 64)


def share_of(share):
    """(num, den) of a share from 0 to 1: a Fraction, an int, a float, or "1/2"."""
    try:
        exact = fractions.Fraction(share).limit_denominator(1 << 20)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Error(f"host_share {shown(share)}: a fraction from 0 to 1 is wanted") from None
    if not 0 <= exact <= 1:
        raise Error(f"host_share {share}: allowed are fractions from 0 to 1")
    return (exact.numerator, exact.denominator) if exact else (0, 0)


def key_of(raw):
    """VisitKey of a pst_visit_key."""
    return VisitKey(PASSES[raw.kind], raw.chunk, raw.layer, raw.micro_batch)
