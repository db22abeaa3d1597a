"""What is taken for rows of a layer where dimensions coincide: the capacity is the hidden size, too. A weight
cut to its live rows would be a wrong gradient that nobody sees."""
import unittest

import torch
import torch.nn.functional as F

from common.edges import StashTest, equal, setUpModule, tearDownModule  # noqa: F401

SIZE, LIVE = 16, 5  # of the capacity and of both dimensions of each weight


class Coincidence(StashTest):
    """The rule, without select."""

    def setUp(self):
        super().setUp()
        x = torch.randn(SIZE, SIZE)
        x[LIVE:] = 0
        self.x = x.requires_grad_()
        self.mask = (torch.arange(SIZE) < LIVE).float()[:, None]

    @staticmethod
    def weight(*shape):
        return torch.nn.Parameter(torch.randn(*shape or (SIZE, SIZE)))

    def right(self, forward, *leaves, stashes=True, **layer):
        """Gradients as without a stash, in each of three passes; whether anything was stashed."""
        stash, leaves = self.stash(), (self.x, *leaves)

        def gradients(y):
            return torch.autograd.grad((y * self.mask).sum(), leaves)
        want = gradients(forward())
        for _ in range(3):
            with stash.layer(torch.tensor([LIVE]), SIZE, **layer):
                y = forward()
            self.assertTrue(equal(want, gradients(y)))
        self.assertEqual(self.used(stash) > 0, stashes)

    def test_a_frozen_weight_that_is_cast(self):
        linear = torch.nn.Linear(SIZE, SIZE).requires_grad_(False)

        def forward():
            with torch.autocast("cpu", torch.bfloat16):
                return F.silu(linear(self.x))
        self.right(forward)

    def test_a_weight_with_an_adapter(self):
        weight, a, b = self.weight(), self.weight(4, SIZE), self.weight(SIZE, 4)
        self.right(lambda: F.silu(self.x @ (weight + b @ a)), weight, a, b)
        self.right(lambda: F.silu(F.linear(self.x, weight + 0.5 * (b @ a))), weight, a, b)

    def test_a_weight_that_is_normalised(self):
        weight, size = self.weight(), self.weight(SIZE, 1)
        self.right(lambda: F.silu(self.x @ (size * weight / weight.norm(dim=1, keepdim=True))),
                   weight, size)

    def test_weights_put_together(self):
        parts = [self.weight(SIZE // 4, SIZE) for _ in range(4)]
        self.right(lambda: F.silu(self.x @ torch.cat(parts)), *parts)
        self.right(lambda: F.silu(self.x @ torch.stack(parts).view(SIZE, SIZE).float()), *parts)

    # Fault rows 69.
    def test_a_bias_that_is_expanded(self):
        bias = self.weight(SIZE)
        self.right(lambda: F.silu(self.x * (bias * 2).expand(SIZE, SIZE)), bias)

    def test_rows_that_are_transposed(self):
        weight = self.weight()
        self.right(lambda: (weight @ self.x.t()).t().square(), weight, stashes=False)
        self.right(lambda: F.silu(self.x * 2) + torch.cos(torch.sin((self.x * 3)).t()).t())

    def test_a_view_that_negates(self):
        """The imaginary part of a conjugate has the sign in a bit of the tensor."""
        z = torch.complex(self.x.detach(), self.x.detach() + 1).requires_grad_()
        weight = self.weight()
        self.right(lambda: self.x.exp() + z.conj().imag * (weight * 2), z, weight)
        self.right(lambda: self.x.exp() + z.conj().imag * (weight * 2), z, weight,
                   select=lambda tensor: True if tensor.is_neg() else None)

    def test_a_view_that_negates_where_one_did_not(self):
        """What was learned of the one is not true of the other."""
        weight, stash = self.weight(), self.stash()
        z = torch.complex(self.x.detach(), self.x.detach() + 1).requires_grad_()
        for turn in (z, z.conj(), z, z.conj(), z):
            def forward(z=turn):
                return self.x.exp() + z.imag * (weight * 2)
            want = torch.autograd.grad((forward() * self.mask).sum(), weight)
            with stash.layer(torch.tensor([LIVE]), SIZE):
                y = forward()
            self.assertTrue(equal(want, torch.autograd.grad((y * self.mask).sum(), weight)))

    def test_a_sparse_tensor(self):
        sparse, weight = torch.eye(SIZE).to_sparse(), self.weight()
        self.right(lambda: F.silu(self.x * torch.sparse.mm(sparse, weight)), weight)

    def test_two_ratios_of_one_storage(self):
        """Half of a pair is live: its other half is needed by who takes pairs for rows."""
        pairs = (torch.arange(SIZE // 2) < -(-LIVE // 2)).float()[:, None]

        def forward():
            h = self.x + 1
            y = F.silu(h)
            return y + (F.silu(h.view(SIZE // 2, -1)) * pairs).sum()
        self.right(forward, ratio=(1, 2))


    def test_a_divisor_that_is_kept(self):
        """Zeros behind the live rows would be 0 / 0 in its backward."""
        weight = self.weight()

        def forward():
            h = (self.x @ weight).exp()
            return h / h.sum(-1, keepdim=True)
        self.right(forward, weight, select=lambda tensor: False if tensor.shape[-1] == 1 else None)


class Memory(StashTest):
    """What a stash remembers of geometries."""

    def test_tensors_that_differ_in_each_step(self):
        stash, weight, counts = self.stash(), torch.nn.Parameter(torch.ones(4)), torch.tensor([3])
        for i in range(1100):
            with stash.layer(counts, 8):
                y = (torch.ones(8 + i, 4) * weight)[:8].square()
            y.sum().backward()
        shape, = stash.shapes.values()
        self.assertLessEqual(max(len(shape.fits), len(shape.forms)), 1024)


if __name__ == "__main__":
    unittest.main()
