#!/usr/bin/env python3
"""test_gpu_first.py SOURCE_DIR: tools/gpu-first.sh among fakes: the order, what ends it, what is packed,
and that its limit holds."""
import os
import re
import signal
import subprocess
import time

from gpu_fakes import GpuTools, main

ORDER = ["nvidia-smi", "example_01_stash_restore", "example_02_graph_replay", "replay ldg",
         "replay bulk", "replay squeeze", "placement", "bench-bytes", "bench-backend", "bench-shapes",
         "bench-num_sms", "conformance ldg", "conformance bulk", "conformance squeeze"]


class GpuFirst(GpuTools):
    def first(self, code, seconds=None):
        return self.stage(code, "first", seconds=seconds)

    def test_line_by_line(self):
        record = self.first(0)
        self.assertEqual(list(self.steps), ORDER)
        self.assertEqual([record[key] for key in ("status", "machine", "driver", "toolkit", "commit")],
                         ["passed", "Fake GPU", "1.2.3", "13.0.0", "abc123"])
        for line, name in zip(self.said, ORDER):
            self.assertRegex(line, f"^passed +[0-9]+ s  {name}: ")
        self.assertRegex(self.said[-1], "^first: passed in [0-9]+ s; everything is in .*/first.tar.gz$")
        self.assertEqual(len(self.said), len(ORDER) + 1)
        text = {name: step["text"] for name, step in self.steps.items()}
        self.assertEqual(text["example_02_graph_replay"], "ran on cuda")
        log = (self.packed / "log.txt").read_text()
        for backend in ("ldg", "bulk", "squeeze"):
            self.assertIn(f"\nreplay --device cuda --backend {backend} --routing {self.folder}/prebuilt/data/"
                          "bytelm-e64-top6-l6.csv --expert-model-parallel-size 8\n", log)
        for name, part in (("bytes", "bytes "), ("backend", "backend "),
                           ("shapes", "tensors,pattern "), ("num_sms", "num_sms ")):
            self.assertIn(f"--device cuda --quick --sweep {part}--json=", text[f"bench-{name}"])
            self.assertIn("G1  share of A0", (self.packed / f"bench-{name}.txt").read_text())
        for backend, device in (("ldg", "cuda"), ("bulk", "cuda_bulk"), ("squeeze", "cuda_squeeze")):
            self.assertIn(f"--gtest_fail_fast --gtest_filter=*/{device}.*-Random/*:Chaos/*",
                          text[f"conformance {backend}"])
        self.assertLessEqual({"placement.json", "bench-bytes.json", "bench-num_sms.json"},
                             set(record["details"]["reports"]))
        self.assertEqual({path.name for path in (self.folder / "out").iterdir()},
                         {"first.tar.gz", "first-summary.txt"})

    def test_limits_leave_time_for_the_packing(self):
        self.first(0)
        limits = re.findall(r"^== (.*), at most ([0-9]+) s: ", (self.packed / "log.txt").read_text(),
                            re.MULTILINE)
        self.assertEqual([name for name, _ in limits], ORDER)
        self.assertLessEqual(max(int(limit) for _, limit in limits), 90)

    def test_a_wrong_byte_ends_it(self):
        wrong = 'echo "mismatched bytes: 7"; exit 1'
        for program, name in (("example_01_stash_restore", "example_01_stash_restore"),
                              ("pagestash", "replay ldg"), ("pagestash-bench", "bench-bytes"),
                              ("pagestash_tests", "conformance ldg")):
            with self.subTest(program=program):
                self.setUp()
                self.fake(f"prebuilt/bin/{program}", wrong)
                record = self.first(1)
                self.assertEqual(record["status"], "failed")
                self.assertEqual(list(self.steps), ORDER[:ORDER.index(name) + 1])
                self.assertEqual(self.steps[name]["text"], "mismatched bytes: 7")
                self.assertIn(f"stopped: {name} failed, nothing after it was run", self.said)
                self.assertIn("mismatched bytes: 7", (self.packed / "log.txt").read_text())

    def test_what_a_gpu_has_not_is_no_failure(self):
        self.fake("prebuilt/bin/pagestash", '[ "$5" = ldg ] || exit 4')
        self.first(0)
        self.assertEqual([self.steps[f"replay {b}"]["status"] for b in ("ldg", "bulk", "squeeze")],
                         ["passed", "unavailable", "unavailable"])
        self.assertEqual([self.steps[f"conformance {b}"]["status"] for b in ("ldg", "bulk", "squeeze")],
                         ["passed", "unavailable", "unavailable"])
        self.fake("prebuilt/bin/pagestash", "exit 4")
        self.first(1)
        self.assertEqual(list(self.steps)[-1], "replay ldg")
        self.fake("prebuilt/bin/example_01_stash_restore", "exit 4")
        self.first(1)
        self.assertEqual(list(self.steps)[-1], "example_01_stash_restore")

    def test_without_cublaslt_the_rest_is_tried(self):
        (self.folder / "path/ldconfig").unlink()
        self.first(0)
        self.assertEqual(self.steps["cublaslt"]["status"], "unavailable")
        for backend in ("ldg", "bulk", "squeeze"):
            self.assertIn(":Chaos/*:Linear/*.*Dense*:", self.steps[f"conformance {backend}"]["text"])

    def test_a_budget_that_spreads_does_not_end_it(self):
        self.fake("prebuilt/bin/pagestash-placement", 'echo "64 SMs, over the budget"; exit 1')
        self.assertEqual(self.first(1)["status"], "failed")
        self.assertEqual(list(self.steps), ORDER)
        self.assertEqual(self.steps["placement"]["status"], "failed")
        self.assertEqual(self.steps["placement"]["text"], "64 SMs, over the budget")

    def test_a_hang_is_cut_at_the_stage_limit(self):
        # it heeds no signal: only the kill ends it
        self.fake("prebuilt/bin/pagestash-placement", "trap '' TERM; echo begun; while :; do sleep 1; done")
        record = self.first(3, seconds=14)
        self.assertLess(self.took, 120)  # 14, and 5 to heed the signal; a busy machine is slow
        self.assertEqual(record["status"], "cut")
        self.assertEqual(list(self.steps), ORDER)
        self.assertRegex(self.steps["placement"]["text"],
                         "^took more than [0-9]+ s, which is what the stage had left$")
        self.assertEqual(self.steps["bench-bytes"]["text"], "not begun: the 14 s of the stage are over")
        self.assertIn("begun", (self.packed / "log.txt").read_text())

    def test_a_kill_loses_only_the_running_step(self):
        self.fake("prebuilt/bin/pagestash-placement", f"echo >{self.folder}/begun; exec sleep 30")
        with subprocess.Popen(self.command(str(self.folder / "out")), env=self.environment(),
                              stdout=subprocess.PIPE, start_new_session=True) as running:
            while not (self.folder / "begun").exists():
                time.sleep(0.01)
            os.killpg(running.pid, signal.SIGKILL)
        self.unpack("first")
        steps = (self.packed / "steps.txt").read_text().splitlines()
        self.assertEqual([line.split("\t")[0] for line in steps], ORDER[:6])

    def test_refusals(self):
        self.assertEqual(self.start()[0], 2)
        self.assertEqual(self.start("--help")[0], 2)
        self.assertEqual(self.start("out", "more")[0], 2)
        code, _, errors = self.start(str(self.folder / "out"), seconds=531)
        self.assertEqual((code, errors), (2, "gpu-first.sh: GPU_STAGE_SECONDS=531: at most 530\n"))
        (self.folder / "prebuilt/BUILD").unlink()
        self.assertIn("no prebuilt folder", self.start(str(self.folder / "out"))[2])
        self.fake("path/nvidia-smi", 'echo "No devices were found"; exit 6')
        self.assertEqual(self.start(str(self.folder / "out"))[0], 4)
        (self.folder / "path/nvidia-smi").unlink()
        self.assertEqual(self.start(str(self.folder / "out")),
                         (4, "", "gpu-first.sh: no GPU: there is no nvidia-smi on this machine\n"))

    def test_a_dry_run_runs_nothing(self):
        (self.folder / "path/nvidia-smi").unlink()
        for path in (self.folder / "prebuilt/bin").iterdir():
            self.fake(f"prebuilt/bin/{path.name}", f"echo >{self.folder}/ran")
        code, said, errors = self.start("--dry-run")
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual([re.sub(r"^planned +0 s  (.*?): .*", r"\1", line)
                          for line in said.splitlines()], ORDER[1:])
        self.assertFalse((self.folder / "ran").exists())
        (self.folder / "prebuilt/bin/pagestash-placement").unlink()
        code, said, _ = self.start("--dry-run")
        self.assertEqual(code, 1)
        self.assertRegex(said, "failed +0 s  placement: not there: .*pagestash-placement")


if __name__ == "__main__":
    main(GpuFirst, "gpu-first.sh")
