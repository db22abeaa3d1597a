"""What a hook says of a visit, and a scheduler's figures."""
import dataclasses

from ._words import VisitKey, key_of


class Visit:
    """What the caller has to know for a visit, one layer of one pass.

    key: the VisitKey. slot: of (chunk, micro-batch). set: with fixed sets which one to write (forward)
    or read (backward), else None. in_place: forward: the source stays as it is until the visit's
    backward; backward: read the forward's source, no destination. is_live: False in evaluation, and
    where a layer is computed again: nothing is kept. is_held: an input backward leaves its destination
    to the weight pass, which reads that one. freed: the caller's own sources (VisitKeys) that are no
    longer needed once the hook's stream has come here. first_token: compute the tokens from there on
    again before the backward; None: none. sources: set this within
    `with scheduler.forward(...)`; with plain hooks forward_end takes them."""

    __slots__ = ("key", "slot", "set", "in_place", "is_live", "is_held", "freed", "first_token",
                 "sources", "_announce")

    def __init__(self, key, raw, announce=None):
        self.key, self.slot = key, raw.slot
        self.set = None if raw.set == 0xffffffff else raw.set
        self.in_place, self.is_live, self.is_held = raw.in_place, raw.is_live, raw.is_held
        self.freed = tuple(key_of(raw.freed[i]) for i in range(raw.num_freed))
        self.first_token = None if raw.first_token == (1 << 64) - 1 else raw.first_token
        self.sources, self._announce = None, announce

    def part(self, part: int, source=None) -> None:
        """Part `part` of this forward is complete: its stash starts now. source: None with fixed sets,
        else as in forward_end."""
        self._announce(part, source)

    def __repr__(self):
        return (f"Visit({self.key}: slot {self.slot}, set {self.set}, in_place {self.in_place}, "
                f"is_live {self.is_live})")


@dataclasses.dataclass(frozen=True)
class Stats:
    """Figures of a scheduler up to now; as pst_scheduler_stats. visits: forward visits of training
    steps, of which kept_in_place to planned; restores to records: enqueued; exposed_*_ns: sums over
    the measured_steps; worst: the visit with the longest wait."""
    steps: int
    aborted_steps: int
    lost_steps: int
    visits: int
    kept_in_place: int
    stashed: int
    swapped: int
    recomputed: int
    planned: int
    restores: int
    deferred_restores: int
    demotes: int
    promotes: int
    waits: int
    records: int
    program_bytes: int
    conflicts: int
    num_tickets: int
    num_slots: int
    num_events: int
    measured_steps: int
    exposed_forward_ns: int
    exposed_backward_ns: int
    worst_ns: int
    worst: VisitKey
