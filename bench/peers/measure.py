"""Times all subjects of one configuration in turn, and checks every byte before and after."""
import contextlib
import dataclasses
import gc

from machine import cold_sets
from payload import Payload


@dataclasses.dataclass
class Result:
    peer: str
    op: str
    config: object
    num_sets: int
    nodes: object     # of one layer; None: there is no graph
    seconds: list     # of one layer; empty: checked only
    mismatched_bytes: int
    fault: object     # text, or None


class Series:
    """One subject: its captured replays, a graph per operation and set."""

    def __init__(self, subject, payload):
        self.subject, self.payload = subject, payload
        self.replays, self.nodes = {}, {}
        self.seconds = {op: [] for op in subject.operations}
        machine = payload.machine
        for op in subject.operations:  # compiles what is compiled on first use
            machine.run(self._enqueue(op, 0))
        for op in subject.operations:
            captured = [subject.capture(self._enqueue(op, index))
                        for index in range(payload.num_sets)]
            self.replays[op] = [replay for replay, _ in captured]
            nodes = captured[0][1]
            self.nodes[op] = None if nodes is None else nodes / payload.config.layers

    def _enqueue(self, op, index):
        call = getattr(self.subject, op)

        def enqueue():
            for arena in self.payload.layers_of(index):
                call(arena)
        return enqueue

    def check(self):
        """Bytes that are wrong after one operation of each kind on every set."""
        machine = self.payload.machine
        self.payload.poison()
        machine.synchronize()
        for op in self.subject.operations:
            machine.time(self.replays[op])
        return self.subject.mismatches()

    def sample(self):
        for op in self.subject.operations:
            layers = self.payload.config.layers
            self.seconds[op] += [seconds / layers
                                 for seconds in self.payload.machine.time(self.replays[op])]

    def results(self, wrong):
        fault = self.subject.fault()
        return [Result(self.subject.name, op, self.payload.config, self.payload.num_sets,
                       self.nodes[op], self.seconds[op], wrong, fault)
                for op in self.subject.operations]


def sets_of(machine, config, samples):
    """Sets to rotate over; what is not timed need not be cold."""
    return cold_sets(machine, config.bytes * config.layers) if samples else 2


def bytes_needed(machine, config, num_stores, samples):
    """Memory for sources, destinations and the pages of so many subjects, to the nearest few
    percent."""
    arenas = sets_of(machine, config, samples) * config.layers
    return arenas * (2 * config.offsets()[1] + num_stores * config.bytes)


def measure(machine, config, makers, samples):
    """Results of every subject that makers(payload) gives; 0 samples: bytes are checked only."""
    payload = Payload(machine, config, sets_of(machine, config, samples))
    subjects = []
    try:
        for make in makers:
            subjects.append(make(payload))
        machine.synchronize()
        results = take_turns(subjects, payload, samples)
    except BaseException:
        for subject in reversed(subjects):
            with contextlib.suppress(Exception):  # the first error is the one to tell
                subject.close()
        raise
    gc.collect()  # graphs go before what they use
    for subject in reversed(subjects):
        subject.close()
    return results


def take_turns(subjects, payload, samples):
    series = [Series(subject, payload) for subject in subjects]
    wrong = [one.check() for one in series]
    for _ in range(-(-samples // payload.num_sets)):
        for one in series:
            one.sample()
    return [result for one, before in zip(series, wrong)
            for result in one.results(before + one.check())]
