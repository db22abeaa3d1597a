"""Calls of units as visits of the scheduler: which visit a call is, where a step begins and ends, and what
becomes of one that cannot be ended."""
import torch

from .._c import Error

in_backward = torch._C._current_graph_task_id  # of the backward that runs in this thread; else -1
FORWARD, WAITS, BACKWARD, OVER = range(4)


def is_capturing():
    """Whether the current stream is being captured."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class Call:
    """One call of a unit: a visit of the scheduler in its forward and one in its backward. Whatever autograd
    keeps of the call refers to it, so that it dies with the graph."""
    __slots__ = ("visits", "unit", "key", "visit", "step", "state", "rows", "__weakref__")

    def __init__(self, visits, unit, key, visit):
        self.visits, self.unit, self.key, self.visit = visits, unit, key, visit
        self.step, self.state = visits.number, FORWARD
        self.rows = None  # weak reference to what the scheduler keeps of a paged unit's

    def forward_ends(self):
        """Behind the unit's forward."""
        self.visits.hook("forward_end", *self.key)
        self.state = WAITS

    def backward_begins(self):
        """Before its backward; the scheduler's visit. Errors: a second one; the step was given up."""
        if self.state in (BACKWARD, OVER):
            raise Error(f"{self.unit.name}: a second backward: what it keeps is gone after the first")
        if self.step != self.visits.number:
            raise Error(f"{self.unit.name}: its step was given up, and what it kept is gone: "
                        f"{self.visits.why}")
        self.visit = visit = self.visits.hook("backward_begin", "backward", *self.key)
        rows = self.rows and self.rows()
        if rows is not None:
            rows.tensors = visit.saved()
        self.state = BACKWARD
        self.visits.running.add(self.key)
        return visit

    def backward_ends(self):
        """Behind it."""
        self.state = OVER
        self.visits.running.discard(self.key)
        self.visits.over += 1
        self.visits.hook("backward_end", "backward", *self.key)
        if self.visits.ends_itself and self.visits.is_whole():
            self.visits.step()

    def __del__(self):
        if self.state != OVER and self.step == self.visits.number:
            self.visits.lost.append(self.key)


class Visits:
    """Of a Run. deviates: a function that counts what was not as planned. scheduler, schedule, seats: set once
    there are any; seats: how many layers the scheduler has of each chunk."""

    def __init__(self, deviates):
        self.deviates, self.scheduler, self.schedule, self.seats = deviates, None, None, {}
        self.number, self.why = 0, ""  # of the step, and why the one before was given up
        self.is_open, self.asked = False, None
        self.ends_itself = False       # the last backward of a step is its end
        self.whole, self._wholes = 0, {}  # calls of a whole step, by its micro-batches
        self.calls = {}                # of each unit, in this step
        self.running = set()           # keys whose backward has begun
        self.lost = []                 # whose graph died; appended by finalisers
        self.begun = self.over = 0     # calls of this step
        self.early = None              # whether what was ended early was valid: int32, on the device
        self.valid = None              # a function that answers that of the step as of here

    def begin(self, num_micro_batches):
        """A step begins, whatever the one before was. 0: as many as the schedule."""
        self.recover()
        if self.is_open:
            self.deviates("a step that was not ended: another one began")
            self.give_up("another one began")
        self.asked = num_micro_batches

    def hook(self, name, *arguments, **fields):
        """Calls one of the scheduler's; where it fails the step is given up."""
        try:
            return getattr(self.scheduler, name)(*arguments, **fields)
        except BaseException as error:
            self.give_up(str(error))
            raise

    def forward_begins(self, unit, micro_batch, num_micro_batches):
        """The Call that begins; micro_batch: a function that answers its number in the step."""
        number = micro_batch(unit)
        if not self.is_open:
            self._open(self.asked or num_micro_batches)
        key = (*unit.seat, number)
        self.calls[unit.seat] = self.calls.get(unit.seat, 0) + 1
        call = Call(self, unit, key, self.hook("forward_begin", *key))
        self.begun += 1
        return call

    def _open(self, num_micro_batches):
        self.hook("step_begin", num_micro_batches=num_micro_batches)
        self.is_open, self.asked = True, None
        if num_micro_batches not in self._wholes:
            schedule = self.schedule
            if num_micro_batches not in (0, schedule.num_micro_batches):
                schedule = schedule.with_micro_batches(num_micro_batches)
            self._wholes[num_micro_batches] = sum(
                self.seats.get(p.chunk, 0) for p in schedule if p.kind == "forward")
        self.whole = self._wholes[num_micro_batches]

    def recover(self):
        """Before a forward: a step that cannot be ended any more is given up, one with all of its visits is
        ended."""
        if not self.is_open:
            return
        if self.lost:
            self.deviates("a step that was not ended: a forward without its backward")
            self.give_up(f"the graph of layer {self.lost[0][1]} of chunk {self.lost[0][0]} was dropped")
        elif self.running and in_backward() < 0:
            self.deviates("a step that was not ended: a backward that failed")
            self.give_up("a backward did not end")
        elif self.is_whole():
            self.deviates("more micro-batches in a step than were said")
            valid = self.valid()
            self._end()
            self.early = valid

    def is_whole(self):
        """Whether all visits of the step were made."""
        return self.over == self.whole

    def _end(self):
        self.hook("step_end")
        self._clear()

    def _clear(self):
        self.number += 1
        self.is_open, self.begun, self.over = False, 0, 0
        self.calls.clear()
        self.running.clear()
        self.lost.clear()

    def step(self):
        """The end of a step. Errors: visits are missing; the step is given up then."""
        self.asked = self.early = None
        if not self.is_open:
            return
        if self.over == self.begun and not self.is_whole() and not is_capturing():
            self.deviates("fewer micro-batches in a step than were said")
            self.give_up("it had fewer micro-batches than were said")
            return
        self._end()

    def give_up(self, why):
        """From any state: what is kept is gone, the next forward begins a step."""
        self.asked = self.early = None
        if self.scheduler is not None:
            self.scheduler._give_up(None)
        self.why = why
        self._clear()
