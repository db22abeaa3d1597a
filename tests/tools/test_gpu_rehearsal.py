#!/usr/bin/env python3
"""test_gpu_rehearsal.py SOURCE_DIR PROGRAMS: tools/gpu-first.sh with one of its real programs at a time, linked with
the runtime of pretended_gpu.c: all of it but the kernels runs to its end, which then must not pass. The steps in
front of it are fakes. test_gpu_stages.py starts every step."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from gpu_fakes import GpuTools, main

CREATED = ["resize", "reset"]
EXAMPLES = ["example_01_stash_restore", "example_02_graph_replay"]
# What tests of conformance ask of a device without a kernel, and so pass.
WITHOUT_KERNELS = ["Arena.OneAllocation", "Arena.ReservedAddresses", "Canary.APoolThatGrowsKeepsIts",
                   "Canary.ACapturedCheckIsOneLaunch", "Canary.ATicketsIsLookedAtWhenItIsDestroyed",
                   "Canary.DamageBehindEachPartIsTold", "Canary.DestroyTellsAndDestroys",
                   "Driver.AForkCannotUseCuda", "Scratch.EveryUserHasTheBufferAlone", "Scratch.GrowsUnderAGraph",
                   "Scratch.WhatACaptureLeasesIsReleasedInIt",
                   "Scratch.WhatIsLeasedOutsideIsNotReleasedInACapture"]


class GpuRehearsal(GpuTools):
    programs = None  # a folder: rehearsal.cmake

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
        name = EXAMPLES[number]
        steps, launches = self.run_real(name, self.programs / name, variables)
        before = EXAMPLES[:number]
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
        steps, launches = self.run_real("pagestash", self.programs / "pagestash")
        self.assertEqual(steps[-1], "replay ldg")
        self.assertIn("pst_pool_step has not run yet", self.steps["replay ldg"]["text"])
        for name in ("stash_ldg", "restore_ldg", "verify", "check"):
            self.assertTrue(any(f"{name}_kernel" in line for line in launches), (name, launches))

    def run_tests(self, pattern, **variables):
        """All that the tests print, and the lines of their launches."""
        launches = self.folder / "launches"
        launches.write_text("")
        beside = self.programs.parent
        done = subprocess.run(
            [self.programs / "pagestash_tests", f"--gtest_filter={pattern}"], text=True, capture_output=True,
            timeout=300, env={**os.environ, "PAGESTASH_REQUIRE_GPU": "1", "PRETENDED_LAUNCHES": str(launches),
                 "PAGESTASH_CUBLASLT_LIBRARY": str(beside / "libfake_cublaslt.so"), **variables}, check=False)
        return done.stdout, launches.read_text().splitlines()

    def test_conformance_is_not_skipped_and_does_not_pass(self):
        steps, _ = self.run_real("pagestash_tests", self.programs / "pagestash_tests")
        self.assertEqual(steps[-1], "conformance ldg")
        self.assertIn(", failed: 1, ", self.steps["conformance ldg"]["text"])
        for test in ("Tickets/cuda.NoRowsOneRowAllRows", "Migrate/cuda_squeeze.ThereAndBackAgain"):
            said, launches = self.run_tests(test)
            self.assertIn("failed: 1, skipped for want of a GPU: 0", said)
            self.launches_are(launches, [*CREATED, "check"])

    def test_all_conformance_reaches_its_launches(self):
        """Each test runs to its end, whatever it finds, and every kernel is launched."""
        for device, backend in (("cuda", "ldg"), ("cuda_bulk", "bulk"), ("cuda_squeeze", "squeeze")):
            said, launches = self.run_tests(f"*/{device}.*")
            run, passed, failed, skipped = map(int, re.search(
                r"^tests run: (\d+), passed: (\d+), failed: (\d+), skipped for want of a GPU: (\d+)$", said,
                re.MULTILINE).groups())
            self.assertEqual((run, skipped), (passed + failed, 0))
            self.assertGreater(failed, 150)
            good = re.findall(rf"^\[       OK \] (\w+)/{device}\.(\w+) ", said, re.MULTILINE)
            self.assertEqual(sorted(map(".".join, good)), sorted(WITHOUT_KERNELS))
            for kernel in (*CREATED, "slab", "step", "check", "fill", "verify", "expect", "product",
                           "glu_forward_ldg", "glu_backward_ldg", f"stash_{backend}", f"restore_{backend}", f"migrate_{backend}"):
                self.assertTrue(any(f"{kernel}_kernel" in line for line in launches), kernel)

    def test_canaries(self):
        """They are written, copied and compared without a kernel."""
        tests = ("Canary/cuda.DamageBehindEachPartIsTold", "Canary/cuda.DestroyTellsAndDestroys",
                 "Canary/cuda.ATicketsIsLookedAtWhenItIsDestroyed")
        said, _ = self.run_tests(":".join(tests), PAGESTASH_CHECK="1")
        self.assertIn("passed: 3, failed: 0, skipped for want of a GPU: 0", said)

    # Fault rows 39, 40.
    def test_no_device_and_no_code(self):
        for variable, said in (
                ("PRETENDED_NO_DEVICE", "the driver shows no CUDA device"),
                ("PRETENDED_NO_CODE", "this library holds no code for pretended GPU, compute capability 9.0 ")):
            done = subprocess.run([self.programs / EXAMPLES[0], "cuda"], text=True, capture_output=True, timeout=60,
                                  env={**os.environ, variable: "1"})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done)
            self.assertIn("PST_E_NO_DEVICE", done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    GpuRehearsal.programs = pathlib.Path(sys.argv.pop(2)).resolve()
    main(GpuRehearsal, "gpu-first.sh")
