#!/usr/bin/env python3
"""test_gpu_check.py SOURCE_DIR: the stages of tools/gpu-check.sh among fakes."""
from gpu_fakes import FAKES, GpuTools, main

STAGES = ["correct", "conformance", "rings", "budget", "bench", "glu", "linear", "beside", "profile", "host",
          "schedule", "sanitize", "peers", "train", "memo"]


class GpuCheck(GpuTools):
    def check(self, code, name, seconds=None):
        return self.stage(code, name, name, seconds=seconds)

    def test_refusals(self):
        for arguments in ((), ("out",), ("out", "everything"), ("out", "bench", "more"), ("out", "ben")):
            code, _, errors = self.start(*arguments)
            self.assertEqual(code, 2)
            self.assertIn("usage", errors)
        self.fake("path/nvidia-smi", 'echo "No devices were found"; exit 6')
        self.assertEqual(self.start("out", "bench"),
                         (4, "", "gpu-check.sh: no GPU: nvidia-smi lists none\n"))

    def test_the_list_is_all_stages(self):
        code, said, _ = self.start("--list")
        self.assertEqual((code, [line.split()[0] for line in said.splitlines()]), (0, STAGES))
        for name in STAGES:
            code, said, errors = self.start("--dry-run", "none", name)
            self.assertEqual((code, errors), (0, ""), said)
            self.assertNotIn("passed", said)
        self.assertFalse((self.folder / "out").exists())

    def test_correctness(self):
        self.check(0, "correct")
        self.assertEqual(self.steps["example_01_stash_restore"]["text"], "ran on cuda")
        self.assertIn("OneRank", self.steps["nccl"]["text"])
        self.assertLessEqual({"replay", "replay spill", "replay grow", "replay offload scrub"},
                             set(self.steps))
        self.check(0, "conformance")
        self.assertRegex(self.steps["conformance"]["text"], r"fail_fast --gtest_filter=\*/cuda\.\*$")
        self.check(0, "rings")
        self.assertEqual(list(self.steps), ["replay bulk", "conformance bulk", "replay squeeze", "conformance squeeze"])
        self.fake("prebuilt/bin/pagestash", "exit 4")
        self.check(0, "rings")
        self.assertEqual([(name, step["status"]) for name, step in self.steps.items()],
                         [("replay bulk", "unavailable"), ("replay squeeze", "unavailable")])
        self.fake("prebuilt/bin/pagestash", FAKES["prebuilt/bin/pagestash"])
        (self.folder / "path/ldconfig").unlink()
        self.check(0, "correct")
        self.assertEqual(self.steps["nccl"]["status"], "unavailable")
        self.check(0, "conformance")
        self.assertEqual(self.steps["cublaslt"]["status"], "unavailable")
        self.assertRegex(self.steps["conformance"]["text"], r"=\*/cuda\.\*-Linear/\*\.\*Dense\*:")

    def test_measurements(self):
        record = self.check(0, "bench")
        self.assertEqual(list(self.steps), ["bench-bytes", "bench-backend", "bench-pages", "bench-shapes"])
        self.assertEqual(record["details"]["reports"], sorted(f"{name}.json" for name in self.steps))
        self.assertIn("G1  share of A0", (self.packed / "bench-bytes.txt").read_text())
        self.check(0, "budget")
        self.assertEqual(list(self.steps), ["placement", "bench-num_sms", "bench-gemm"])
        self.check(0, "glu")
        self.assertEqual(list(self.steps), ["conformance glu", "bench-glu"])
        self.check(0, "linear")
        self.assertEqual(list(self.steps), ["nccl", "conformance linear", "bench-linear"])
        self.check(0, "beside")
        self.assertEqual(list(self.steps), ["bench-gemm", "bench-pairs"])
        self.check(0, "host")
        self.assertIn("--sweep host ", self.steps["bench-host"]["text"])
        self.check(0, "schedule")
        self.assertEqual(list(self.steps), [f"bench-schedule-{live}" for live in ("64MiB", "256MiB", "1GiB")])
        self.assertIn("--live 1GiB ", self.steps["bench-schedule-1GiB"]["text"])
        self.assertIn("S1  ns of a hook", (self.packed / "bench-schedule-64MiB.txt").read_text())
        self.check(0, "profile")
        self.assertRegex(self.steps["ncu-bulk"]["text"], r"^--clock-control none .*_bulk_kernel .*--backend bulk")

    def test_trainers_and_peers(self):
        self.check(0, "peers")
        self.assertIn("--megatron-ops /mine.py", self.steps["peers"]["text"])
        for name in ("train", "memo"):
            record = self.check(0, name)
            self.assertIn("prebuilt/bin/libpagestash.so", self.steps[name]["text"])
            self.assertEqual(record["details"]["reports"], [f"{name}-report.json"])
        self.trainer("train", "sys.exit(print('gpu-train.py: torch has no CUDA', file=sys.stderr) or 4)")
        self.assertEqual(self.check(0, "train")["status"], "unavailable")
        self.assertIn("no CUDA", self.steps["train"]["text"])
        self.trainer("memo", "sys.exit(print('swap: losses differ') or 1)")
        self.assertEqual(self.check(1, "memo")["status"], "failed")
        self.assertEqual(self.steps["memo"]["text"], "swap: losses differ")

    def test_a_wrong_byte_ends_a_stage(self):
        self.fake("prebuilt/bin/pagestash", 'echo "mismatched bytes: 7"; exit 1')
        self.check(1, "correct")
        self.assertEqual(list(self.steps), ["example_01_stash_restore", "example_02_graph_replay", "replay"])
        self.assertEqual(self.steps["replay"]["text"], "mismatched bytes: 7")
        self.fake("prebuilt/bin/pagestash-bench",
                  'case $* in *backend*) echo "1 bytes differ"; exit 1 ;; esac')
        self.check(1, "bench")
        self.assertEqual(list(self.steps), ["bench-bytes", "bench-backend"])
        self.assertEqual(self.steps["bench-backend"]["text"], "1 bytes differ")

    def test_a_measurement_that_takes_too_long_is_cut(self):
        self.fake("prebuilt/bin/pagestash-bench", "echo begun; exec sleep 30")
        self.assertEqual(self.check(3, "beside", seconds=1)["status"], "cut")
        self.assertEqual(list(self.steps), ["bench-gemm", "bench-pairs"])
        self.assertIn("not begun", self.steps["bench-pairs"]["text"])
        self.assertIn("begun", (self.packed / "bench-gemm.txt").read_text())

    def test_sanitizers(self):
        self.check(0, "sanitize")
        self.assertEqual(len(self.steps), 8)
        self.fake("path/compute-sanitizer", """case $* in
            *memcheck*) echo "========= Error: No attachable process found."; exit 1 ;;
            *racecheck*"--error-exitcode 86 "*) echo "=== ERROR SUMMARY: 3 errors"; exit 86 ;;
            *) echo "========= ERROR SUMMARY: 0 errors" ;;
            esac""")
        self.check(1, "sanitize")
        self.assertIn("3 errors", self.steps["racecheck example"]["text"])
        self.assertEqual(self.steps["memcheck example"]["status"], "unavailable")
        self.assertEqual(list(self.steps)[-1], "racecheck example")
        for tool, stage in (("compute-sanitizer", "sanitize"), ("ncu", "profile")):
            (self.folder / "path" / tool).unlink()
            self.assertEqual(self.check(0, stage)["status"], "unavailable")


if __name__ == "__main__":
    main(GpuCheck, "gpu-check.sh")
