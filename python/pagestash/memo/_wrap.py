"""A module whose calls go somewhere else, until it is unwrapped."""
import functools
import types

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
        if not hasattr(self.module.__dict__.get(self.method), "of_run"):
            self._set(self.module, self.method, lambda *args, **kwargs: self.run.call(self, args, kwargs))

    def _set(self, module, name, function):
        """function: in place of the module's method. A deep copy of the module, or what comes out of a pickle, has
        the method that it had."""
        original = getattr(module, name)

        @functools.wraps(original)
        def method(its, *args, **kwargs):
            if its is module:
                return function(*args, **kwargs)
            if getattr(original, "__self__", None) is module:
                return original.__func__(its, *args, **kwargs)
            return original(*args, **kwargs)
        method.of_run = self.run
        self._undo.append((module, name, module.__dict__.get(name)))
        module.__dict__[name] = types.MethodType(method, module)

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
