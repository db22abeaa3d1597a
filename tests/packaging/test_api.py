#!/usr/bin/env python3
"""The API reference: test_api.py SOURCE_DIR. That docs/api/make.sh makes it of the headers without a warning,
with a man page for each function of the library, and that it fails on each kind of name without a comment.
Exit 77: no doxygen; 1 where PSTI_TEST_ALL_TOOLS=1, as in .ci/run, says that no tool may be missing."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[1]).resolve()
STYLE = SOURCE / "python/pagestash/style.css"
API = """/* Versions. */
/* Of these headers. */
#define PST_VERSION_MAJOR 1
#define PST_VERSION_MINOR 2
#define PST_VERSION_PATCH 3
"""
HEADER = """/* A header. */
#ifndef PAGESTASH_SMALL_H
#define PAGESTASH_SMALL_H

#include <pagestash/api.h>

/* Most of all. */
#define PST_SMALL_MAX 4

/* X(name, value, text): all colours. */
#define PST_SMALL_LIST(X)                \\
    X(PST_SMALL_RED, 0, "the first one") \\
    X(PST_SMALL_BLUE, 1, "the other")

/* Colours. */
typedef enum pst_small_colour {
#define PST_SMALL_ENUM(name, value, text) name = value,
    PST_SMALL_LIST(PST_SMALL_ENUM)
#undef PST_SMALL_ENUM
} pst_small_colour;

/* Kinds. */
typedef enum pst_small_kind {
    PST_SMALL_ONE = 0, /* first */
    PST_SMALL_TWO = 1  /* second */
} pst_small_kind;

/* A config. */
typedef struct pst_small_config {
    size_t struct_size;
    uint64_t width, height; /* bytes */
    uint32_t depth;         /* rows */
    uint32_t padding;
} pst_small_config;

#define PST_SMALL_CONFIG_INIT PST_INIT(pst_small_config)

/* Begins and ends it. */
PST_API int pst_small_begin(void);
PST_API int pst_small_end(int *begun); /* NULL is allowed */

/* Alone. */
PST_API int pst_small_alone(void);

#endif
"""
# name, what is replaced, by what, what the message names
FAULTS = [
    ("function", "/* Alone. */\n", "", "pst_small_alone"),
    ("macro", "/* Most of all. */\n", "", "PST_SMALL_MAX"),
    ("member", " /* rows */", "", "depth"),
    ("members declared at once", " /* bytes */", "", "height"),
    ("enumerator", " /* second */", "", "PST_SMALL_TWO"),
    ("struct", "/* A config. */\n", "", "pst_small_config"),
    ("reference to a name that is not there", "/* Alone. */", "/* Alone, as pst_small_gone. */", "pst_small_gone"),
    ("run with an empty line", "PST_API int pst_small_end(int *begun); /* NULL is allowed */",
     "\nPST_API int pst_small_end(int *begun);", "pst_small_end"),
]


def made(root, out):
    return subprocess.run([root / "docs/api/make.sh", out], capture_output=True, text=True, timeout=300)


class ReferenceTest(unittest.TestCase):
    def test_has_every_function_and_no_warning(self):
        with tempfile.TemporaryDirectory() as out:
            done = made(SOURCE, out)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            pages = pathlib.Path(out, "man/man3")
            names = (SOURCE / "tests/packaging/exports.txt").read_text().split()
            self.assertGreater(len(names), 100)
            self.assertEqual([name for name in names if not (pages / f"{name}.3").exists()], [])
            self.assertEqual([page.name for page in pages.iterdir()
                              if not page.name.startswith(("pst_", "PST_", "pagestash_"))], [])
            for page in pages.iterdir():
                text = page.read_text()
                if text.startswith(".so "):
                    self.assertTrue((pages.parent / text[4:].strip()).exists(), f"{page.name}: {text}")
                elif shutil.which("mandoc"):
                    told = subprocess.run(["mandoc", "-T", "lint", "-W", "error", page], capture_output=True,
                                          text=True)
                    self.assertEqual((told.returncode, told.stdout), (0, ""))
                    self.assertNotIn("\\fC", text)
            self.check_style(pathlib.Path(out, "html"))
            html = pathlib.Path(out, "html/ticket_8h.html").read_text()
            self.assertIn("EMPTY ----------&gt; LIVE", html)
            self.assertNotIn("PST_API", html.split("<!-- contents -->")[-1])

    def check_style(self, pages):
        """That of all pages, and no other."""
        for name in ("style.css", "search/search.css"):
            self.assertTrue((pages / name).read_bytes().startswith(STYLE.read_bytes()), name)
        for page in pages.glob("*.html"):
            text = page.read_text()
            self.assertEqual(re.findall(r'href="([^"]*\.css)"', text),
                             ["search/search.css", "style.css", "api.css"], page)
            self.assertIn('<body class="pst">', text, page)


class FilterTest(unittest.TestCase):
    """A tree of two headers, so that each try takes a moment."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(SOURCE / "docs/api", self.root / "docs/api")
        for folder in ("include/pagestash", STYLE.parent.relative_to(SOURCE)):
            (self.root / folder).mkdir(parents=True)
        shutil.copy(STYLE, self.root / STYLE.relative_to(SOURCE))
        (self.root / "include/pagestash/api.h").write_text(API)

    def make(self, header):
        (self.root / "include/pagestash/small.h").write_text(header)
        return made(self.root, self.root / "out")

    def test_what_the_rules_say_needs_no_comment(self):
        done = self.make(HEADER)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = re.sub(r"\\f[BP]", "", (self.root / "out/man/man3/pagestash_small.h.3").read_text())
        for text in ("the first one", "This is said of pst_small_begin, pst_small_end", "NULL is allowed",
                     "every other field is 0"):
            self.assertIn(text, page)

    def test_each_kind_of_name_needs_one(self):
        for name, old, new, said in FAULTS:
            with self.subTest(name):
                self.assertEqual(HEADER.count(old), 1)
                done = self.make(HEADER.replace(old, new))
                self.assertEqual(done.returncode, 1)
                self.assertIn("small.h", done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    if not shutil.which("doxygen"):
        print("no doxygen: third_party/install.sh installs it")
        sys.exit(1 if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1" else 77)
    unittest.main(argv=sys.argv[:1])
