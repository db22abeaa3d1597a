#!/usr/bin/env python3
"""test_gpu_rehearsal.py SOURCE_DIR EXAMPLE: tools/gpu-first.sh with the real first example, linked with
the runtime of pretended_gpu.c: all of it but the kernels runs, which then must not pass."""
import sys

from gpu_fakes import GpuTools, main


class GpuRehearsal(GpuTools):
    example = None

    def rehearse(self, variables):
        launches = self.folder / "launches"
        launches.unlink(missing_ok=True)
        self.fake("prebuilt/bin/example_01_stash_restore",
                  f'exec env PRETENDED_LAUNCHES={launches} {variables} {self.example} "$@"')
        record = self.stage(1, "first")
        self.assertEqual((record["status"], list(self.steps)),
                         ("failed", ["nvidia-smi", "example_01_stash_restore"]))
        self.assertIn("pst_pool_step has not run yet", self.steps["example_01_stash_restore"]["text"])
        return launches.read_text().splitlines()

    def test_up_to_the_launches(self):
        kernels = [line.split()[0] for line in self.rehearse("")]
        wanted = ["resize", "reset", "fill", "stash_ldg", "restore_ldg", "verify", "step"]
        self.assertEqual(len(kernels), len(wanted), kernels)
        for kernel, name in zip(kernels, wanted):
            self.assertIn(f"{name}_kernel", kernel)

    def test_a_budget_is_one_block_for_each_sm(self):
        for backend, threads in (("ldg", 1024), ("bulk", 256), ("squeeze", 32)):
            said = self.rehearse(f"PAGESTASH_BACKEND={backend} PAGESTASH_NUM_SMS=16")
            for name in ("stash", "restore"):
                line = next(line for line in said if f"{name}_{backend}_kernel" in line)
                self.assertIn(f" 16 x {threads}, ", line)


if __name__ == "__main__":
    GpuRehearsal.example = sys.argv.pop(2)
    main(GpuRehearsal, "gpu-first.sh")
