"""A folder of fakes in place of the GPU, the sanitizer, the profiler and the prebuilt binaries, and runs
of tools/gpu-*.sh among them."""
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

# the whole PATH, so that a real GPU, sanitizer or profiler is not found
TOOLS = ("basename cat cp cut dirname env grep gzip head mkdir mktemp mv rm sed sleep tail tar tee "
         "timeout").split()
WRITES = """echo "$*"
        for word; do case $word in --json=*) cat REPORT >"${word#--json=}" ;; esac; done"""
FAKES = {
    "path/nvidia-smi": """case $* in
        -L) echo "GPU 0: Fake GPU (UUID: none)" ;;
        *query-gpu=name*) echo "Fake GPU" ;;
        *query-gpu=driver_version*) echo 1.2.3 ;;
        '') echo "a table" ;;
        *) echo "refused: $*"; exit 9 ;;
        esac""",
    "path/ldconfig": 'echo "	libnccl.so.2 (libc6,x86-64) => /lib/libnccl.so.2"; '
                     'echo "	libcublasLt.so.13 (libc6,x86-64) => /lib/libcublasLt.so.13"',
    "path/compute-sanitizer": 'echo "========= ERROR SUMMARY: 0 errors"',
    "path/ncu": 'echo "$*"',
    "prebuilt/bin/pagestash": 'echo "$*"; echo "mismatched bytes: 0"',
    "prebuilt/bin/pagestash_tests": 'echo "$*"; [ "$PAGESTASH_REQUIRE_GPU" = 1 ]',
    "prebuilt/bin/example_01_stash_restore": 'echo "ran on ${1-auto}"; [ "$1" = cuda ]',
    "prebuilt/bin/example_02_graph_replay": 'echo "ran on ${1-auto}"; [ "$1" = cuda ]',
    "prebuilt/bin/pagestash-bench": WRITES,
    "prebuilt/bin/pagestash-schedule-bench": WRITES.replace("REPORT", "SCHEDULE"),
    "prebuilt/bin/pagestash-placement": WRITES.replace("REPORT", "SCHEDULE"),
}


class GpuTools(unittest.TestCase):
    source = None
    script = None  # gpu-NAME.sh
    patience = 240  # seconds of a run

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name in ("path", "prebuilt/bin", "prebuilt/data", "prebuilt/bench/peers"):
            (self.folder / name).mkdir(parents=True)
        for tool in TOOLS:
            (self.folder / "path" / tool).symlink_to(shutil.which(tool))
        (self.folder / "path/python3").symlink_to(sys.executable)
        for name, body in FAKES.items():
            self.fake(name, body.replace("REPORT", str(self.source / "tests/data/bench/goals.json"))
                      .replace("SCHEDULE", str(self.source / "tests/data/bench/schedule.json")))
        shutil.copy(self.source / "bench/goals.py", self.folder / "prebuilt/bench")
        shutil.copytree(self.source / "bench/common", self.folder / "prebuilt/bench/common")
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

    def command(self, *arguments):
        return [shutil.which("bash"), str(self.source / "tools" / self.script), *arguments]

    def environment(self, seconds=None):
        limit = {"GPU_STAGE_SECONDS": str(seconds)} if seconds else {}
        return {"PATH": f"{self.folder}/path", "PREBUILT": f"{self.folder}/prebuilt",
                "MEGATRON_OPS": "/mine.py", **limit}

    def start(self, *arguments, seconds=None):
        """Exit code, stdout, stderr; self.took is how long it took."""
        begin = time.monotonic()
        result = subprocess.run(self.command(*arguments), text=True, capture_output=True, timeout=self.patience,
                                env=self.environment(seconds), check=False)
        self.took = time.monotonic() - begin
        return result.returncode, result.stdout, result.stderr

    def stage(self, code, name, *arguments, seconds=None):
        """Runs a stage into the folder out, and unpacks its one file. Its record; self.steps has the
        steps by name, self.said the lines that it printed."""
        out = self.folder / "out"
        got, said, errors = self.start(str(out), *arguments, seconds=seconds)
        self.assertEqual((got, errors), (code, ""), said)
        self.said = said.splitlines()
        self.unpack(name)
        self.assertEqual((self.packed / "summary.txt").read_text(),
                         (out / f"{name}-summary.txt").read_text())
        record = json.loads((self.packed / f"{name}.json").read_text())
        self.assertEqual(record["stage"], name)
        self.steps = {step["step"]: step for step in record["details"]["steps"]}
        return record

    def unpack(self, name):
        self.packed = self.folder / "packed"
        shutil.rmtree(self.packed, ignore_errors=True)
        with tarfile.open(self.folder / "out" / f"{name}.tar.gz") as file:
            file.extractall(self.packed)


def main(case, script):
    GpuTools.source = pathlib.Path(sys.argv.pop(1)).resolve()
    case.script = script
    unittest.main(module="__main__")
