"""What becomes of tests whose needs are absent: skipped, exit code 77 where a file runs alone, failed in CI."""
import os
import subprocess
import sys
import tempfile
import unittest

FILES = {
    "decorated": "@needs.needs('no_such_module')\nclass T(unittest.TestCase):\n    def test(self): pass\n",
    "module": "needs.skip('nothing here')\n",
    "half": "class T(unittest.TestCase):\n    def test(self): pass\n"
            "    @needs.needs('no_such_module')\n    def test_skipped(self): pass\n",
    "failing": "class T(unittest.TestCase):\n    def test(self): self.fail()\n"}


class Needs(unittest.TestCase):
    def codes(self, all_tools):
        """Exit codes of the files, each by itself."""
        out = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                path = os.path.join(folder, f"test_{name}.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"import unittest\nfrom common import needs\n{text}needs.main()\n")
                environment = {**os.environ, "PSTI_TEST_ALL_TOOLS": all_tools,
                               "PYTHONPATH": os.pathsep.join(sys.path)}
                out[name] = subprocess.run([sys.executable, path], capture_output=True, check=False,
                                           env=environment).returncode
        return out

    def test_exit_codes(self):
        self.assertEqual(self.codes(""), {"decorated": 77, "module": 77, "half": 0, "failing": 1})
        self.assertEqual(self.codes("1"), {"decorated": 1, "module": 1, "half": 1, "failing": 1})


if __name__ == "__main__":
    unittest.main()
