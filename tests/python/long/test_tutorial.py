"""docs/moe-layer.md: its blocks, one after the other, as one program. They compare gradients themselves."""
import os
import pathlib
import re
import tempfile
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common.needs import from_torch  # noqa: E402  pylint: disable=wrong-import-position

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/moe-layer.md"
STEPS = ("The plain layer", "Static buffers", "Pages", "Captured", "Overlapped")


def blocks():
    """The code, each block at the lines that it has in the page, so that errors name those."""
    lines, inside = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = "```"
        lines.append(line if inside and line != "```" else "")
    return "\n".join(lines) + "\n"


class Tutorial(unittest.TestCase):
    def test_has_its_five_steps(self):
        headings = re.findall(r"^## (\d)\. (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(headings, [(str(number + 1), name) for number, name in enumerate(STEPS)])

    @from_torch(2, 10, what="torch.nn.functional.grouped_mm")
    def test_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "moe-layer.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(blocks())
            done = subprocess.run([sys.executable, "-W", "error", path], text=True, capture_output=True,
                                  timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        kept, pages = map(int, re.findall(r"\d+", done.stdout))
        self.assertLess(pages, kept)


if __name__ == "__main__":
    unittest.main()
