#!/usr/bin/env python3
"""test_abi.py: what abi.py must see and what it must let pass, on a small interface. Exit 77: no
abidiff (see abi.py)."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import abi  # noqa: E402

API = """
#define PST_VERSION_MAJOR 0
#define PST_VERSION_MINOR {minor}
#define PST_API __attribute__((visibility("default")))
"""
HEADER = """#include <pagestash/api.h>
#include <stdint.h>
typedef enum pst_kind { PST_ONE = 1, PST_TWO = 2 } pst_kind;
typedef enum pst_only_in_a_byte { PST_RED = 0, PST_BLUE = 1 } pst_only_in_a_byte;
typedef struct pst_info {
    uint32_t id, kind;
    uint64_t reserved[2];
    uint32_t last, padding;
} pst_info;
typedef struct pst_config {
    uint64_t struct_size;
    uint32_t num;
    uint32_t max;
    pst_info *infos;
    uint8_t colour;
    uint8_t padding[7];
} pst_config;
PST_API int pst_make(const pst_config *config, pst_kind kind);
/* PST_API int pst_gone(void); */
PST_API int pst_get(uint64_t index, pst_info *info_out);
"""
RESERVED = "uint64_t reserved[2];"
COLOUR = "    uint8_t colour;\n    uint8_t padding[7];\n"
BREAK = "[suppress_function]\n  label = {label}\n  name = {name}\n"


def interface(edits=(), minor=1):
    text = HEADER
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as folder:
        include = pathlib.Path(folder, "pagestash")
        include.mkdir()
        (include / "api.h").write_text(API.format(minor=minor))
        (include / "pagestash.h").write_text(text)
        return abi.interface(pathlib.Path(folder))


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = interface()

    def faults(self, *edits, breaks="", minor=1):
        now = interface(edits, minor)
        return list(abi.faults(self.base, now, ["pst_config"], breaks, f"0.{minor}"))

    def test_breaks_are_told_with_their_name(self):
        for told, *edit in (
                ("Removed.*pst_get", "PST_API int pst_get(uint64_t index, pst_info *info_out);", ""),
                ("pst_get", "pst_get(uint64_t", "pst_get(uint32_t"),
                ("pst_get", "pst_get(uint64_t", "pst_get(int64_t"),
                ("pst_get", "int pst_get", "int64_t pst_get"),
                ("PST_TWO.*'2' to '3'", "PST_TWO = 2", "PST_TWO = 3"),
                ("enumerator deletion.*PST_ONE", "PST_ONE = 1, ", ""),
                ("PST_BLUE.*'1' to '2'", "PST_BLUE = 1", "PST_BLUE = 2"),
                ("pst_info.*id.*kind", "uint32_t id, kind;", "uint32_t kind, id;"),
                ("pst_info.*last.*offset", "uint32_t id, kind;", "uint32_t id, kind, more;"),
                ("pst_info.*insertion.*more", "last, padding;", "last, padding; uint64_t more;"),
                ("pst_info.*more", "last, padding;", "last, more;"),
                ("pst_info.*last.*offset", RESERVED, "uint64_t more, reserved[2];"),
                ("pst_info.*last.*offset", "    " + RESERVED, ""),
                ("pst_config.*num", "uint32_t num;", "int32_t num;"),
                ("pst_config.*max", "uint32_t max;", "uint64_t max;"),
                ("insertion.*more", "    uint32_t num;", "uint32_t more;\n    uint32_t num;"),
                ("deletion.*max", "    uint32_t max;\n", ""),
                ("name of.*num.*count", "uint32_t num;", "uint32_t count;"),
                ("pst_config.*colour", COLOUR, "    uint8_t padding[8];\n")):
            with self.subTest(edit=edit):
                found = self.faults(edit)
                self.assertEqual(len(found), 1)
                self.assertRegex(found[0].replace("\n", " "), told)

    def test_an_appended_field_hides_nothing(self):
        field = COLOUR, COLOUR + "    uint64_t more;\n"
        self.assertRegex(self.faults(field, ("uint32_t num;", "float num;"))[0], "float")
        self.assertRegex(self.faults(field, ("    uint32_t max;\n", ""))[0], "max")

    def test_what_callers_do_not_notice_passes(self):
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(
            (COLOUR, COLOUR + "    uint64_t more;\n"), ("PST_TWO = 2", "PST_TWO = 2, PST_THREE = 3"),
            ("/* PST_API int pst_gone(void); */", "typedef struct pst_new { int id; } pst_new;\n"
             "PST_API int pst_add(pst_new *by_another_name);"), ("config, pst", "given, pst")), [])
        self.assertEqual(self.faults(
            (COLOUR, "    uint8_t colour;\n    uint8_t more;\n    uint8_t padding[6];\n"),
            (RESERVED, "uint32_t more, others;\n    uint64_t reserved[1];")), [])

    def test_a_break_that_is_written_down(self):
        edit = "pst_get(uint64_t", "pst_get(uint32_t"
        right = BREAK.format(label="0.2: an index has 32 bits", name="pst_get")
        self.assertEqual(self.faults(edit, breaks=right, minor=2), [])
        for says, breaks, minor in (
                ("needs a version after 0.1", right.replace("0.2", "0.1"), 1),
                ("not `label = 0.2: the reason`: 0.2:$", BREAK.format(label="0.2:", name="pst_get"), 2),
                ("not `label = 0.2: .*: 0.1: too old", BREAK.format(label="0.1: too old", name="pst_get"), 2),
                ("matches nothing: 0.2: twice",
                 right + BREAK.format(label="0.2: twice", name="pst_make"), 2)):
            with self.subTest(says=says):
                found = self.faults(edit, breaks=breaks, minor=minor)
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], says)
        self.assertRegex(self.faults(("int pst_make", "long pst_make"), breaks=right, minor=2)[0],
                         "breaks the interface.*\n.*\n*.*pst_make")


if __name__ == "__main__":
    abi.exit_without_abidiff()
    unittest.main(verbosity=1)
