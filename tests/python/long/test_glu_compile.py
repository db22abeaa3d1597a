#!/usr/bin/env python3
"""pagestash.torch.glu under torch.compile: the bits of eager mode."""
import unittest

from common.needs import absent, main, needs

if not absent("torch"):
    import torch
    from common import ops as helper
    from common.ops import CAPACITY, CompiledCase, gradients, rows, taken
    from common.stashes import stash_of
    helper.use_binary()
    from pagestash.torch import glu
else:
    CompiledCase = unittest.TestCase


@needs("torch")
class Compiled(CompiledCase):
    def test_bits_are_those_of_eager_mode(self):
        counts, pool = self.counts, self.handle

        def twice(x, p, pool):  # compilers merge what looks alike, and each token serves one backward
            return sum(factor * glu(x.sin(), counts, stash=pool, probability=p) for factor in (1, 2))

        given = rows(CAPACITY, 32), rows(CAPACITY, 1, seed=3)
        compiled = torch.compile(twice, backend="aot_eager_decomp_partition", fullgraph=True)
        for where in (pool, None):
            for mine, theirs in zip(gradients(lambda *xp: compiled(*xp, where), *given),
                                    gradients(lambda *xp: twice(*xp, where), *given)):
                self.assertTrue(torch.equal(mine, theirs))
        self.assertEqual(taken(self.pool), 0)

    def test_capacities_are_dynamic(self):
        seen = []

        def backend(graph, _):
            seen.append(graph)
            return graph.forward

        compiled = torch.compile(lambda x: glu(x * 2, self.counts, stash=self.handle), backend=backend,
                                 fullgraph=True, dynamic=True)
        for capacity in (64, 48, 32):
            compiled(rows(capacity, 8).requires_grad_()).sum().backward()
        self.assertEqual(len(seen), 1)

    def test_a_stash(self):
        with stash_of() as stash:
            compiled = torch.compile(lambda x: glu(x, self.counts, stash=stash), backend="aot_eager",
                                     fullgraph=True)
            x = rows(CAPACITY, 32)
            for mine, theirs in zip(gradients(compiled, x), gradients(lambda x: glu(x, self.counts), x)):
                self.assertTrue(torch.equal(mine, theirs))


if __name__ == "__main__":
    main()
