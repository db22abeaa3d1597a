#!/usr/bin/env python3
"""test_gpu_rehearsal.py SOURCE_DIR EXAMPLE...: tools/gpu-first.sh with one of its real examples at a time, linked
with the runtime of pretended_gpu.c: all of it but the kernels runs, which then must not pass. The steps in front
of it are fakes."""
import pathlib
import sys

from gpu_fakes import GpuTools, main

CREATED = ["resize", "reset"]


class GpuRehearsal(GpuTools):
    examples = None  # in the order of gpu-first.sh

    def rehearse(self, number, variables=""):
        """Runs up to that example, which is the real one; the lines of its launches."""
        launches = self.folder / "launches"
        launches.unlink(missing_ok=True)
        example = self.examples[number]
        name = example.name.replace("gpu_rehearsal_", "example_")
        self.fake(f"prebuilt/bin/{name}",
                  f'exec env PRETENDED_LAUNCHES={launches} {variables} {example} "$@"')
        record = self.stage(1, "first")
        before = [other.name.replace("gpu_rehearsal_", "example_") for other in self.examples[:number]]
        self.assertEqual((record["status"], list(self.steps)), ("failed", ["nvidia-smi", *before, name]))
        self.assertIn("pst_pool_step has not run yet", self.steps[name]["text"])
        return launches.read_text().splitlines()

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


if __name__ == "__main__":
    GpuRehearsal.examples = [pathlib.Path(path) for path in sys.argv[2:]]
    del sys.argv[2:]
    main(GpuRehearsal, "gpu-first.sh")
