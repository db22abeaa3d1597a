"""How many tokens of each layer go to the host."""
import dataclasses
import fractions

from .._c import Error


@dataclasses.dataclass(frozen=True)
class Choice:
    """tokens: of each layer, of its num_tokens; None: it stays in memory."""
    tokens: tuple
    why: str


def choose(run):
    """Of a Run whose units were measured."""
    if run.fraction is None:
        return Choice((None,) * len(run.units), "nothing is swapped: fraction is None")
    share = fractions.Fraction(run.fraction)
    if not 0 <= share <= 1:
        raise Error(f"fraction {run.fraction}: allowed are fractions from 0 to 1")
    out = []
    for unit in run.units:
        n = unit.measured.num_tokens
        tokens = n if share == 1 else int(n * share) // run.block_tokens * run.block_tokens
        out.append(tokens)
    return Choice(tuple(out), f"fraction {share}")
