#!/usr/bin/env python3
"""The package as a whole: what importing it costs, and that its version is the library's and the headers'."""
import os
import re
import subprocess
import sys
import unittest

import pagestash

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class Package(unittest.TestCase):
    def test_version_is_the_headers(self):
        with open(os.path.join(ROOT, "include", "pagestash", "api.h"), encoding="utf-8") as file:
            numbers = re.findall(r"#define PST_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read())
        self.assertEqual(pagestash.__version__, ".".join(numbers))

    def test_another_version_of_the_library_is_refused(self):
        script = ("from pagestash import _abi; import sys; _abi.PST_VERSION = 10203; "
                  "sys.modules.pop('pagestash._c'); import pagestash._c")
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False)
        self.assertRegex(done.stderr, r"ImportError: .*is version [\d.]+, and this package 1\.2\.3")

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
