#!/usr/bin/env python3
"""check_faults.py SOURCE_DIR [--self-test]: docs/faults.md has each fault once, and its tests name it.

The table wants the numbers 1 to 76, each once, in order, with no empty cell. Its last column names tests:
`Suite.Name` of the C tests, `file.py:Class.test_name`, `gpu-check.sh stage`, or `ctest entry`. Each must be
there, with a comment right above it that says `Fault rows 17, 18.` and has the number; and a number in
such a comment must be in the table.
--self-test plants a row that is missing, an empty cell, an unknown test, and numbers that differ."""

import pathlib
import re
import sys

NUM_ROWS = 76
COLUMNS = ("number", "tried", "outcome", "tests")
MARK = re.compile(r"Fault rows ((?:\d+, )*\d+)\.")
GENERAL = re.compile(r"PST_TEST|CONF_DEFINE|CONFORMANCE\w*")
MACRO = re.compile(r"^#define (\w+)\((\w+)[^)]*\)((?:.*\\\n)*.*)", re.M)
INVOCATION = re.compile(r"^([A-Z]\w*)\((\w+)(?:,\s*(\w+))?", re.M)


def marks_above(lines, at):
    """Numbers in the comment that ends above line `at`, which counts from 0."""
    text = []
    while at > 0 and lines[at - 1].lstrip().startswith(("/*", "*", "#", "@")):
        at -= 1
        text.insert(0, lines[at].strip(" */#"))
    return {int(n) for found in MARK.findall(" ".join(text)) for n in found.split(", ")}


def c_tests(text):
    """(name, position) of each; a file's own macros say the suite of what they define."""
    suites = {}
    for macro, name, body in MACRO.findall(text):
        suite = re.search(rf"\((?:\w+, )?([A-Z][a-z]\w*), {name}\b", body)
        through = re.search(rf"\b([A-Z_]+)\({name}\b", body)
        if suite:
            suites[macro] = suite[1]
        elif through and through[1] in suites:
            suites[macro] = suites[through[1]]
    for found in INVOCATION.finditer(text):
        macro, first, second = found.groups()
        if macro in suites:
            yield f"{suites[macro]}.{first}", found.start()
        elif GENERAL.fullmatch(macro) and second:
            yield f"{first}.{second}", found.start()


def python_tests(name, text):
    kind = None
    for found in re.finditer(r"^(?:class (\w+)|    def (test_\w+))", text, re.M):
        kind = found[1] or kind
        if found[2]:
            yield f"{name}:{kind}.{found[2]}", found.start()


def others(path, text):
    if path.name == "gpu-check.sh":
        for found in re.finditer(r"^stage_(\w+)\(\)", text, re.M):
            yield f"gpu-check.sh {found[1]}", found.start()
    if path.name == "CMakeLists.txt":
        for found in re.finditer(r"^ *pagestash_(?:add|python)_test\(([\w.]+)", text, re.M):
            yield f"ctest {found[1]}", found.start()


def sources(root):
    for folder in ("tests", "tools", "bench"):
        yield from sorted(path for path in (root / folder).rglob("*")
                          if path.suffix in (".c", ".cc", ".py") or path.name in ("CMakeLists.txt", "gpu-check.sh"))


def marked_tests(files):
    """{name of a test: the rows that its comments name}."""
    tests = {}
    for path, text in files:
        if path.suffix in (".c", ".cc"):
            found = c_tests(text)
        elif path.suffix == ".py":
            found = python_tests(path.name, text)
        else:
            found = others(path, text)
        lines = text.splitlines()
        for name, start in found:
            rows = marks_above(lines, text.count("\n", 0, start))
            tests.setdefault(name, set()).update(rows)
    return tests


def table_of(text):
    """[[cell]] of the rows that begin with a number."""
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in text.splitlines() if re.match(r"\| *\d+ *\|", line)]


def faults(document, tests):
    """What is wrong, a sentence each."""
    rows, wrong, named = table_of(document), [], set()
    numbers = [int(row[0]) for row in rows]
    if numbers != list(range(1, NUM_ROWS + 1)):
        missing = sorted(set(range(1, NUM_ROWS + 1)) - set(numbers))
        wrong.append(f"docs/faults.md: rows missing: {missing or 'none'}; allowed is 1 to {NUM_ROWS}, each once")
    for row in rows:
        if len(row) != len(COLUMNS) or not all(row):
            wrong.append(f"docs/faults.md: row {row[0]}: {len([c for c in row if c])} cells are not empty, "
                         f"allowed are {len(COLUMNS)}")
            continue
        names = re.findall(r"`([^`]+)`", row[3])
        if not names:
            wrong.append(f"docs/faults.md: row {row[0]} names no test")
        for name in names:
            named.add((name, int(row[0])))
            if name not in tests:
                wrong.append(f"docs/faults.md: row {row[0]}: there is no test {name}")
            elif int(row[0]) not in tests[name]:
                wrong.append(f"{name}: the comment above it does not say `Fault rows` {row[0]}")
    for name, its_rows in sorted(tests.items()):
        for number in sorted(its_rows):
            if (name, number) not in named:
                wrong.append(f"{name}: names row {number}, where docs/faults.md has not this test")
    return wrong


def self_test(document, files):
    tests = marked_tests(files)
    row = next(line for line in document.splitlines() if line.startswith("| 17 |"))
    name = re.findall(r"`([^`]+)`", row.split(" | ")[3])[0]
    without, other = dict(tests), dict(tests)
    without[name] = tests[name] - {17}
    other[name] = tests[name] | {75}
    empty = row.replace(row.split(" | ")[2], "")
    planted = {
        "a row that is missing": (document.replace(row + "\n", ""), tests, "rows missing: [17]"),
        "a row that stands twice": (document.replace(row, row + "\n" + row), tests, "each once"),
        "an empty cell": (document.replace(row, empty), tests, "row 17: 3 cells"),
        "an unknown test": (document.replace(row, row.replace(name, name + "X")), tests,
                            f"row 17: there is no test {name}X"),
        "a number that is missing": (document, without, f"{name}: the comment above it does not say"),
        "a number too many": (document, other, f"{name}: names row 75"),
    }
    if faults(document, tests):
        sys.exit("the table is wrong before anything is planted")
    for what, (text, marked, said) in planted.items():
        if not any(said in sentence for sentence in faults(text, marked)):
            sys.exit(f"{what} was not found")
    text = "#define OWN(name, n) CONF_BOTH_MODES(AS, Suite, name, n)\n\n/* Why.\n * Fault rows 3, 4. */\nOWN(Name, 2)\n"
    if marked_tests([(pathlib.Path("x.c"), text)]) != {"Suite.Name": {3, 4}}:
        sys.exit("a macro of a file's own is not understood")
    print(f"{len(planted)} planted faults were found")


def main():
    root = pathlib.Path(sys.argv[1])
    document = (root / "docs/faults.md").read_text()
    files = [(path, path.read_text()) for path in sources(root)]
    if "--self-test" in sys.argv[2:]:
        self_test(document, files)
        return
    tests = marked_tests(files)
    wrong = faults(document, tests)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{NUM_ROWS} faults, {sum(1 for rows in tests.values() if rows)} tests that name them")


if __name__ == "__main__":
    main()
