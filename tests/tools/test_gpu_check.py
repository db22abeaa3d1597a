#!/usr/bin/env python3
"""test_gpu_check.py SOURCE_DIR: tools/gpu-check.sh with a folder of fakes in place of the GPU, the
sanitizer and the prebuilt binaries."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

source = None
TOOLS = "basename cat cp dirname env grep head mkdir mktemp rm sed tail tee timeout".split()
FAKES = {
    "path/nvidia-smi": """case $* in
        -L) echo "GPU 0: Fake GPU (UUID: none)" ;;
        *query-gpu=name*) echo "Fake GPU" ;;
        *query-gpu=driver_version*) echo 1.2.3 ;;
        esac""",
    "path/ldconfig": 'echo "	libnccl.so.2 (libc6,x86-64) => /lib/libnccl.so.2"',
    "path/compute-sanitizer": 'echo "========= ERROR SUMMARY: 0 errors"',
    "prebuilt/bin/pagestash": 'echo "$*"; echo "mismatched bytes: 0"',
    "prebuilt/bin/pagestash_tests": 'echo "$*"; [ "$PAGESTASH_REQUIRE_GPU" = 1 ]',
    "prebuilt/bin/example_01_stash_restore": "echo done",
    "prebuilt/bin/pagestash-bench": """echo "$*"
        for word; do case $word in --json=*) cat REPORT >"${word#--json=}" ;; esac; done""",
    "prebuilt/bin/pagestash-schedule-bench": """echo "$*"
        for word; do case $word in --json=*) cat SCHEDULE >"${word#--json=}" ;; esac; done""",
}


class GpuCheck(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name in ("path", "prebuilt/bin", "prebuilt/data", "prebuilt/bench/peers"):
            (self.folder / name).mkdir(parents=True)
        # the whole PATH, so that a real GPU or sanitizer is not found
        for tool in TOOLS:
            (self.folder / "path" / tool).symlink_to(shutil.which(tool))
        (self.folder / "path/python3").symlink_to(sys.executable)
        for name, body in FAKES.items():
            self.fake(name, body.replace("REPORT", str(source / "tests/data/bench/goals.json"))
                      .replace("SCHEDULE", str(source / "tests/data/bench/schedule.json")))
        shutil.copy(source / "bench/goals.py", self.folder / "prebuilt/bench")
        shutil.copytree(source / "bench/common", self.folder / "prebuilt/bench/common")
        (self.folder / "prebuilt/BUILD").write_text("commit=abc123\ntoolkit=13.0.0\n")
        self.peers("print(*sys.argv[1:])\nopen(sys.argv[1][7:], 'w').write('{}')")
        for name in ("train", "memo"):
            self.trainer(name, "print(os.environ['PAGESTASH_LIBRARY'])\n"
                               f"open(sys.argv[1] + '/{name}-report.json', 'w').write('{{}}')")

    def fake(self, name, body):
        path = self.folder / name
        path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        path.chmod(0o755)

    def peers(self, body):
        (self.folder / "prebuilt/bench/peers/run.py").write_text(f"import sys\n{body}\n")

    def trainer(self, name, body):
        (self.folder / f"prebuilt/gpu-{name}.py").write_text(f"import os, sys\n{body}\n")

    def check(self, code, *arguments):
        """What stderr says, or each stage's record with its steps by name."""
        out = self.folder / "out"
        result = subprocess.run(
            [shutil.which("bash"), source / "tools/gpu-check.sh", out, *arguments], text=True,
            capture_output=True, timeout=120, env={"PATH": f"{self.folder}/path", "PREBUILT":
                f"{self.folder}/prebuilt", "MEGATRON_OPS": "/mine.py"})
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        if code > 1:
            self.assertEqual(len(result.stderr.splitlines()), 1)
            return result.stderr
        self.assertEqual(result.stdout, (out / "summary.txt").read_text())
        records = [json.loads(path.read_text()) for path in out.glob("*.json")]
        return {record["stage"]: (record["status"],
                                  {s["step"]: s for s in record["details"]["steps"]}, record)
                for record in records if "stage" in record}

    def test_refusals(self):
        self.assertIn("usage", self.check(2, "everything"))
        self.fake("path/nvidia-smi", 'echo "No devices were found"; exit 6')
        self.assertIn("no GPU", self.check(4))

    def test_everything_passes(self):
        stages = self.check(0, "all")
        self.assertEqual({name: stage[0] for name, stage in stages.items()}, dict.fromkeys(
            ("correct", "sanitize", "bench", "host", "schedule", "peers", "train", "memo"),
            "passed"))
        record = stages["correct"][2]
        self.assertEqual([record[key] for key in ("machine", "driver", "toolkit", "commit")],
                         ["Fake GPU", "1.2.3", "13.0.0", "abc123"])
        steps = stages["correct"][1]
        self.assertIn("*/cuda.*", steps["conformance"]["text"])
        self.assertIn("OneRank", steps["nccl"]["text"])
        self.assertLessEqual({"replay spill", "replay grow", "example_01_stash_restore"},
                             set(steps))
        self.assertEqual(len(stages["sanitize"][1]), 8)
        steps = stages["bench"][1]
        self.assertEqual(list(steps), ["bytes", "num_sms", "pages", "shapes", "beside"])
        self.assertEqual(stages["bench"][2]["details"]["reports"],
                         [f"bench-{name}.json" for name in steps])
        self.assertIn("--sweep host ", stages["host"][1]["host"]["text"])
        self.assertEqual(list(stages["schedule"][1]),
                         ["schedule-64MiB", "schedule-256MiB", "schedule-1GiB"])
        self.assertIn("--live 1GiB ", stages["schedule"][1]["schedule-1GiB"]["text"])
        self.assertIn("S1  ns of a hook", (self.folder / "out/bench-schedule-64MiB.txt").read_text())
        self.assertIn("--megatron-ops /mine.py", stages["peers"][1]["peers"]["text"])
        for name in ("train", "memo"):
            self.assertIn("prebuilt/bin/libpagestash.so", stages[name][1][name]["text"])
            self.assertEqual(stages[name][2]["details"]["reports"], [f"{name}-report.json"])
        self.assertIn("G1  share of A0", (self.folder / "out/bench-bytes.txt").read_text())

    def test_failures_are_told_apart(self):
        self.fake("prebuilt/bin/pagestash", 'echo "mismatched bytes: 7"; exit 1')
        self.fake("prebuilt/bin/pagestash-bench",
                  'case $* in *num_sms*) echo "1 bytes differ"; exit 1 ;; esac')
        self.fake("path/compute-sanitizer", """case $* in
            *racecheck*) echo "========= Error: No attachable process found."; exit 1 ;;
            *memcheck*"--error-exitcode 86 "*) echo "=== ERROR SUMMARY: 3 errors"; exit 86 ;;
            *) echo "========= ERROR SUMMARY: 0 errors" ;;
            esac""")
        self.peers("sys.exit(print('run.py: torch is not installed', file=sys.stderr) or 4)")
        self.trainer("train", "sys.exit(print('gpu-train.py: torch has no CUDA', file=sys.stderr) or 4)")
        self.trainer("memo", "sys.exit(print('swap: losses differ') or 1)")
        stages = self.check(1, "all")
        self.assertEqual({name: stage[0] for name, stage in stages.items()}, {
            "correct": "failed", "sanitize": "failed", "bench": "failed", "host": "passed",
            "schedule": "passed", "peers": "unavailable", "train": "unavailable", "memo": "failed"})
        self.assertEqual(stages["memo"][1]["memo"]["text"], "swap: losses differ")
        self.assertIn("no CUDA", stages["train"][1]["train"]["text"])
        self.assertEqual(stages["correct"][1]["replay"]["text"], "mismatched bytes: 7")
        self.assertEqual(stages["correct"][1]["conformance"]["status"], "passed")
        self.assertEqual(stages["bench"][1]["num_sms"]["text"], "1 bytes differ")
        self.assertEqual(stages["bench"][1]["beside"]["status"], "passed")
        steps = stages["sanitize"][1]
        self.assertIn("3 errors", steps["memcheck example"]["text"])
        self.assertEqual(steps["racecheck example"]["status"], "unavailable")

    def test_quick_is_the_default(self):
        (self.folder / "path/ldconfig").unlink()
        stages = self.check(0)
        self.assertEqual(set(stages), {"correct", "bench"})
        self.assertEqual(list(stages["bench"][1]), ["quick"])
        self.assertEqual(stages["correct"][1]["nccl"]["status"], "unavailable")


if __name__ == "__main__":
    source = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
