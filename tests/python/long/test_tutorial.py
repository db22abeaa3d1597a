"""docs/moe-layer.md and docs/memo.md: their blocks, one after the other, as one program each. They compare
what is computed themselves."""
import os
import pathlib
import re
import tempfile
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from common.needs import from_torch  # noqa: E402  pylint: disable=wrong-import-position

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "moe-layer.md"
STEPS = ("The plain layer", "Static buffers", "Pages", "Captured", "Overlapped")


def blocks(page):
    """The code, each block at the lines that it has in the page, so that errors name those."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = "```"
        lines.append(line if inside and line != "```" else "")
    return "\n".join(lines) + "\n"


class Tutorial(unittest.TestCase):
    def test_has_its_five_steps(self):
        headings = re.findall(r"^## (\d)\. (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(headings, [(str(number + 1), name) for number, name in enumerate(STEPS)])

    def output(self, page):
        """What its program prints."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, page.stem + ".py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(blocks(page))
            done = subprocess.run([sys.executable, "-W", "error", path], text=True, capture_output=True,
                                  timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @from_torch(2, 10, what="torch.nn.functional.grouped_mm")
    def test_runs(self):
        kept, pages = map(int, re.findall(r"\d+", self.output(PAGE)))
        self.assertLess(pages, kept)

    def test_memo_runs(self):
        first, second = self.output(DOCS / "memo.md").splitlines()
        host, buffers = map(int, re.findall(r"\d+", first))
        self.assertLess(host, buffers)
        self.assertIn("what surrounds its attention is not token-wise", second)


if __name__ == "__main__":
    unittest.main()
