"""What memo.run chose for each layer, as text and as a table in a notebook."""
import dataclasses
from typing import Optional

from .._c import Error
from ..command import Table


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """Of one layer, bytes of one pass. keep: "swapped"; "in a buffer": it does not leave; "in memory"; "paged": then
    num_tokens are rows, and kept_bytes of the live ones, the most in the first step. swap_tokens: of num_tokens,
    None: in memory, or pages. host_bytes: that are copied out, and in again. forward_ns: of all tokens, measured;
    recompute_ns: what its backward computes again; None: not measured."""
    name: str
    keep: str
    swap_tokens: Optional[int]
    num_tokens: int
    kept_bytes: int
    host_bytes: int
    forward_ns: Optional[int]
    recompute_ns: Optional[int]


class Report:
    """layers: LayerReport of each; choice: what was chosen, and why; stats: of the scheduler, None: there is none;
    deviations: what was not as planned, and how often; both up to now. pages: (on the device, in host memory),
    page_bytes: of the pool, None: nothing is paged."""

    def __init__(self, run):
        if run.choice is None:
            raise Error("report: nothing is chosen yet: the first training call does that")
        self.choice, self.deviations = run.choice, dict(run.deviations)
        choice = run.choice
        self.stats = None if run.scheduler is None else run.scheduler.stats()
        of_swapped = {unit: _layer(i, unit, choice, run.cut) for i, unit in enumerate(run.units)
                      if unit.measured is not None}
        self.layers = tuple(_paged(unit) if unit.is_paged else of_swapped[unit] for unit in run.order
                            if unit.is_paged or unit in of_swapped)
        self.pages = self.page_bytes = None
        if len(run.units) < len(run.order) and run.pool is not None:
            info = run.pool.info()
            self.pages, self.page_bytes = tuple(info.num_pages), info.page_bytes

    def _table(self):
        rows = [[one.name, one.keep, "-" if one.swap_tokens is None else one.swap_tokens, one.num_tokens,
                 _mib(one.kept_bytes), _mib(one.host_bytes), _ms(one.forward_ns), _ms(one.recompute_ns)]
                for one in self.layers]
        choice = self.choice
        notes = [choice.why, f"pinned host memory {_mib(choice.host_bytes)} MiB{_of(choice.host_limit)}; both buffers "
                 f"and layers in memory {_mib(choice.gpu_bytes)} MiB{_of(choice.gpu_limit)}"]
        if self.pages is not None:
            notes.append(f"{self.pages[0]} pages of {self.page_bytes >> 10} KiB on the device, {self.pages[1]} in host "
                         "memory")
        if choice.times is not None:
            notes.append(f"link {choice.times.out_rate / 1e9:.2f} GB/s to the host, "
                         f"{choice.times.in_rate / 1e9:.2f} GB/s from it")
        if self.stats is not None and self.stats.measured_steps:
            exposed = (self.stats.exposed_forward_ns + self.stats.exposed_backward_ns) / self.stats.measured_steps
            notes.append(f"measured in {self.stats.measured_steps} steps: {exposed / 1e6:.3f} ms a step wait for "
                         "copies")
        notes += [f"not as planned, {times} times: {what}" for what, times in self.deviations.items()]
        return Table("what each layer keeps", ["layer", "is", "swapped", "of tokens", "keeps MiB", "to host MiB",
                                               "forward ms", "again ms"], rows, notes)

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def _layer(i, unit, choice, cut):
    scale, k = unit.measured, choice.tokens[i]
    keep = "in memory" if k is None else "swapped" if choice.leaves[i] else "in a buffer"
    again = None
    if keep != "swapped":
        again = 0
    elif choice.times is not None:
        again = choice.times.again_ns(i, scale, k, cut)
    return LayerReport(unit.name, keep, k, scale.num_tokens, scale.kept_bytes,
                       scale.swap_bytes(k) if keep == "swapped" else 0, scale.forward_ns, again)


def _paged(unit):
    rows = unit.shape.capacity * (unit.shape.segments or 1)
    kept = max(unit.form.measure(counts).payload_bytes for counts in unit.counted)
    return LayerReport(unit.name, "paged", None, rows, kept, 0, None, None)


def _ms(nanoseconds):
    return "-" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"


def _mib(num_bytes):
    return f"{num_bytes / (1 << 20):.2f}"


def _of(limit):
    return "" if limit is None else f" of {_mib(limit)}"
