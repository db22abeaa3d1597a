"""`pagestash simulate --solve`: what was chosen fits, is what is shown, and is refused where nothing fits."""
import cli
from cli import run
from scene import WORK, SimulateTest, pages3, schedule

MIB = 1 << 20


class Solving(SimulateTest):
    def setUp(self):
        super().setUp()
        path = self.trace(steps=12, layers=3, experts=4, high=4000)
        self.flags = [*schedule("1f1b", 4, 4), "--layers", 3, "--rank", 0, "--routing", path,
                      "--hidden-size", 256, "--moe-ffn-hidden-size", 128, "--forward-ns",
                      "1000,4000,1000", "--backward-ns", "2000,8000,2000", "--copy-gb/s", 1000,
                      "--link-gb/s", "50,50", "--solve"]

    def solve(self, *flags, code=0):
        whole = self.simulate(*self.flags, *flags, code=code)
        return whole, whole["policy"], whole["stages"][0]

    def test_with_enough_memory(self):
        """What is shown is what was chosen; the same flags by hand give the same."""
        for objective in ("least-bytes", "least-exposed"):
            whole, policy, stage = self.solve("--gpu-memory", "1GiB", "--objective", objective)
            self.assertTrue(whole["fits"] and policy["fits"])
            self.assertEqual(whole["iterations"], 3)
            self.assertLessEqual(policy["gpu_bytes"], 1 << 30)
            self.assertEqual((stage["high_water_pages"], whole["recommended_pages_all"]),
                             (policy["pages"], policy["pages"]))
            self.assertEqual(stage["exposed_forward_ns"] + stage["exposed_backward_ns"],
                             policy["exposed_ns"])
            self.assertEqual([layer["layer"] for layer in policy["layers"]], [0, 1, 2])
            by_hand = self.flags[:-1] + [
                "--sources", policy["sources"], "--rule", policy["rule"], "--ahead",
                policy["ahead"], "--streams", policy["streams"], "--page-size", policy["page_size"],
                "--pages", policy["pages"], *(["--one-ring"] if policy["one_ring"] else
                                              ["--destinations", policy["destinations"]])]
            self.assertEqual(self.stages(*by_hand), whole["stages"], objective)
        self.assertLessEqual(policy["exposed_ns"], policy["next_exposed_ns"])

    def test_what_is_given_stays(self):
        _, policy, _ = self.solve("--gpu-memory", "1GiB", "--sources", 2, "--destinations", 3,
                                  "--ahead", 1, "--streams", 2, "--rule", "asap", "--page-size",
                                  "64KiB")
        self.assertEqual([policy[key] for key in ("sources", "destinations", "one_ring", "ahead",
                                                  "streams", "rule", "page_size")],
                         [2, 3, False, 1, 2, "asap", 65536])

    def test_memory_that_is_short(self):
        """With less than that pages go to the host; without a host it says what lacks."""
        _, policy, _ = self.solve("--gpu-memory", "1GiB")
        half = policy["gpu_bytes"] * 3 // 4
        whole, moved, stage = self.solve("--gpu-memory", half, "--host-memory", "1GiB")
        self.assertTrue(whole["fits"] and moved["is_scarce"])
        self.assertLessEqual(moved["gpu_bytes"], half)
        self.assertLessEqual(stage["high_water_host_pages"], moved["host_pages"])
        self.assertGreater(stage["high_water_host_pages"], 0)
        self.assertGreater(stage["link_bytes"], 0)
        whole, lacking, _ = self.solve("--gpu-memory", half, code=1)
        self.assertFalse(whole["fits"] or lacking["fits"])
        self.assertGreater(lacking["missing_gpu_bytes"] + lacking["missing_host_bytes"], 0)
        result = run("simulate", *self.flags, "--gpu-memory", half)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1))
        self.assertIn(f"lacks {lacking['missing_gpu_bytes']} bytes of GPU memory", result.stderr)
        self.simulate(*self.flags, "--gpu-memory", half + lacking["missing_gpu_bytes"],
                      "--host-memory", max(1, lacking["missing_host_bytes"]))

    def test_memory_beside_the_pages(self):
        _, policy, _ = self.solve("--gpu-memory", "1GiB")
        _, more, _ = self.solve("--gpu-memory", "1GiB", "--static-memory", "64MiB")
        self.assertEqual(more["gpu_bytes"], policy["gpu_bytes"] + 64 * MIB)
        most = policy["gpu_bytes"] + 64 * MIB
        self.solve("--gpu-memory", most, "--reserve-memory", "64MiB")
        _, less, _ = self.solve("--gpu-memory", most, "--reserve-memory", 65 * MIB, code=1)
        self.assertEqual(less["missing_gpu_bytes"], MIB)
        base = [*schedule("1f1b", 1, 1), "--layers", 1, "--solve", "--gpu-memory", "1GiB",
                "--sources", 4, "--destinations", 4, "--set-memory", MIB, "--sets"]
        sets = [self.simulate(*base, name)["policy"]["sets_bytes"] for name in ("fixed", "callers")]
        self.assertEqual(sets, [8 * MIB, MIB])  # one visit, kept in place

    def test_recomputation(self):
        _, policy, stage = self.solve("--gpu-memory", "1MiB", "--recompute-ns", 6000)
        self.assertEqual({layer["keep"] for layer in policy["layers"]}, {"recomputed"})
        self.assertEqual((stage["recompute_ns"], stage["tickets"]), (3 * 4 * 6000, 0))

    def test_refusals(self):
        base = [*schedule("1f1b", 4, 8), "--layers", "2"]
        for flags, *words in ((["--solve"], "--gpu-memory: missing"),
                              (["--solve", "--gpu-memory", "1GiB"], "--set-memory: missing"),
                              (["--gpu-memory", "1GiB"], "--solve: missing"),
                              (["--solve", "--gpu-memory", "0"], "--gpu-memory 0"),
                              (["--objective", "speed"], "--objective speed", "least-bytes")):
            self.refused(run("simulate", *base, *flags), 2, *words)
        stage, = self.stages(*base, "--rank", 0, *WORK, "--visit-pages", self.visits(pages3),
                             "--solve", "--gpu-memory", "1GiB", "--set-memory", MIB)
        self.assertGreater(stage["high_water_pages"], 0)


__all__ = ["Solving", "cli"]
