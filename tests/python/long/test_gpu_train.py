"""tools/gpu-train.py and gpu-memo.py where there is no GPU: all of it but the capture, so that its first run on one is not
lost; and what it says without --device cpu."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"


def run(*arguments, script="gpu-train.py"):
    return subprocess.run([sys.executable, TOOLS / script, *arguments], text=True, capture_output=True, timeout=280,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}, check=False)


class GpuTrain(unittest.TestCase):
    def test_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(folder, "--device", "cpu", "--steps", "2")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(folder, "train-report.json"), encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual((report["wrong"], report["captured"]), ([], False))
        by_name = {variant["variant"]: variant for variant in report["variants"]}
        self.assertEqual(list(by_name), ["eager", "again", "keep", "pages", "host", "checkpoint"])
        for name, variant in by_name.items():
            self.assertTrue(variant["losses_bit_equal"], name)
        self.assertEqual(by_name["pages"]["pool"]["num_faults"], 0)
        self.assertGreater(by_name["host"]["pool"]["spilled_pages"], 0)
        self.assertLess(by_name["host"]["peak_bytes"], by_name["pages"]["peak_bytes"])
        self.assertIn("pages", done.stdout)

    def test_without_cuda(self):
        for script in ("gpu-train.py", "gpu-memo.py"):
            done = run(tempfile.gettempdir(), script=script)
            self.assertEqual(done.returncode, 4)
            self.assertRegex(done.stderr.splitlines()[-1], f"^{script}: torch .* has no CUDA here$")

    def test_usage(self):
        self.assertEqual(run("out", "--steps", "1").returncode, 2)


class GpuMemo(unittest.TestCase):
    def test_on_the_cpu(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(folder, "--device", "cpu", "--sequences", "512", "--layers", "4", "--hidden", "32",
                       "--heads", "2", "--steps", "2", script="gpu-memo.py")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(os.path.join(folder, "memo-report.json"), encoding="utf-8") as file:
                report = json.load(file)
        self.assertEqual(report["wrong"], [])
        names = ["checkpoint", "nothing", "save_on_cpu", "swap", "auto"]
        self.assertEqual([one["variant"] for one in report["variants"]], names)
        for one in report["variants"]:
            if "refused" not in one:
                self.assertLess(one["losses_differ_by"], 1e-4)
                self.assertGreater(one["seconds"]["median"], 0)
        _, nothing, _, swap, _ = report["variants"]
        self.assertLess(swap["peak_bytes"], nothing["peak_bytes"])
        self.assertEqual(swap["memo"]["tokens"], [512] * 4)

    def test_usage(self):
        for flags in (("--sequences", "x"), ("--sequences", "32"), ("--steps", "0"), ("--heads", "3")):
            self.assertEqual(run("out", *flags, script="gpu-memo.py").returncode, 2, flags)


if __name__ == "__main__":
    unittest.main()
