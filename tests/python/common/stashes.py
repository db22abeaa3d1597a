"""What tests of layers in pages share: a small stash, bits compared, no page lost."""
import unittest

import torch

import pagestash.torch


def stash_of(pages=64, **options):
    return pagestash.torch.Stash("cpu", pages=pages, page_bytes=16384, **options)


class StashTest(unittest.TestCase):
    def setUp(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)

    def nothing_lost(self, stash):
        """No page is lost or in use, and nothing failed."""
        stash.step()
        stash.pool.check()
        stash.step()
        status = stash.status()
        self.assertTrue(status.valid, status)
        self.assertEqual((status.check_errors, sum(status.in_use), status.num_faults), (0, 0, 0))

    def same(self, one, other):
        self.assertEqual(len(one), len(other))
        for a, b in zip(one, other):
            self.assertEqual(a.dtype, b.dtype)
            self.assertTrue(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))
