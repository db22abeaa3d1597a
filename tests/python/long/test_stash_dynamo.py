"""Edges of a Stash that load torch.compile's machinery, which takes seconds: checkpoints and compiled code."""
import unittest

import torch
from torch.utils.checkpoint import checkpoint

from common.edges import Small, StashTest, equal


class Dynamo(StashTest):
    def test_checkpoint_inside_the_layer(self):
        """Only what the checkpoint itself keeps, its input, is stashed."""
        for reentrant in (False, True):
            stash = self.stash()

            def forward(stash=stash, reentrant=reentrant):
                x = self.small.x * 1
                with stash.layer(**self.small.layer):
                    return checkpoint(self.small.experts, x, use_reentrant=reentrant)
            self.same(stash, forward)
            self.assertEqual(self.used(stash), 1)

    def test_checkpoint_around_the_layer(self):
        """A reentrant one runs the forward without grad. With the other the layer's hooks are the inner ones,
        so that what it saves is stashed. What runs again in the backward is never stashed."""
        for reentrant in (False, True):
            stash = self.stash()
            self.same(stash, lambda s=stash, r=reentrant: checkpoint(
                lambda x: self.small.stashed(s), self.small.x * 1, use_reentrant=r))
            self.assertEqual(self.used(stash) > 0, not reentrant)

    def same_compiled(self, experts, forward):
        """Bits as of the same compiled code without a stash: a compiler may round unlike eager torch."""
        plain = self.small.gradients(lambda: experts(self.small.x * 1))
        self.assertTrue(equal(plain, self.small.gradients(forward)))

    def test_compiled_inside(self):
        stash = self.stash()
        experts = torch.compile(self.small.experts, backend="aot_eager")

        def forward():
            x = self.small.x * 1
            with stash.layer(**self.small.layer):
                return experts(x)
        self.same_compiled(experts, forward)
        self.assertGreater(self.used(stash), 0)

    def test_parameters_in_compiled_code_stay(self):
        """There they are views without a history. Their rows behind the live ones are needed."""
        small = Small((3, 0, 16, 7), capacity=16, hidden=16, ffn=16)
        self.small, stash = small, self.stash()
        experts = torch.compile(small.experts, backend="aot_eager")

        def forward():
            x = small.x * 1
            with stash.layer(**small.layer):
                return experts(x)
        self.same_compiled(experts, forward)
        self.assertGreater(self.used(stash), 0)


if __name__ == "__main__":
    unittest.main()
