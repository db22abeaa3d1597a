#!/usr/bin/env python3
"""torch.ops.pagestash.*: opcheck, inductor, both kinds of kernels, what the binary links, and good and bad
calls under AddressSanitizer."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from common.needs import absent, main, needs, skip_test

if not absent("torch"):
    import torch
    import torch.nn.functional as F
    from common import ops as helper
    from common.ops import CAPACITY, CompiledCase, garbage, LIVE, rows, taken
    import pagestash
    from pagestash import build_ops
    helper.use_binary()
    from pagestash.torch import ops
    kernels = torch.ops.pagestash
else:
    CompiledCase = unittest.TestCase

QUICK = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "quick")


def run(file, **environment):
    """Runs a file of tests in a process of its own."""
    done = subprocess.run([sys.executable, file], env={**os.environ, **environment}, text=True,
                          capture_output=True, timeout=250, check=False)
    return done.returncode, done.stdout + done.stderr


def compiler_path(name):
    """Of a library of the compiler's."""
    return subprocess.run(["g++", "-print-file-name=" + name], text=True, capture_output=True,
                          check=True).stdout.strip()


@needs("torch")
class Checked(CompiledCase):
    """opcheck runs an operator several times, each with the arguments of the first."""

    def test_stash(self):
        # Ids of tickets differ from run to run, and that is all that may.
        torch.library.opcheck(kernels.stash, ([rows(CAPACITY, 8)] * 2, self.counts, self.handle, CAPACITY),
                              rtol=1.0, atol=2.0 ** 62)

    def test_restore(self):
        token = ops.stash([rows(CAPACITY, 8)], self.counts, self.pool, capacity=CAPACITY)
        torch.library.opcheck(kernels.restore, (token, [garbage(rows(CAPACITY, 8))], self.handle, 0, True))

    def test_release(self):
        token = ops.stash([rows(CAPACITY, 8)], self.counts, self.pool, capacity=CAPACITY)
        torch.library.opcheck(kernels.release, (token,),
                              test_utils=("test_autograd_registration", "test_faketensor"))

    def test_swiglu(self):
        x = rows(CAPACITY, 8).requires_grad_()
        # Its backward is compared with a compiled one, which torch 2.9 rounds in another way.
        torch.library.opcheck(kernels.swiglu, (x, self.counts, self.handle), rtol=1e-5, atol=1e-5)
        slabs = rows(2, 32, 8, dtype=torch.bfloat16).requires_grad_()
        torch.library.opcheck(kernels.swiglu, (slabs, torch.tensor([3, 9]), self.handle, 2),
                              rtol=0.02, atol=0.01)

    def test_glu(self):
        x, p = rows(CAPACITY, 8).requires_grad_(), rows(CAPACITY).requires_grad_()
        for pool in (0, self.handle):
            torch.library.opcheck(kernels.glu, (x, self.counts, p, pool))
        slabs = rows(2, 32, 8, dtype=torch.bfloat16).requires_grad_()
        torch.library.opcheck(kernels.glu, (slabs, torch.tensor([3, 9]), None, self.handle, "geglu", 2))


@needs("torch")
class Inductor(CompiledCase):
    """Equal to what inductor makes of torch's own operators: it rounds unlike eager torch."""

    def gradients(self, function, x):
        leaf = x.clone().requires_grad_()
        y = torch.compile(function, backend="inductor", fullgraph=True)(leaf)
        torch.where(torch.arange(CAPACITY)[:, None] < LIVE, y, 0).square().sum().backward()
        return y.detach()[:LIVE], leaf.grad[:LIVE]

    def test_swiglu(self):
        def plain(x):
            gate, up = x.sin().chunk(2, -1)
            return F.silu(gate) * up

        for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
            x = rows(CAPACITY, 32, dtype=dtype)
            got = self.gradients(lambda x: kernels.swiglu(x.sin(), self.counts, self.handle), x)
            self.assertEqual(taken(self.pool), 0)
            for mine, theirs in zip(got, self.gradients(plain, x)):
                torch.testing.assert_close(mine, theirs, rtol=error, atol=error)

    def test_destinations_are_inductor_s(self):
        def paged(x):
            tokens = [kernels.stash([x * i], self.counts, self.handle, CAPACITY) for i in (1, 2, 3)]
            out = torch.empty_like(x)
            total = torch.zeros_like(x)
            for token in tokens:
                kernels.restore(token, [out], self.handle)
                total = total + out
            return total

        x = rows(CAPACITY, 16)
        got = torch.compile(paged, backend="inductor", fullgraph=True)(x)
        torch.testing.assert_close(got[:LIVE], 6 * x[:LIVE])
        self.assertEqual(got[LIVE:].abs().sum(), 0)


@needs("torch")
class Binary(unittest.TestCase):
    def setUp(self):
        if ops.kind != "stable":
            skip_test(f"no binary: {ops.why_python}")
        self.path = os.environ["PAGESTASH_OPS"]

    def test_symbols_are_of_the_stable_interface(self):
        if not shutil.which("nm"):
            skip_test("no nm")
        listed = subprocess.run(["nm", "-D", "--undefined-only", self.path], text=True, capture_output=True,
                                check=True).stdout
        names = [line.split()[-1].partition("@")[0] for line in listed.splitlines()]
        of_torch = [name for name in names if re.search(r"torch|c10|aten|2at", name)]
        self.assertTrue(of_torch)
        for name in of_torch:
            self.assertRegex(name, r"^(aoti_torch|torch)_[a-z0-9_]+$")
        self.assertEqual([name for name in names if name.startswith("pst_")], [])
        needed = subprocess.run(["readelf", "-d", self.path], text=True, capture_output=True,
                                check=True).stdout
        self.assertNotIn("pagestash", "\n".join(re.findall(r"NEEDED.*", needed)))

    def test_command(self):
        """Another folder; where none can be written a cache; the compiler's words; a stale binary."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-m", "pagestash.build_ops", folder], text=True,
                                  capture_output=True, check=True)
            self.assertEqual(done.stdout.strip(), os.path.join(folder, build_ops.NAME))
            done = subprocess.run([sys.executable, "-m", "pagestash.build_ops", folder], text=True,
                                  capture_output=True, check=False,
                                  env={**os.environ, "CXX": "no-such-compiler"})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("cannot run no-such-compiler", done.stderr)
            with self.assertRaisesRegex(pagestash.Error, "no-such-header"):
                build_ops.build(folder, flags=("-include", "no-such-header"))
            self.assertEqual(os.listdir(folder), [build_ops.NAME])
            wrong = os.path.join(folder, "wrong.so")
            shutil.copy(pagestash.get_library(), wrong)
            done = subprocess.run([sys.executable, "-c", "import pagestash.torch.ops"], text=True,
                                  capture_output=True, check=False,
                                  env={**os.environ, "PAGESTASH_OPS": wrong})
            self.assertIn("run python -m pagestash.build_ops", done.stderr)

    def test_found_in_the_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {name: value for name, value in os.environ.items() if name != "PAGESTASH_OPS"}
            environment["XDG_CACHE_HOME"] = folder
            script = ("import os, shutil; from pagestash import build_ops; "
                      "os.makedirs(build_ops.cache_folder()); "
                      f"shutil.copy({self.path!r}, build_ops.cache_folder()); "
                      "from pagestash.torch import ops; print(ops.kind)")
            done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                                  check=True, env=environment)
            self.assertEqual(done.stdout.strip(), "stable")

    def test_without_headers(self):
        """The cache's binary cannot be told then: the operators in Python serve, unless others were asked
        for."""
        script = ("import sys, pagestash.build_ops as b; from pagestash import Error\n"
                  "def none(): raise Error('there are no headers')\n"
                  "b.get_include = none\n"
                  "from pagestash.torch import ops, Stash\n"
                  "Stash('cpu', pages=4); print(ops.kind, ops.why_python)")
        for path, said in ((None, "python there are no headers"), (self.path, "stable")):
            environment = {name: value for name, value in os.environ.items() if name != "PAGESTASH_OPS"}
            if path:
                environment["PAGESTASH_OPS"] = path
            done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True,
                                  check=True, env=environment)
            self.assertEqual(done.stdout.strip(), said)

    def test_under_address_sanitizer(self):
        folder = os.environ.get("PSTI_TEST_BUILD") or tempfile.gettempdir()
        folder = os.path.join(folder, "python-ops", "asan-" + build_ops.key())
        path = os.path.join(folder, build_ops.NAME)
        if not os.path.exists(path):
            build_ops.build(folder, flags=("-fsanitize=address,undefined", "-fno-sanitize-recover", "-g", "-O1"))
        preload = " ".join(map(compiler_path, ("libasan.so", "libubsan.so", "libstdc++.so")))
        code, text = run(os.path.join(QUICK, "test_ops.py"), PAGESTASH_OPS=path, LD_PRELOAD=preload,
                         ASAN_OPTIONS="detect_leaks=0")
        self.assertEqual(code, 0, text[-4000:])
        self.assertNotIn("Sanitizer", text)
        script = ("import ctypes; from pagestash.torch import ops; assert ops.kind == 'stable'; "
                  "ctypes.CDLL(None).free(ctypes.c_void_p(16))")
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False,
                              env={**os.environ, "PAGESTASH_OPS": path, "LD_PRELOAD": preload,
                                   "ASAN_OPTIONS": "detect_leaks=0"})
        self.assertIn("AddressSanitizer", done.stderr)  # it was there and awake


@needs("torch")
class Python(unittest.TestCase):
    """The kernels in Python do what those in C++ do."""

    def test_both_files(self):
        compiled = os.path.join(os.path.dirname(__file__), "test_ops_compile.py")
        for path in (os.path.join(QUICK, "test_ops.py"), compiled):
            code, text = run(path, PAGESTASH_OPS="python")
            self.assertEqual(code, 0, text[-4000:])


if __name__ == "__main__":
    main()
