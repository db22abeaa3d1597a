#!/usr/bin/env python3
"""The package as a whole: what importing it costs, and that its version is the library's and the headers'."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

import pagestash

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Package(unittest.TestCase):
    def test_version_is_the_headers(self):
        with open(os.path.join(ROOT, "include", "pagestash", "api.h"), encoding="utf-8") as file:
            numbers = re.findall(r"#define PST_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read())
        self.assertEqual(pagestash.__version__, ".".join(numbers))

    # Fault rows 70.
    def test_another_version_of_the_library_is_refused(self):
        script = ("from pagestash import _abi; import sys; _abi.PST_VERSION = 10203; "
                  "sys.modules.pop('pagestash._c'); import pagestash._c")
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False)
        self.assertRegex(done.stderr, r"ImportError: .*is version [\d.]+, and this package 1\.2\.3")

    # Fault rows 70.
    def test_what_is_no_library_is_refused_with_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            text, narrow = os.path.join(folder, "text.so"), os.path.join(folder, "narrow.so")
            with open(text, "w", encoding="ascii") as file:
                file.write("no library\n")
            with open(pagestash.get_library(), "rb") as file:
                head = bytearray(file.read(4096))
            head[4] = 1  # ELFCLASS32
            with open(narrow, "wb") as file:
                file.write(head)
            for path, reason in ((os.path.join(folder, "absent.so"), "No such file"), (folder, "directory"),
                                 (text, "invalid ELF header|file too short"), (narrow, "wrong ELF class")):
                done = subprocess.run([sys.executable, "-c", "import pagestash._c"], text=True, capture_output=True,
                                      check=False, env={**os.environ, "PAGESTASH_LIBRARY": path})
                self.assertRegex(done.stderr.splitlines()[-1], f"^ImportError: pagestash: cannot load {path}: "
                                 f".*({reason}).*; PAGESTASH_LIBRARY may name the libpagestash.so of a build")
            done = subprocess.run([sys.executable, "-c", "import pagestash._c"], text=True, capture_output=True,
                                  check=False, env={**os.environ, "PAGESTASH_LIBRARY": "libc.so.6"})
            self.assertRegex(done.stderr, "ImportError: pagestash: libc.so.6 has no pst_")

    def test_for_extensions(self):
        self.assertTrue(os.path.exists(os.path.join(pagestash.get_include(), "pagestash", "api.h")))
        self.assertTrue(os.path.exists(pagestash.get_library()))

    def test_import_is_cheap(self):
        """Neither torch nor numpy nor matplotlib: `import pagestash` is for scripts, too."""
        script = ("import sys, pagestash; "
                  "print(*{'torch', 'numpy', 'matplotlib', 'subprocess'} & set(sys.modules))")
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=True)
        self.assertEqual(done.stdout.strip(), "")


if __name__ == "__main__":
    unittest.main()
