"""The stages of tools/gpu-check.sh that run torch, from the package, on the pretended GPU of common/pretended.py.
torch's kernels do nothing, and what loops over their results need not end: each process ends at one of its first
launches."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from common import pretended

pretended.start()  # makes its libraries, or skips

SOURCE = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["PSTI_TEST_BUILD"])

# Of every Python behind it: torch finds the pretended GPU. What the package brings is imported from there.
START = """
import sys
sys.path[:0] = [{tests!r}, {package!r}]
from common import pretended
pretended.start()
del sys.path[:2]
for name in [name for name in sys.modules if name.split(".")[0] in ("common", "pagestash")]:
    del sys.modules[name]
"""
# Only sizes differ from what runs on a GPU.
PYTHON = """#!/bin/bash
folders={site}
case ${{1-}} in
*/gpu-train.py) set -- "$@" --quick ;;
*/gpu-memo.py) set -- "$@" --sequences 64 --layers 2 --hidden 32 --heads 2 ;;
*/run.py) folders+=:{triton} && set -- "$@" --quick --anchor-bytes 1MiB ;;
*) exec "{python}" "$@" ;;
esac
PYTHONPATH=$folders exec "{python}" "$@"
"""
# A kernel is launched where Triton would launch one.
TRITON = """
def cdiv(a, b):
    return -(-a // b)
class jit:
    def __init__(self, function):
        pass
    def __getitem__(self, grid):
        return lambda to, *_, **__: to.mul_(2)
"""
NVIDIA_SMI = """#!/bin/bash
case $* in -L) echo "GPU 0: pretended" ;; *name*) echo pretended ;; *) echo 1.2.3 ;; esac
"""


class Stages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        cls.package = cls.folder / "package"
        programs = cls.folder / "programs"
        programs.mkdir()
        for name in ("pagestash", "libpagestash.so"):
            (programs / name).symlink_to(BUILD / "tests/rehearsal" / name)
        subprocess.run([SOURCE / "tools/gpu-package.sh", "--from", programs, cls.package], check=True)
        for name in ("path", "site", "peers/triton"):
            (cls.folder / name).mkdir(parents=True)
        cls.script("path/python3", PYTHON.format(
            python=sys.executable, site=cls.folder / "site", triton=cls.folder / "peers"))
        cls.script("path/nvidia-smi", NVIDIA_SMI)
        cls.script("site/sitecustomize.py",
                   START.format(tests=str(SOURCE / "tests/python"), package=str(cls.package / "python")))
        cls.script("peers/triton/__init__.py", TRITON)
        cls.script("peers/triton/language.py", "constexpr = int\n")

    @classmethod
    def script(cls, name, text):
        path = cls.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def stage(self, name, launch):
        """Runs it until each process has made so many launches: the text of its step, and its log."""
        out = self.folder / "out"
        environment = {**os.environ, "PATH": f"{self.folder}/path:{os.environ['PATH']}",
                       "PRETENDED_LEAVE_AT": str(launch),
                       "PAGESTASH_LIBRARY": str(self.package / "bin/libpagestash.so")}
        environment.pop("PYTHONPATH")
        done = subprocess.run([self.package / "gpu-check.sh", out, name], text=True, capture_output=True, timeout=500,
                              env=environment, check=False)
        log = subprocess.run(["tar", "-xzOf", out / f"{name}.tar.gz", "./log.txt"], text=True, capture_output=True,
                             check=True).stdout
        self.assertEqual(done.returncode, 1, log)
        return done.stdout, log

    def came_to(self, log, launch, times):
        said = re.findall(r"^pretended GPU: reached launch (\d+); allocations: (\d+), bytes: (\d+)$", log,
                          re.MULTILINE)
        self.assertEqual([int(one[0]) for one in said], times * [launch], log)
        for _, allocations, num_bytes in said:
            self.assertGreater(int(allocations), 0)
            self.assertGreater(int(num_bytes), 0)

    def test_train(self):
        said, log = self.stage("train", 10)
        self.came_to(log, 10, 1)
        self.assertIn("train: eager: pretended GPU: reached launch 10", said)

    def test_memo(self):
        said, log = self.stage("memo", 10)
        self.came_to(log, 10, 5)
        for variant in ("checkpoint", "nothing", "save_on_cpu", "swap", "auto"):
            self.assertIn(f"{variant}, 64 tokens: pretended GPU: reached launch 10", log)
        self.assertIn("failed", said)

    def test_peers(self):
        said, log = self.stage("peers", 3)
        self.came_to(log, 3, 1)
        self.assertIn("peers: pretended GPU: reached launch 3", said)

    def test_what_never_comes_there_says_something_else(self):
        (self.package / "gpu-train.py").rename(self.package / "gone.py")
        self.addCleanup((self.package / "gone.py").rename, self.package / "gpu-train.py")
        said, log = self.stage("train", 10)
        self.came_to(log, 10, 0)
        self.assertIn("gpu-train.py", said)


if __name__ == "__main__":
    unittest.main()
