#!/usr/bin/env python3
"""test_gpu_stages.py SOURCE_DIR PROGRAMS [First | Stages | Broken]: every step of tools/gpu-first.sh, and of the
stages of gpu-check.sh that run no torch, from the package of gpu-package.sh, with programs that run on a pretended GPU
(PROGRAMS: rehearsal.cmake). Each must come to the launch behind which it looks at bytes, which no kernel wrote."""
import pathlib
import re
import subprocess
import sys

from gpu_fakes import main
from gpu_package import GpuPackage

MOVED = ("stash_ldg_kernel", "restore_ldg_kernel")
LOOKS = ("step_kernel", "check_kernel")  # of a pool's status, and of lost pages


def moved(backend):
    return f"stash_{backend}_kernel", f"restore_{backend}_kernel"


class Rehearsal(GpuPackage):
    def walk(self, name, expected, *arguments, until=LOOKS):
        """Runs a stage: its steps are those of expected, {step: what it must have launched; () if it launches
        nothing}, and each came there."""
        found = self.reached(0, name, until, *arguments)
        self.assertEqual(list(found), list(expected))
        for step, wanted in expected.items():
            with self.subTest(step=step):
                self.assertEqual(self.steps[step]["status"], "passed")
                if not wanted:
                    self.assertIsNone(found[step])
                    continue
                self.assertIsNotNone(found[step], f"{step} came to no launch of {until}")
                self.assertGreater(found[step].allocations, 0)
                self.assertGreater(found[step].bytes, 0)
                for kernel in wanted:
                    self.assertTrue(any(kernel in line for line in found[step].launches),
                                    f"{step} launched no {kernel}: {found[step].launches}")
        return found


class First(Rehearsal):
    script = "gpu-first.sh"

    def test_first(self):
        backends = ("ldg", "bulk", "squeeze")
        self.walk("first", {
            "nvidia-smi": (), "example_01_stash_restore": MOVED, "example_02_graph_replay": MOVED,
            **{f"replay {backend}": moved(backend) for backend in backends}, "placement": ("where",),
            "bench-bytes": ("plain_ldg_kernel", "plain_bulk_kernel", "transform_kernel", *MOVED),
            "bench-backend": MOVED, "bench-shapes": MOVED, "bench-num_sms": MOVED,
            **{f"conformance {backend}": ("reset_kernel", "check_kernel") for backend in backends}},
            until=(*LOOKS, "where"))


class Stages(Rehearsal):
    script = "gpu-check.sh"
    patience = 900  # what a schedule costs the calling thread is measured for six seconds of each step

    def check(self, name, expected, until=LOOKS):
        return self.walk(name, expected, name, until=until)

    def test_correct(self):
        replays = ("", " segments zero", " 1f1b two streams", " zb-h1 mxfp8 no-graph", " dualpipe two streams",
                   " one ring", " spill", " offload scrub", " grow")
        self.check("correct", {
            "example_01_stash_restore": MOVED, "example_02_graph_replay": MOVED, "example_03_plan_and_arena": (),
            "example_04_estimate": (), "example_05_schedule": MOVED, "example_06_addresses_at_launch": MOVED,
            "example_07_moe_glu": (), **{f"replay{what}": MOVED for what in replays}, "nccl": ("step_kernel",)})

    def test_conformance(self):
        self.check("conformance", {"conformance": ("check_kernel",)})
        self.check("rings", {"replay bulk": moved("bulk"), "conformance bulk": ("check_kernel",),
                             "replay squeeze": moved("squeeze"), "conformance squeeze": ("check_kernel",)})

    def test_measurements(self):
        product = ("cublasGemmEx", "cublasGemmEx")
        self.check("budget", {"placement": ("where",), "bench-num_sms": MOVED, "bench-gemm": product},
                   until=(*LOOKS, "where"))
        self.check("bench", {f"bench-{name}": MOVED for name in ("bytes", "backend", "pages", "shapes")})
        self.check("glu", {"conformance glu": ("check_kernel",),
                           "bench-glu": ("glu_forward_ldg_kernel", "glu_backward_ldg_kernel")})
        self.check("linear", {"nccl": ("step_kernel",), "conformance linear": ("product_kernel",),
                              "bench-linear": ("cublasLtMatmul 1 of 4096",)},
                   until=("step_kernel", "product_kernel", "cublasLtMatmul 1 of 4096"))
        self.check("beside", {"bench-gemm": product, "bench-pairs": MOVED})
        self.check("host", {"bench-host": MOVED})

    def test_schedule(self):
        self.check("schedule", {f"bench-schedule-{live}": ("cublasGemmEx", *MOVED)
                                for live in ("64MiB", "256MiB", "1GiB")})

    def test_sanitizers(self):
        self.check("sanitize", {f"{tool} {what}": ("reset_kernel",)
                                for tool in ("memcheck", "initcheck", "synccheck", "racecheck")
                                for what in ("example", "conformance")})

    def test_profile(self):
        found = self.check("profile", {f"ncu-{backend}": moved(backend) for backend in ("ldg", "bulk", "squeeze")})
        for backend in ("ldg", "bulk", "squeeze"):
            pattern = re.search(r"--kernel-name regex:(\S+).* --launch-skip (\d+) --launch-count (\d+)",
                                next(line for line in (self.packed / "log.txt").read_text().splitlines()
                                     if line.startswith(f"== ncu-{backend},")))
            names = [re.sub(r"^_ZN?\d+|^.*\D\d+(?=[a-z_]+_kernel)", "", line.split()[0])
                     for line in found[f"ncu-{backend}"].launches]
            matching = [name for name in names if re.search(pattern[1], name)]
            self.assertGreaterEqual(len(matching), int(pattern[2]) + int(pattern[3]), names)


class Broken(Rehearsal):
    """What the rehearsal is for: each of these would have been found on a GPU that is paid for."""
    script = "gpu-first.sh"

    def ends(self, step, text, until=LOOKS):
        """The stage ends at that step, which came to no launch of those."""
        found = self.reached(1, "first", until)
        self.assertEqual(list(self.steps)[-1], step)
        self.assertEqual(self.steps[step]["status"], "failed")
        self.assertIn(text, self.steps[step]["text"])
        self.assertIsNone(found[step])

    def replace(self, name, before, after):
        path = self.package / name
        text = path.read_text()
        self.assertIn(before, text)
        path.unlink()
        path.write_text(text.replace(before, after))

    def test_a_missing_program(self):
        (self.package / "bin/pagestash-bench").unlink()
        self.ends("bench-bytes", "No such file", until=(*LOOKS, "where"))

    def test_a_missing_file(self):
        (self.package / "data/bytelm-e64-top6-l6.csv").unlink()
        self.ends("replay ldg", "bytelm-e64-top6-l6.csv")

    def test_a_wrong_option(self):
        self.replace("gpu-first.sh", "--quick --sweep bytes", "--quick --sweep byte")
        self.ends("bench-bytes", "byte", until=(*LOOKS, "where"))

    def test_a_filter_that_finds_no_test(self):
        self.replace("gpu-first.sh", "--gtest_filter=*/cuda.*", "--gtest_filter=*/gpu.*")
        self.ends("conformance ldg", "tests run: 0", until=(*LOOKS, "where"))

    def test_a_device_that_is_not_there(self):
        self.variables["PRETENDED_NO_DEVICE"] = "1"
        self.ends("example_01_stash_restore", "the driver shows no CUDA device")

    def test_bytes_that_no_kernel_wrote(self):
        self.ends("example_01_stash_restore", "pst_pool_step has not run yet", until=("no_such_kernel",))


if __name__ == "__main__":
    GpuPackage.programs = pathlib.Path(sys.argv.pop(2)).resolve()
    main(GpuPackage, None)
