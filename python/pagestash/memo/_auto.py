"""fraction="auto": MEMO's formula for all layers, and our policy for each, compared in the simulator."""
import ctypes
import dataclasses
import fractions
import statistics

from .. import _abi, _c, _policy, _simulate
from .._c import Error
from .._simulated_layers import SimulatedLayer

_BLOCKS = 16  # of a layer that the policy tells apart


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of a step of this GPU alone, simulated."""
    step_ns: int
    exposed_ns: int  # waits for copies
    recompute_ns: int


def swap_choice(*, input_bytes, attention_bytes, other_bytes, num_tokens, block_tokens, link_bytes_per_second,
                forward_nanoseconds, host_bytes, num_layers):
    """pst_swap_choose, include/pagestash/swap.h: the largest fraction that hides behind a layer's forward and
    fits in host memory. Errors: a field."""
    config = _c.sized(
        _abi.pst_swap_config, input_bytes=input_bytes, attention_bytes=attention_bytes,
        other_bytes=other_bytes, num_tokens=num_tokens, block_tokens=block_tokens,
        link_bytes_per_second=link_bytes_per_second, forward_nanoseconds=forward_nanoseconds,
        host_bytes=host_bytes, num_layers=num_layers)
    out = _abi.pst_swap_choice()
    _c.call("pst_swap_choose_sized", ctypes.byref(config), ctypes.byref(out), ctypes.sizeof(out))
    return out


def simulated_layers(limits, times, tokens):
    """For pagestash.simulate."""
    out = []
    for i, ((chunk, layer), scale, k) in enumerate(zip(limits.places, limits.scales, tokens)):
        fields = {} if k is None else {
            "keep": "swapped", "swap_tokens": k, "swap_bytes": scale.swap_bytes(k),
            "recompute_ns": times.again_ns(i, scale, k, limits.cut)}
        out.append(SimulatedLayer(layer, chunk, **{"keep": "planned", **fields},
                                  forward_ns=(0, times.forward_ns[i], 0),
                                  backward_ns=(0, times.backward_ns[i], 0)))
    return out


def simulated(limits, times, tokens):
    """Cost."""
    stage = _simulate.simulate(
        limits.schedule, simulated_layers(limits, times, tokens), events=False,
        keeps_nothing=limits.keeps_nothing, out_rate=times.out_rate, in_rate=times.in_rate)
    of = stage.raw_stages[0]
    return Cost(stage.makespan_ns, of.exposed_forward_ns + of.exposed_backward_ns, of.recompute_ns)


class Memo:
    """One fraction for all layers that do not stay. share: None: impossible. raw: pst_swap_choice of the kind
    of layers that allows least."""

    def __init__(self, limits, times, stays):
        everything = limits.of_share(1, stays)
        leaving = [i for i, leaves in enumerate(limits.leaves(everything)) if leaves]
        self.forward_ns = int(statistics.median(
            ns for ns, scale in zip(times.forward_ns, limits.scales) if scale is not None))
        self.whole_bytes, self.raw, self.share = 0, None, fractions.Fraction(1)
        kinds = {}  # of layers that keep alike: seats
        for i in leaving:
            scale = limits.scales[i]
            key = scale.input_bytes, scale.attention_bytes, scale.token_bytes, scale.num_tokens
            kinds[key] = kinds.get(key, 0) + limits.slots(i)
        wanted = limits.host_bytes(everything)
        for (input_bytes, attention_bytes, token_bytes, num_tokens), seats in kinds.items():
            kept = input_bytes + attention_bytes + token_bytes * num_tokens
            room = limits.host_limit * kept * seats // max(wanted, 1) if len(kinds) > 1 else limits.host_limit
            raw = swap_choice(
                input_bytes=input_bytes, attention_bytes=attention_bytes,
                other_bytes=token_bytes * num_tokens, num_tokens=num_tokens,
                block_tokens=limits.block_tokens, link_bytes_per_second=times.out_rate,
                forward_nanoseconds=self.forward_ns, host_bytes=room, num_layers=seats + 2)
            share = fractions.Fraction(raw.num, raw.den) if raw.limit != _abi.PST_SWAP_IMPOSSIBLE else None
            if self.raw is None or share is None or self.share is not None and share < self.share:
                self.raw, self.share, self.whole_bytes = raw, share, input_bytes + attention_bytes
        if self.share is not None and leaving:
            self.share = limits.largest_share(stays, self.share)

    @property
    def limit(self):
        """What binds."""
        if self.raw is None:
            return ""
        return {_abi.PST_SWAP_BY_TIME: "the link", _abi.PST_SWAP_BY_MEMORY: "host memory"}.get(
            self.raw.limit, "")

    def why_impossible(self, limits, times):
        """A sentence."""
        if self.raw.limit != _abi.PST_SWAP_IMPOSSIBLE:  # lines of 256 bytes
            return f"host memory of {limits.host_limit} bytes is too small for what goes whole"
        parts = []
        if self.raw.missing_link_bytes:
            parts.append(
                f"at {times.out_rate} bytes/s they take {self.raw.missing_nanoseconds} ns more than a layer's "
                f"forward, {self.forward_ns} ns, which is {self.raw.missing_link_bytes} bytes too many: more "
                "tokens, or a fraction of your own, which waits for them, would help")
        if self.raw.missing_host_bytes:
            parts.append(f"host memory, {limits.host_limit} bytes, lacks {self.raw.missing_host_bytes}: a larger "
                         "keep_last, or less micro-batches at once, would help")
        return (f"not even a layer's input and attention's output, {self.whole_bytes} bytes, can be swapped: "
                f"{'; '.join(parts)}")


def by_layer(limits, times, stays):
    """Tokens of each layer, of our policy; None: it found none that fits."""
    may_stay = limits.gpu_limit is not None
    layers, planned = [], 0
    for i, one in enumerate(simulated_layers(limits, times, limits.of_share(1, stays))):
        scale = limits.scales[i]
        if one.keep == "swapped":
            kept = limits.slots(i) * scale.kept_bytes if may_stay else 0
            planned += kept
            block = limits.block_tokens * max(1, -(-scale.num_tokens // (limits.block_tokens * _BLOCKS)))
            one = dataclasses.replace(
                one, treatments=("swapped", "planned") if may_stay else ("swapped",),
                whole_bytes=scale.whole_bytes, token_bytes=scale.token_bytes, num_tokens=scale.num_tokens,
                block_tokens=min(block, scale.num_tokens), planned_bytes=kept,
                recompute_ns=times.recompute_ns[i])
        elif scale is not None and may_stay:
            planned += limits.slots(i) * scale.kept_bytes
        layers.append(one)
    policy = _policy.policy(
        limits.schedule, layers, gpu_bytes=limits.gpu_limit, set_bytes=0, host_bytes=limits.host_limit,
        static_bytes=[planned], objective="least-exposed",
        given=("rule", "sets", "ahead", "streams", "page_bytes", "shares"),
        keeps_nothing=limits.keeps_nothing, out_rate=times.out_rate, in_rate=times.in_rate)
    tokens = tuple(choice.swap_tokens if choice.keep == "swapped" else None for choice in policy.choices)
    return tokens if policy.fits and limits.fits(tokens) else None


def milliseconds(ns):
    """For a sentence."""
    return f"{ns / 1e6:.4g} ms"


def automatic(limits, times, stays):
    """(tokens, Cost, why). Errors: nothing fits, or what goes whole takes longer than a forward."""
    memo, tokens, cost, text = Memo(limits, times, stays), None, None, ""
    if memo.share is not None:
        tokens = limits.of_share(memo.share, stays)
        if limits.fits(tokens):
            cost = simulated(limits, times, tokens)
            bound = f", bound by {memo.limit}" if memo.limit else ""
            text = (f"MEMO's {memo.share} for all{bound}: {milliseconds(cost.step_ns)} a step, "
                    f"{milliseconds(cost.exposed_ns)} exposed, {milliseconds(cost.recompute_ns)} recomputed")
    elif limits.gpu_limit is None:
        raise Error(f"fraction 'auto': {memo.why_impossible(limits, times)}")
    other = by_layer(limits, times, stays)
    if other is None:
        if cost is None and memo.share is None:
            raise Error(f"fraction 'auto': {memo.why_impossible(limits, times)}")
        limits.check(tokens, "fraction 'auto'")
        return tokens, cost, text + "; per layer: nothing else fits"
    theirs = simulated(limits, times, other)
    if cost is None:
        return other, theirs, (f"MEMO's one fraction for all does not fit; per layer: "
                               f"{milliseconds(theirs.step_ns)} a step, {milliseconds(theirs.exposed_ns)} exposed, "
                               f"{milliseconds(theirs.recompute_ns)} recomputed: taken")
    if theirs.step_ns >= cost.step_ns:
        return tokens, cost, f"{text}; per layer: {milliseconds(theirs.step_ns)}: not taken"
    less = 100 * (cost.step_ns - theirs.step_ns) / cost.step_ns
    return other, theirs, f"{text}; per layer: {milliseconds(theirs.step_ns)} ({less:.1f} % less): taken"
