#!/usr/bin/env python3
"""Whether check_blocks.py notices blocks that do not work."""
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import check_blocks
from check_blocks import Count, Failure, blocks_of, check_page


def page(*lines):
    return "\n".join(lines) + "\n"


class CheckBlocks(unittest.TestCase):
    def run_page(self, text, *languages):
        source = pathlib.Path(__file__).resolve().parents[2]
        count = Count()
        with tempfile.TemporaryDirectory() as build:
            check_page(source, pathlib.Path(build), blocks_of("page.md", text), languages, count)
        return count

    def fails(self, text, language, wanted):
        count = self.run_page(text, language)
        self.assertEqual((len(count.failures), count.run.get(language)), (1, None))
        self.assertRegex(count.failures[0], wanted)

    def test_forms(self):
        for text, wanted in (
                (page("```", "ls", "```"), r"page.md:1: language ''"),
                (page("```bash", "ls", "```"), "language 'bash'"),
                (page("<!-- block: skipped: no -->", "```sh", "ls", "```"), "allowed is one of with, prints"),
                (page("<!-- block: not run: -->", "```sh", "ls", "```"), "allowed is one of"),
                (page("<!-- block: not run: slow -->", "words"), "a mark without its block"),
                (page("```sh", "ls"), "does not end")):
            with self.assertRaisesRegex(Failure, wanted):
                blocks_of("page.md", text)

    def test_commands_that_fail(self):
        self.fails(page("```sh", "false", "true", "```"), "sh", "^page.md:2: exit code 1")
        self.fails(page("```sh", "echo $nothing", "```"), "sh", "nothing")
        self.fails(page("<!-- block: prints: b | a -->", "```sh", "echo a b", "```"), "sh", "'a' is not printed")
        self.fails(page("```c", "int main(void) { return x; }", "```"), "c", "undeclared")
        self.fails(page("```csv", "a,b", "```"), "csv", "nothing reads it")
        self.fails(page("<!-- block: read by: grep c {} -->", "```csv", "a,b", "```"), "csv", "exit code 1")
        self.fails(page("```python", "x = 1", "```", "", "```python", "x + y", "```"), "python", "line 6, in <module>")

    def test_output(self):
        good = page("```sh", "echo a", "```", "prints", "```text", "a", "```")
        count = self.run_page(good, "sh", "text")
        self.assertEqual((count.run, count.compared, count.failures), ({"sh": 1, "text": 1}, 1, []))
        count = self.run_page(good.replace("\na\n", "\nb\n"), "sh", "text")
        self.assertIn("has printed\na", count.failures[0])

    def test_text_for_what_runs_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "page.md")
            path.write_text(page("make", "```sh", "make a", "```", "```sh", "make b", "make c", "```"), encoding="utf-8")
            self.assertEqual(check_blocks.text_of(path, "make c"), "make b\nmake c\n")
            for word, number in (("make", 2), ("make d", 0)):
                with self.assertRaisesRegex(Failure, f"page.md: {number} blocks have '{word}'"):
                    check_blocks.text_of(path, word)

    @mock.patch.dict(os.environ, {"PSTI_TEST_ALL_TOOLS": ""})
    def test_what_is_not_run(self):
        text = page("<!-- block: not run: slow -->", "```sh", "false", "```",
                    "<!-- block: needs: no_such -->", "```python", "```")
        count = self.run_page(text, "sh", "python")
        self.assertEqual(count.skipped, ["page.md:3: slow", "page.md:7: there is no no_such"])
        with tempfile.TemporaryDirectory() as source:
            (pathlib.Path(source) / "README.md").write_text(text, encoding="utf-8")
            self.assertEqual(check_blocks.main([source, source, "sh"]), 1)  # nothing has run
        os.environ["PSTI_TEST_ALL_TOOLS"] = "1"
        self.fails(page("<!-- block: needs: no_such -->", "```python", "import no_such", "```"), "python", "no_such")


if __name__ == "__main__":
    unittest.main()
