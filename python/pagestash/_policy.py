"""What shall become of every layer, so that a step fits in memory and waits least: pagestash.policy."""
import ctypes
import dataclasses
from typing import Any, Optional, Sequence, Union

from . import _abi, _c
from ._checks import Error, integer, listed, number_of
from ._simulate import Input, _array
from .schedule._order import Schedule
from .schedule._words import KEEPS, MOVES, RULES

_OBJECTIVES = ("least-bytes", "least-exposed")
_SETS = ("fixed", "callers")
_GIVEN = {"rule": _abi.PST_POLICY_GIVEN_RULE, "sets": _abi.PST_POLICY_GIVEN_SETS,
          "ahead": _abi.PST_POLICY_GIVEN_AHEAD, "streams": _abi.PST_POLICY_GIVEN_STREAMS,
          "page_bytes": _abi.PST_POLICY_GIVEN_PAGE_BYTES, "shares": _abi.PST_POLICY_GIVEN_SHARES}
_UNLIMITED = (1 << 64) - 1


@dataclasses.dataclass(frozen=True)
class Choice:
    """What becomes of a layer: as in schedule.Layer; recompute_ns and swap_bytes of a visit."""
    stage: int
    chunk: int
    layer: int
    keep: str
    host_num: int
    host_den: int
    move: str
    promote_ahead: int
    swap_tokens: int
    holds: bool
    recompute_ns: int
    swap_bytes: int


class Policy:
    """What pagestash.policy chose. Every field of pst_policy is an attribute (fits, is_optimal, rule,
    one_ring, num_sources, num_destinations, ahead, num_streams, page_bytes, num_pages, num_host_pages,
    exposed_ns, exposed_bound_ns, total_bytes, missing_gpu_bytes, ...). choices: of all layers."""

    def __init__(self, raw, choices, stages):
        for name, _ in raw._fields_:
            value = getattr(raw, name)
            setattr(self, name, tuple(value) if isinstance(value, ctypes.Array) else value)
        self.rule, self.mode = RULES[raw.rule], ("ordered", "concurrent")[raw.mode]
        self.choices = [_choice(choice) for choice in choices]
        self._stages = list(stages)  # an array of ctypes cannot be pickled

    @property
    def stages(self) -> Any:
        """Figures of each stage, as pst_policy_stage: an array of numpy, or without numpy C structs."""
        return _array(self._stages, _abi.pst_policy_stage)

    def fields(self) -> dict:
        """For pagestash.simulate: what was chosen for the whole pipeline; shares and treatments are
        choices."""
        return {"rule": self.rule, "one_ring": self.one_ring, "num_sources": self.num_sources,
                "num_destinations": 0 if self.one_ring else self.num_destinations,
                "ahead": self.ahead, "num_streams": self.num_streams, "mode": self.mode,
                "page_bytes": self.page_bytes, "pages": self.num_pages,
                "host_pages": self.num_host_pages}

    def __repr__(self):
        fits = "fits" if self.fits else (f"lacks {self.missing_gpu_bytes} bytes of GPU, "
                                         f"{self.missing_host_bytes} of host memory")
        sets = f"one ring of {self.num_sources}" if self.one_ring else (
            f"{self.num_sources} + {self.num_destinations} sets")
        return (f"Policy({fits}: {sets}, rule {self.rule}, {self.num_pages} + {self.num_host_pages} "
                f"pages of {self.page_bytes}, exposed {self.exposed_ns / 1000:g} us)")


def _choice(raw):
    policy = raw.policy
    return Choice(raw.stage, raw.chunk, raw.layer, KEEPS[raw.keep], policy.host_num, policy.host_den,
                  MOVES[policy.move], policy.promote_ahead, policy.swap_tokens, policy.holds,
                  raw.recompute_ns, raw.swap_bytes)


def policy(schedules: Union[Schedule, Sequence[Schedule]], layers: Sequence, *, gpu_bytes: int,
           set_bytes: int, host_bytes: int = 0, static_bytes: Optional[Sequence[int]] = None,
           reserve_bytes: int = 0, objective: str = "least-bytes", sets: str = "fixed",
           given: Sequence[str] = (), share_den: int = 0, max_sets: int = 0, max_tickets: int = 0,
           max_evaluations: int = 0, max_combinations: int = 0, **fields) -> Policy:
    """Chooses rule, sets, ring, streams, page size, pages, shares on the host, and what is swapped or
    recomputed, such that a step fits in memory and waits least; pst_policy_solve, include/pagestash/policy.h.

    schedules, layers, fields: as for pagestash.simulate; treatments of a layer say what it may become.
    gpu_bytes, host_bytes: of a stage, None: unlimited. static_bytes: of each stage. set_bytes: of one
    working set, a layer's tensors at capacity. objective: "least-bytes", "least-exposed". sets: "fixed"
    or "callers". given: what is taken from fields and not chosen: "rule", "sets", "ahead", "streams",
    "page_bytes" (always, where a layer says its pages), "shares". What does not fit is an answer
    (Policy.fits). Errors: Error with stage, layer and field."""
    simulation = Input(schedules, layers, **fields)
    num = len(simulation.layers)
    given = listed(given, "given")
    if any(layer.says_pages for stage in simulation.layers for layer in stage):
        given.append("page_bytes")
    raw_layers = [(_abi.pst_policy_layer * len(stage))() for stage in simulation.layers]
    for raw_stage, stage in zip(raw_layers, simulation.layers):
        for raw, layer in zip(raw_stage, stage):
            layer.fill_policy(raw)
    pointer = ctypes.POINTER(_abi.pst_policy_layer)
    config = _c.sized(
        _abi.pst_policy_config, simulation=ctypes.pointer(simulation.raw),
        layers=(pointer * num)(*(ctypes.cast(raw, pointer) for raw in raw_layers)),
        layer_bytes=ctypes.sizeof(_abi.pst_policy_layer),
        routing_bytes=ctypes.sizeof(_abi.pst_simulated_layer),
        share_den=integer(share_den, "share_den"), sets=number_of(_SETS, sets, "sets"),
        objective=number_of(_OBJECTIVES, objective, "objective"),
        given=sum({number_of(_GIVEN, name, "given") for name in given}),
        max_sets=integer(max_sets, "max_sets"), max_tickets=integer(max_tickets, "max_tickets"),
        gpu_bytes=_UNLIMITED if gpu_bytes is None else integer(gpu_bytes, "gpu_bytes", 62),
        host_bytes=_UNLIMITED if host_bytes is None else integer(host_bytes, "host_bytes", 62),
        reserve_bytes=integer(reserve_bytes, "reserve_bytes", 62),
        set_bytes=integer(set_bytes, "set_bytes", 62),
        max_evaluations=integer(max_evaluations, "max_evaluations", 63),
        max_combinations=integer(max_combinations, "max_combinations", 63))
    if static_bytes is not None:
        static_bytes = listed(static_bytes, "static_bytes")
        if len(static_bytes) != num:
            raise Error(f"static_bytes: {len(static_bytes)}: there are {num} stages")
        config.static_bytes = (ctypes.c_uint64 * num)(*(integer(b, "static_bytes", 62)
                                                        for b in static_bytes))
    out, stages = _abi.pst_policy(), (_abi.pst_policy_stage * num)()
    choices = (_abi.pst_layer_choice * sum(map(len, simulation.layers)))()
    _c.call("pst_policy_solve_sized", ctypes.byref(config), ctypes.byref(out), ctypes.sizeof(out),
            choices, stages, ctypes.sizeof(_abi.pst_policy_stage))
    return Policy(out, choices, stages)
