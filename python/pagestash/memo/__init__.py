"""MEMO end to end: long-context layers planned, swapped by tokens, recomputed, trained (docs/memo.md)."""


def __getattr__(name):
    if name in ("run", "Run"):
        from . import _run
        return getattr(_run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
