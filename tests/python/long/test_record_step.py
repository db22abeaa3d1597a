"""The planner's instance W is what bench/python/record_step.py records with this torch."""
import pathlib
import subprocess
import sys
import unittest

from common import pretended

pretended.start()

ROOT = pathlib.Path(__file__).resolve().parents[3]


class RecordStep(unittest.TestCase):
    def test_the_file_is_a_recording(self):
        """Byte for byte, 96 layers."""
        result = subprocess.run([sys.executable, ROOT / "bench/python/record_step.py"], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, (ROOT / "bench/plan/gpt-l96-step.csv").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
