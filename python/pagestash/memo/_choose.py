"""How many tokens of each layer go to the host."""
import dataclasses
import fractions
from typing import Any, Optional

from .._checks import Error, integer, shown, within
from ._auto import Cost, automatic
from ._limits import Limits, free_host_bytes, staying
from ._times import Times, agreed, link_rates

_MOST_BLOCK_TOKENS = 1 << 20


@dataclasses.dataclass(frozen=True)
class Choice:
    """tokens: of each layer, of its num_tokens; None: it stays in memory. host_bytes: of pinned memory;
    gpu_bytes: of both buffers, and of layers that stay; host_limit, gpu_limit: what there is. leaves: which
    are copied to the host. With "auto" times: that were measured, and cost: simulated."""
    tokens: tuple
    why: str
    host_bytes: int = 0
    gpu_bytes: int = 0
    host_limit: Optional[int] = None
    gpu_limit: Optional[int] = None
    leaves: tuple = ()
    times: Optional[Times] = None
    cost: Optional[Cost] = None


def share_of(given: Any, what: str = "fraction") -> fractions.Fraction:
    """A share from 0 to 1: "7/15", a Fraction, an int, a float. Errors: it is none."""
    try:
        if isinstance(given, bool):
            raise TypeError
        share = fractions.Fraction(given)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Error(f"{what} {shown(given)}: \"auto\", None, or a fraction from 0 to 1, say \"7/15\", is "
                    "wanted") from None
    if not 0 <= share <= 1:
        raise Error(f"{what} {given}: allowed are fractions from 0 to 1")
    return share


def fraction_of(given: Any, num_layers: int) -> Any:
    """"auto", None, a Fraction, or a tuple of Fractions and Nones with one for each layer."""
    if given is None or isinstance(given, str) and given == "auto":
        return given
    if not isinstance(given, (list, tuple)):
        return share_of(given)
    if len(given) != num_layers:
        raise Error(f"fraction: {len(given)} of them: there are {num_layers} layers")
    return tuple(None if one is None else share_of(one, f"fraction {i}") for i, one in enumerate(given))


def checked(run, num_layers):
    """Looks at what memo.run was given, before anything is made of it."""
    run.fraction = fraction_of(run.fraction, num_layers)
    run.keep_last = within(run.keep_last, "keep_last", 0, (1 << 31) - 1)
    if run.keep_last == 1:
        raise Error("keep_last 1: the last two layers stay in the two buffers; allowed are 2 and more, and 0, "
                    "where all leave, for comparison")
    run.block_tokens = within(run.block_tokens, "block_tokens", 16, _MOST_BLOCK_TOKENS)
    if run.block_tokens & (run.block_tokens - 1):
        raise Error(f"block_tokens {run.block_tokens}: allowed are powers of two, from 16 on")
    for name in ("host_bytes", "gpu_bytes", "link_bytes_per_second"):
        if getattr(run, name) is not None:
            setattr(run, name, integer(getattr(run, name), name, 62))
    if run.link_bytes_per_second == 0:
        raise Error("link_bytes_per_second 0: allowed is 1 and more")


def _times_of(run, device):
    """What the units measured, and the link: timed here, or given."""
    scales = [unit.measured for unit in run.units]
    given = run.link_bytes_per_second
    rates = (given, given) if given else link_rates(
        device, max(scale.kept_bytes for scale in scales if scale is not None))
    return Times(*(tuple(0 if scale is None else max(1, getattr(scale, name)) for scale in scales)
                   for name in ("forward_ns", "recompute_ns")), *rates)


def choose(run, device, taken=(0, 0)):
    """Of a Run whose units were measured. taken: bytes of GPU and host memory that something else has.
    Errors: no fraction fits, or not the one that was given."""
    units, times, cost = run.units, None, None
    host_bytes = max(0, (free_host_bytes() if run.host_bytes is None else run.host_bytes) - taken[1])
    gpu_bytes = None if run.gpu_bytes is None else run.gpu_bytes - taken[0]
    if run.wants_times:
        times, host_bytes = agreed(_times_of(run, device), host_bytes, run.group)
    limits = Limits(
        [unit.place for unit in units], [unit.measured for unit in units], run.schedule,
        block_tokens=run.block_tokens, cut=run.cut, host_bytes=host_bytes, gpu_bytes=gpu_bytes,
        keeps_nothing=run.keep_last == 0)
    stays = staying(limits.places, run.keep_last)
    if run.wants_times:
        tokens, cost, why = automatic(limits, times, stays)
    else:
        tokens, what = _given(run.fraction, limits, stays)
        limits.check(tokens, what)
        why = f"{what}, as given" if run.fraction is not None else "nothing is swapped: fraction is None"
    return Choice(tokens, why, limits.host_bytes(tokens), limits.gpu_bytes(tokens), host_bytes, gpu_bytes,
                  tuple(limits.leaves(tokens)), times, cost)


def _given(fraction, limits, stays):
    if fraction is None:
        return (None,) * len(limits.places), "fraction None"
    if not isinstance(fraction, tuple):
        return limits.of_share(fraction, stays), f"fraction {fraction}"
    stays = stays | {i for i, share in enumerate(fraction) if share is None}
    tokens = tuple(None if i in stays else limits.of_share(share, stays)[i]
                   for i, share in enumerate(fraction))
    return tokens, "the fraction of each layer"
