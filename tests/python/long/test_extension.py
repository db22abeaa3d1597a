"""examples/torch_extension, built against this source tree: bit-equal, and bad input under AddressSanitizer.
test_wheel.py builds it against the wheel."""
import os
import subprocess
import sys
import tempfile
import unittest

from common import extension
from common.needs import from_torch, main, needs


def library_of_compiler(name):
    return subprocess.run(["g++", "-print-file-name=" + name], text=True, capture_output=True,
                          check=True).stdout.strip()


@needs("torch", "setuptools")
@from_torch(2, 10, what="torch's stable interface")
class Extension(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def test_as_an_author_builds_it(self):
        folder = extension.build(self.folder, dict(os.environ), "-Wextra -Werror")
        code, text = extension.run(folder, dict(os.environ))
        print(text)
        self.assertEqual((code, text.splitlines()[-1]), (0, "everything as it should be"))

    def test_under_address_sanitizer(self):
        folder = extension.build(self.folder, dict(os.environ),
                                 "-fsanitize=address,undefined -fno-sanitize-recover=all -O1")
        sanitized = {
            "LD_PRELOAD": " ".join(map(library_of_compiler, ("libasan.so", "libubsan.so", "libstdc++.so"))),
            "ASAN_OPTIONS": "detect_leaks=0"}
        code, text = extension.run(folder, os.environ | sanitized)
        self.assertEqual((code, text.splitlines()[-1]), (0, "everything as it should be"), text[-4000:])
        self.assertNotIn("Sanitizer", text)
        with open(os.path.join(folder, "layer_pages.so"), "rb") as file:
            self.assertIn(b"__asan_report_load", file.read())
        script = "import ctypes; ctypes.CDLL(None).free(ctypes.c_void_p(16))"
        done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, check=False,
                              env=os.environ | sanitized)
        self.assertIn("AddressSanitizer", done.stderr)  # it is awake


if __name__ == "__main__":
    main()
