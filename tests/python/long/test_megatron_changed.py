"""pagestash.megatron where somebody writes into a tensor between its saving and the end of its copy: as with
what torch saves itself, the backward says so."""
import os
import sys
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
warnings.filterwarnings("ignore")

from common.needs import absent, main, needs  # noqa: E402

os.environ.setdefault("NO_VCS_VERSION", "1")  # Megatron-Core asks git at its import otherwise
if not absent("megatron"):
    import torch
    import pagestash
    from common.megatron_adapter import Adapter
    from common.megatron_layers import Model, config, rows
    from megatron.core.transformer.moe import paged_stash
else:
    @needs("megatron")
    class Adapter(unittest.TestCase):
        """Skipped, or failed, with all that are made of it."""


class Changed(Adapter):
    """A tensor that is written into after it was saved."""

    def refused(self, change):
        """change(tensor, model): in the forward of the second step; the backward raises, and a
        step after it is exact."""
        model, held = Model(), []
        self.train(model, 128)

        def make(layer):
            held[:] = tensors = model._tensors(layer)
            return tensors
        model.make = make
        paged_stash.paged_stash_reset(True, config())
        loss = change(model, held)
        with self.assertRaisesRegex(pagestash.Error, r"experts, layer \d of chunk 0: a tensor of "
                                    r"shape \(256, 64\) .* was changed in place"):
            loss.backward()
        del loss
        model.make = model._tensors
        self.train(model, 128)
        self.closed()

    @staticmethod
    def write(held):
        with torch.no_grad():
            held[0].add_(1)

    def test_before_it_is_stashed(self):
        def change(model, held):
            commit = paged_stash.paged_stash_group_commit

            def late(x, *args, **kwargs):
                self.write(held)
                return commit(x, *args, **kwargs)
            with mock.patch.object(paged_stash, "paged_stash_group_commit", late):
                return model.forward(128)
        self.refused(change)

    def test_while_it_is_copied(self):
        """Pages have what was saved or what was written, who knows."""
        def change(model, held):
            commit = paged_stash.paged_stash_group_commit

            def early(x, *args, **kwargs):
                out = commit(x, *args, **kwargs)
                self.write(held)
                return out
            with mock.patch.object(paged_stash, "paged_stash_group_commit", early):
                return model.forward(128)
        self.refused(change)

    def test_between_two_times_that_it_is_saved(self):
        """What was saved after the change is right."""
        class Save(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, tensor):
                ctx.save_for_backward(tensor)
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.saved_tensors[0].sum(), None

        self.train(Model(), 128)
        paged_stash.paged_stash_reset(True, config())
        tensor, x = rows(256, 64), torch.ones(4, requires_grad=True)
        with paged_stash.get_paged_stash_context(name="experts", max_num_tokens=256,
                                                 num_tokens_tensor=torch.tensor(256),
                                                 avg_num_tokens=256):
            first = Save.apply(x, tensor)
            self.write([tensor])
            second = Save.apply(x, tensor)
        second.sum().backward()
        self.assertTrue(torch.equal(x.grad, tensor.sum().expand(4)))
        with self.assertRaisesRegex(pagestash.Error, "changed in place"):
            first.sum().backward()


if __name__ == "__main__":
    main()
