"""pagestash.megatron without Megatron-Core: pages of an order, page sizes, and what is refused."""
import importlib.util
import sys
import types
import unittest
from unittest import mock

from common.needs import needs

import pagestash
import pagestash.megatron
from pagestash.megatron import seams, sizing


class Sizing(unittest.TestCase):
    def test_peaks(self):
        cases = (  # order, pages of each, peak
            ([1, 2, 3, -3, -2, -1], {1: 1, 2: 2, 3: 4}, 3),      # 3 is not stashed
            ([1, -1, 2, -2], {1: 1, 2: 2}, 0),
            ([1, 2, -1, 3, -2, -3], {1: 1, 2: 2, 3: 4}, 6),      # 1 is back before 3 goes
            ([1, 2, -1, -2, 3, 4, -3, -4], {1: 1, 2: 2, 3: 4, 4: 8}, 12),
            ([1, 2, -2, -1], {}, 5),
            ([], {}, 0))
        for order, pages, peak in cases:
            with self.subTest(order=order):
                self.assertEqual(sizing.peak(order, pages, 5), peak)

    def test_whole_orders(self):
        for order, whole in (([1, 2, -1, -2], True), ([1, 2, -2], False), ([1, -1, 1, -1], False),
                             ([1, -1, -1], False), ([], True)):
            self.assertEqual(sizing.is_whole(order), whole, order)

    def test_page_bytes(self):
        for layers, size in (([], 16384), ([1 << 20], 16384), ([1 << 22], 65536),
                             ([1 << 22, 0, 1 << 30], 65536), ([1 << 40], 262144)):
            self.assertEqual(sizing.page_bytes(layers), size, layers)


class Seams(unittest.TestCase):
    def test_a_megatron_of_another_version_or_none(self):
        core = types.ModuleType("megatron.core")
        core.__version__ = "0.16.1"
        package = types.ModuleType("megatron")
        package.core = core
        names = {"megatron": package, "megatron.core": core}
        with mock.patch.dict(sys.modules, names):
            with self.assertRaisesRegex(pagestash.Error, r"Megatron-Core 0.16.1 was not tried .*"
                                        r"tried: 0.19.2.*install\(version='0.16.1'\)"):
                pagestash.megatron.install()
            with self.assertRaisesRegex(pagestash.Error, "0.16.1 has no paged stash"):
                pagestash.megatron.install(version="0.16.1")
        with mock.patch.dict(sys.modules, {"megatron": None, "megatron.core": None}):
            with self.assertRaisesRegex(pagestash.Error, "Megatron-Core cannot be imported"):
                pagestash.megatron.install()

    def test_arguments(self):
        """Before anything of Megatron-Core is looked for."""
        for name, value in (("page_bytes", 12345), ("page_bytes", 1 << 23), ("page_bytes", "x"),
                            ("headroom", 0.5), ("headroom", "x"), ("headroom", float("nan")),
                            ("num_sms", -1), ("max_pages", 0), ("recovery", "never"), ("tail", 0)):
            with self.subTest(name=name, value=value), \
                    self.assertRaisesRegex(pagestash.Error, f"install: {name} .*allowed"):
                pagestash.megatron.install(**{name: value})

    @needs("torch")
    def test_torch_without_a_gpu(self):
        """An exception, where torch would end the process."""
        import torch
        with mock.patch.object(torch.cuda, "is_available", lambda: False), \
                self.assertRaisesRegex(pagestash.Error, "finds no GPU"):
            seams.check_cuda()

    def test_the_stand_in_for_triton(self):
        clean = {k: v for k, v in sys.modules.items() if k not in (seams.KERNELS, "triton")}
        for found in (None, object()):
            with mock.patch.dict(sys.modules, clean, clear=True), \
                    mock.patch.object(importlib.util, "find_spec", lambda name, f=found: f):
                seams.stand_in()
                self.assertEqual(seams.KERNELS in sys.modules, found is None)
        real = types.ModuleType(seams.KERNELS)
        with mock.patch.dict(sys.modules, {**clean, seams.KERNELS: real}, clear=True):
            seams.stand_in()
            self.assertIs(sys.modules[seams.KERNELS], real)
        with mock.patch.dict(sys.modules, clean, clear=True), \
                mock.patch.object(importlib.util, "find_spec", lambda name: None):
            seams.stand_in()
            with self.assertRaisesRegex(pagestash.Error, "needs Triton"):
                sys.modules[seams.KERNELS].paged_stash_copy_kernel[(1,)]


if __name__ == "__main__":
    unittest.main()
