#!/usr/bin/env python3
"""Documents about the API as a whole: test_api_documents.py SOURCE_DIR. docs/troubleshooting.md has an entry for
every status and fault, and no other; docs/which-call.md names public calls alone, each in its header, and every
header with a call in it."""
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv[1])
HEADERS = {path.name: path.read_text() for path in (SOURCE / "include/pagestash").glob("*.h")}


def listed(header, name):
    body = re.search(rf"#define {name}\(X\)((?:[^\n]*\\\n)+[^\n]*)", HEADERS[header])[1]
    return re.findall(r"X\((\w+),", body)


def entries(text):
    """Name and text of each entry."""
    return re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", text, re.S | re.M)


def missing_entries(text):
    wanted = listed("status.h", "PST_STATUS_LIST") + listed("pool.h", "PST_FAULT_LIST")
    found = [name for name, body in entries(text) if len(body.split()) >= 5]
    return [name for name in wanted if found.count(name) != 1], [name for name in found if name not in wanted]


def wrong_calls(text):
    for cells in re.findall(r"^\| ([^|]+) \| ([^|]+) \| (\w+\.h) \|$", text, re.M):
        for name in re.findall(r"`((?:pst|PST)_\w+)(?:\.(\w+))?`?", cells[1]):
            if not all(re.search(rf"\b{part}\b", "".join(HEADERS.values())) for part in name if part):
                yield f"{cells[0]}: no {name[0]} {name[1]}"
            elif name[1] and not all(re.search(rf"\b{part}\b", HEADERS[cells[2]]) for part in name):
                yield f"{cells[0]}: {name[0]}.{name[1]} is not in {cells[2]}"
        if not any(re.search(rf"\b{name}\b", HEADERS[cells[2]]) for name in re.findall(r"pst_\w+", cells[1])):
            yield f"{cells[0]}: nothing of it is in {cells[2]}"


class DocumentsTest(unittest.TestCase):
    def test_troubleshooting_has_every_status_and_fault(self):
        text = (SOURCE / "docs/troubleshooting.md").read_text()
        self.assertGreater(len(entries(text)), 20)
        self.assertEqual(missing_entries(text), ([], []))

    def test_one_entry_less_or_more_is_noticed(self):
        text = (SOURCE / "docs/troubleshooting.md").read_text()
        self.assertEqual(missing_entries(text.replace("### PST_FAULT_LOST", "### PST_FAULT_WON")),
                         (["PST_FAULT_LOST"], ["PST_FAULT_WON"]))

    def test_which_call_names_what_there_is(self):
        text = (SOURCE / "docs/which-call.md").read_text()
        self.assertEqual(list(wrong_calls(text)), [])
        named = set(re.findall(r"\| (\w+\.h) \|$", text, re.M))
        with_calls = {name for name, header in HEADERS.items() if "PST_API pst" in header}
        self.assertEqual(with_calls - named, set())

    def test_a_call_that_is_not_there_is_noticed(self):
        for row in ("| x | `pst_pool_boil` | pool.h |\n", "| x | `pst_pool_step` | swap.h |\n",
                    "| x | `pst_pool_step`, `pst_pool_config.sugar` | pool.h |\n",
                    "| x | `pst_dirty_create`, `pst_restore_options.tail` | group.h |\n"):
            self.assertEqual(len(list(wrong_calls(row))), 1 + ("boil" in row), row)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
