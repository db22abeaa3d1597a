"""fraction="auto": MEMO's formula for all layers, and for each our policy and a search from the better of both on;
the simulator says which step is shorter."""
import ctypes
import dataclasses
import fractions
import statistics

from .. import _abi, _c, _policy, _simulate
from .._c import Error
from .._simulated_layers import SimulatedLayer
from ._limits import staying

_BLOCKS = 16  # of a layer that the policy tells apart
_LEAST_GAIN = 0.005  # of a step: a smaller one is within what measured times differ by
_LEAST_TRIES, _MOST_TRIES, _MOST_VISITS = 24, 600, 200_000  # of the search: simulations, their visits


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
                         "keep_last, or fewer micro-batches at once, would help")
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


class Search:
    """For the shortest step: from the choices that it is offered on, layer by layer. Always the same: no clock,
    no random numbers."""

    def __init__(self, limits, times, stays):
        self.limits, self.times, self.stays = limits, times, stays
        self.tokens = self.cost = None
        visits = len(limits.schedule) * max(1, len(limits.places))
        self.left = max(_LEAST_TRIES, min(_MOST_TRIES, _MOST_VISITS // visits))
        self._tried = set()

    def offer(self, tokens):
        """Whether it is the best until now."""
        if tokens is None or tokens in self._tried or self.left <= 0:
            return False
        self._tried.add(tokens)
        if not self.limits.fits(tokens):
            return False
        self.left -= 1
        cost = simulated(self.limits, self.times, tokens)
        if self.cost is not None and cost.step_ns >= self.cost.step_ns:
            return False
        self.tokens, self.cost = tokens, cost
        return True

    def most_stay(self):
        """As many layers stay in memory as fit, those before the last two of each chunk; the others as MEMO has
        it."""
        if self.limits.gpu_limit is None:
            return
        most = max(layer for _, layer in self.limits.places) + 1
        for keep_last in range(most, 2, -1):
            stays = self.stays | staying(self.limits.places, keep_last)
            if any(scale is not None and i not in stays for i, scale in enumerate(self.limits.scales)):
                share = Memo(self.limits, self.times, stays).share
                tokens = None if share is None else self.limits.of_share(share, stays)
                if tokens is not None and self.limits.fits(tokens):
                    self.offer(tokens)
                    return

    def improve(self):
        """More or fewer tokens of one layer."""
        if self.tokens is None:
            return
        block, longest = self.limits.block_tokens, max(
            scale.num_tokens for scale in self.limits.scales if scale is not None)
        step = longest // 4 // block * block
        while step >= block and self.left > 0:
            while any([self._move(i, step) for i in range(len(self.tokens))]) and self.left > 0:
                pass
            step = step // 2 // block * block

    def _move(self, i, step):
        scale, now = self.limits.scales[i], self.tokens[i]
        if scale is None or i in self.stays:
            return False
        whole, block = scale.num_tokens, self.limits.block_tokens
        if now is None:
            others = [whole, 0]
        else:
            others = [min(whole, now + step), max(0, (now - step + block - 1) // block * block)]
            others += [None] if self.limits.gpu_limit is not None else []
        return any([self.offer(self.tokens[:i] + (k,) + self.tokens[i + 1:]) for k in others if k != now])


def milliseconds(ns):
    """For a sentence."""
    return f"{ns / 1e6:.4g} ms"


def automatic(limits, times, stays):
    """(tokens, Cost, why). Errors: nothing fits, or what goes whole takes longer than a forward."""
    memo = Memo(limits, times, stays)
    if memo.share is None and limits.gpu_limit is None:
        raise Error(f"fraction 'auto': {memo.why_impossible(limits, times)}")
    search = Search(limits, times, stays)
    tokens = cost = None
    if memo.share is not None:
        tokens = limits.of_share(memo.share, stays)
        limits.check(tokens, "fraction 'auto'")
        search.offer(tokens)
        cost = search.cost
        if cost.exposed_ns + cost.recompute_ns == 0:  # nothing can be shorter
            return tokens, cost, _why(memo, cost, cost)
    search.offer(by_layer(limits, times, stays))
    search.most_stay()
    search.improve()
    if search.cost is None:
        raise Error(f"fraction 'auto': {memo.why_impossible(limits, times)}")
    why = _why(memo, cost, search.cost)
    if cost is not None and not _is_worth_it(cost, search.cost):
        return tokens, cost, why
    return search.tokens, search.cost, why


def _is_worth_it(cost, best):
    return cost.step_ns - best.step_ns > cost.step_ns * _LEAST_GAIN


def _why(memo, cost, best):
    def said(of):
        return (f"{milliseconds(of.step_ns)} a step, {milliseconds(of.exposed_ns)} exposed, "
                f"{milliseconds(of.recompute_ns)} recomputed")
    if cost is None:
        return f"MEMO's one fraction for all does not fit; per layer: {said(best)}: taken"
    bound = f", bound by {memo.limit}" if memo.limit else ""
    text = f"MEMO's {memo.share} for all{bound}: {said(cost)}"
    if best.step_ns == cost.step_ns:
        return text + "; per layer nothing is shorter"
    less = 100 * (cost.step_ns - best.step_ns) / cost.step_ns
    verdict = "taken" if _is_worth_it(cost, best) else "not taken, times are not as exact"
    return f"{text}; per layer: {said(best)} ({less:.1f} % less): {verdict}"
