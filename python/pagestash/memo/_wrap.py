"""A module whose calls go somewhere else, until it is unwrapped."""
from .._c import Error


class Wrapped:
    """A method of a module; and, in it, of others. run: whose call() gets the calls. seat: (chunk, layer) of the
    scheduler; None: it has none."""

    is_paged = False

    def __init__(self, run, place, module, method, name):
        self.run, self.place, self.module, self.method = run, place, module, method
        self.name = name or f"layer {place[1]} of chunk {place[0]}"
        self.original, self.seat, self._undo = getattr(module, method), None, []

    def check(self):
        """Errors: another run has the module."""
        if getattr(self.original, "of_run", self.run) is not self.run:
            raise Error(f"{self.name}: another run has it: close() that one first")

    def wrap(self):
        """From now on calls of the module come to the run; once for a module that is several layers."""
        if hasattr(self.module.__dict__.get(self.method), "of_run"):
            return

        def call(*args, **kwargs):
            return self.run.call(self, args, kwargs)
        call.of_run = self.run
        self._set(self.module, self.method, call)

    def _set(self, module, name, function):
        self._undo.append((module, name, module.__dict__.get(name)))
        module.__dict__[name] = function

    def unwrap(self):
        """The module is as before."""
        while self._undo:
            module, name, had = self._undo.pop()
            if had is None:
                del module.__dict__[name]
            else:
                module.__dict__[name] = had

    def wants_gradients(self, tensors):
        """Whether anything in a call with these arguments does."""
        return any(tensor.requires_grad for tensor in tensors) or \
            any(parameter.requires_grad for parameter in self.module.parameters())
