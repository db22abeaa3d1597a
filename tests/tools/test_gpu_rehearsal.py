#!/usr/bin/env python3
"""test_gpu_rehearsal.py SOURCE_DIR PROGRAM...: tools/gpu-first.sh with one of its real programs at a time,
linked with the runtime of pretended_gpu.c: all of it but the kernels runs, which then must not pass. The steps
in front of it are fakes. Programs: the two examples, the command, the tests."""
import os
import pathlib
import shutil
import subprocess
import sys

from gpu_fakes import GpuTools, main

CREATED = ["resize", "reset"]


class GpuRehearsal(GpuTools):
    examples = None  # in the order of gpu-first.sh
    command_program = tests_program = None

    def run_real(self, name, program, variables=""):
        """Runs the stage with that program in place of a fake, which ends it: its steps, and the lines of its
        launches."""
        launches = self.folder / "launches"
        launches.unlink(missing_ok=True)
        self.fake(f"prebuilt/bin/{name}",
                  f'exec env PRETENDED_LAUNCHES={launches} {variables} {program} "$@"')
        self.assertEqual(self.stage(1, "first")["status"], "failed")
        return list(self.steps), launches.read_text().splitlines() if launches.exists() else []

    def rehearse(self, number, variables=""):
        """Runs up to that example, which is the real one; the lines of its launches."""
        example = self.examples[number]
        name = example.name.replace("gpu_rehearsal_", "example_")
        steps, launches = self.run_real(name, example, variables)
        before = [other.name.replace("gpu_rehearsal_", "example_") for other in self.examples[:number]]
        self.assertEqual(steps, ["nvidia-smi", *before, name])
        self.assertIn("pst_pool_step has not run yet", self.steps[name]["text"])
        return launches

    def launches_are(self, said, wanted):
        kernels = [line.split()[0] for line in said]
        self.assertEqual(len(kernels), len(wanted), kernels)
        for kernel, name in zip(kernels, wanted):
            self.assertIn(f"{name}_kernel", kernel)

    def test_up_to_the_launches(self):
        self.launches_are(self.rehearse(0), [*CREATED, "fill", "stash_ldg", "restore_ldg", "verify", "step"])

    def test_a_captured_graph_up_to_its_launches(self):
        self.launches_are(self.rehearse(1), [*CREATED, *3 * ["fill", "stash_ldg"],
                                             *3 * ["restore_ldg", "verify"], "step"])

    def test_a_budget_is_one_block_for_each_sm(self):
        for backend, threads in (("ldg", 1024), ("bulk", 256), ("squeeze", 32)):
            said = self.rehearse(0, f"PAGESTASH_BACKEND={backend} PAGESTASH_NUM_SMS=16")
            for name in ("stash", "restore"):
                line = next(line for line in said if f"{name}_{backend}_kernel" in line)
                self.assertIn(f" 16 x {threads}, ", line)

    def test_a_replay_up_to_its_launches(self):
        shutil.copy(self.source / "bench/data/bytelm-e64-top6-l6.csv", self.folder / "prebuilt/data")
        steps, launches = self.run_real("pagestash", self.command_program)
        self.assertEqual(steps[-1], "replay ldg")
        self.assertIn("pst_pool_step has not run yet", self.steps["replay ldg"]["text"])
        for name in ("stash_ldg", "restore_ldg", "verify", "check"):
            self.assertTrue(any(f"{name}_kernel" in line for line in launches), (name, launches))

    def test_conformance_is_not_skipped_and_does_not_pass(self):
        steps, _ = self.run_real("pagestash_tests", self.tests_program)
        self.assertEqual(steps[-1], "conformance ldg")
        self.assertIn(", failed: 1, ", self.steps["conformance ldg"]["text"])
        for test in ("Tickets/cuda.NoRowsOneRowAllRows", "Migrate/cuda_squeeze.ThereAndBackAgain"):
            launches = self.folder / "launches"
            launches.unlink(missing_ok=True)
            done = subprocess.run([self.tests_program, f"--gtest_filter={test}"], text=True, capture_output=True,
                                  timeout=60, env={**os.environ, "PAGESTASH_REQUIRE_GPU": "1",
                                                   "PRETENDED_LAUNCHES": str(launches)})
            self.assertIn("failed: 1, skipped for want of a GPU: 0", done.stdout)
            self.launches_are(launches.read_text().splitlines(), [*CREATED, "check"])

    def test_canaries(self):
        """They are written, copied and compared without a kernel."""
        tests = ("Canary/cuda.DamageBehindEachPartIsTold", "Canary/cuda.DestroyTellsAndDestroys",
                 "Canary/cuda.ATicketsIsLookedAtWhenItIsDestroyed")
        done = subprocess.run([self.tests_program, f"--gtest_filter={':'.join(tests)}"], text=True,
                              capture_output=True, timeout=60,
                              env={**os.environ, "PAGESTASH_REQUIRE_GPU": "1", "PAGESTASH_CHECK": "1"})
        self.assertIn("passed: 3, failed: 0, skipped for want of a GPU: 0", done.stdout)

    # Fault rows 39, 40.
    def test_no_device_and_no_code(self):
        for variable, said in (
                ("PRETENDED_NO_DEVICE", "the driver shows no CUDA device"),
                ("PRETENDED_NO_CODE", "this library holds no code for pretended GPU, compute capability 9.0 ")):
            done = subprocess.run([self.examples[0], "cuda"], text=True, capture_output=True, timeout=60,
                                  env={**os.environ, variable: "1"})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
            self.assertIn("PST_E_NO_DEVICE", done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    programs = [pathlib.Path(path) for path in sys.argv[2:]]
    GpuRehearsal.examples = programs[:2]
    GpuRehearsal.command_program, GpuRehearsal.tests_program = programs[2:]
    del sys.argv[2:]
    main(GpuRehearsal, "gpu-first.sh")
