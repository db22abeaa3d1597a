#!/usr/bin/env python3
"""check_faults.py SOURCE_DIR [--self-test]: docs/faults.md has each fault once, and its tests name it.

The table wants the numbers 1 to 76, each once, in order, with no empty cell. Its last column names tests:
`Suite.Name` of the C tests, `file.py:Class.test_name`, `gpu-check.sh stage`, or `ctest entry`. Each must be
there, with a comment right above it that says `Fault rows 17, 18.` and has the number; and a number in
such a comment must be in the table. What a row says happens, its tests say, too: each status, fault, exit code
and message of the third column stands in the text of a C or Python test of the row, or in what its file has
beside tests; of a message the parts between numbers, `...` and the names that stand for others.
--self-test plants a row that is missing, an empty cell, an unknown test, numbers that differ, and outcomes that
no test has."""

import pathlib
import re
import sys

NUM_ROWS = 76
COLUMNS = ("number", "tried", "outcome", "tests")
MARK = re.compile(r"Fault rows ((?:\d+, )*\d+)\.")
GENERAL = re.compile(r"PST_TEST|CONF_DEFINE|CONFORMANCE\w*")
MACRO = re.compile(r"^#define (\w+)\((\w+)[^)]*\)((?:.*\\\n)*.*)", re.M)
FAULT, EXIT, SPAN = re.compile(r"\bfault ([A-Z]+)\b"), re.compile(r"\bexit (?:with )?(\d)\b"), re.compile(r"`([^`]+)`")
STANDS_FOR = re.compile(r"\.\.\.|\b(?:[NM]|NAME|PART|PATH)\b|\b\d[\w.]*")
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


def tests_of(path, text):
    """[(name, position)] of a file."""
    if path.suffix in (".c", ".cc"):
        return list(c_tests(text))
    return list(python_tests(path.name, text) if path.suffix == ".py" else others(path, text))


def marked_tests(files):
    """{name of a test: the rows that its comments name}."""
    tests = {}
    for path, text in files:
        lines = text.splitlines()
        for name, start in tests_of(path, text):
            rows = marks_above(lines, text.count("\n", 0, start))
            tests.setdefault(name, set()).update(rows)
    return tests


def plain(text):
    """With strings that go over lines in one piece, and quotes in strings as they are."""
    return re.sub(r'"\s*\n\s*[fr]*"', "", text).replace('\\"', '"')


def told_by_tests(files):
    """{name of a C or Python test: its text, and that of its file but for other tests}."""
    told = {}
    for path, text in files:
        if path.suffix == ".py":
            ends = re.compile(r"^(?=    [@d]|\S)|\Z", re.M)
        elif path.suffix in (".c", ".cc"):
            ends = re.compile(r"^}|\Z", re.M)
        else:
            continue
        found = [(name, start, ends.search(text, start + 1).start()) for name, start in tests_of(path, text)]
        beside, at = "", 0
        for _, start, end in sorted(found, key=lambda one: one[1]):
            beside, at = beside + text[at:start], max(at, end)
        beside = plain(beside + text[at:])
        for name, start, end in found:
            told[name] = told.get(name, "") + plain(text[start:end]) + beside
    return told


def untold(outcome, told, statuses):
    """What of an outcome stands nowhere in the text."""
    words = SPAN.sub("", outcome)
    for fault in FAULT.findall(words):
        if not re.search(rf"\bPST_(?:FAULT|FLAG)_{fault}\b", told):
            yield f"fault {fault}"
    for status in re.findall(r"\b[A-Z][A-Z_]+\b", FAULT.sub("", words)):
        if status in statuses and not re.search(rf"\b(?:PST_E_)?{status}\b", told):
            yield status
    for code in EXIT.findall(words):
        if not re.search(rf"\b(?:refused|bad|returncode|exit)\b.*\b{code}\b", told):
            yield f"exit {code}"
    for message in SPAN.findall(outcome):
        parts = [part.strip() for part in STANDS_FOR.split(message)] if message.count(" ") > 1 else []
        if not all(part in told for part in parts if len(part) > 2):
            yield f"`{message}`"


def table_of(text):
    """[[cell]] of the rows that begin with a number."""
    return [[cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in text.splitlines() if re.match(r"\| *\d+ *\|", line)]


def faults(document, tests, told, statuses):
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
        text = "\n".join(told.get(name, "") for name in names)
        wrong += [f"docs/faults.md: row {row[0]}: no test of the row has {what}"
                  for what in untold(row[2], text, statuses)]
    for name, its_rows in sorted(tests.items()):
        for number in sorted(its_rows):
            if (name, number) not in named:
                wrong.append(f"{name}: names row {number}, where docs/faults.md has not this test")
    return wrong


def self_test(document, files, statuses):
    tests, told = marked_tests(files), told_by_tests(files)
    row, message, code = (next(line for line in document.splitlines() if line.startswith(f"| {number} |"))
                          for number in (17, 14, 65))
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
        "another fault": (document.replace(row, row.replace("fault EMPTY", "fault COUNT")), tests,
                          "row 17: no test of the row has fault COUNT"),
        "another status": (document.replace(message, message.replace("INVALID", "PEER")), tests,
                           "row 14: no test of the row has PEER"),
        "another message": (document.replace(message, message.replace("lie in", "stand in")), tests,
                            "row 14: no test of the row has `... stand in"),
        "another exit code": (document.replace(code, code.replace("exit 2", "exit 8")), tests,
                              "row 65: no test of the row has exit 8"),
    }
    if faults(document, tests, told, statuses):
        sys.exit("the table is wrong before anything is planted")
    for what, (text, marked, said) in planted.items():
        if not any(said in sentence for sentence in faults(text, marked, told, statuses)):
            sys.exit(f"{what} was not found")
    text = "#define OWN(name, n) CONF_BOTH_MODES(AS, Suite, name, n)\n\n/* Why.\n * Fault rows 3, 4. */\nOWN(Name, 2)\n"
    if marked_tests([(pathlib.Path("x.c"), text)]) != {"Suite.Name": {3, 4}}:
        sys.exit("a macro of a file's own is not understood")
    print(f"{len(planted)} planted faults were found")


def main():
    root = pathlib.Path(sys.argv[1])
    document = (root / "docs/faults.md").read_text()
    files = [(path, path.read_text()) for path in sources(root)]
    statuses = set(re.findall(r"\bX\(PST_E_(\w+)", (root / "include/pagestash/status.h").read_text()))
    if "--self-test" in sys.argv[2:]:
        self_test(document, files, statuses)
        return
    tests = marked_tests(files)
    wrong = faults(document, tests, told_by_tests(files), statuses)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{NUM_ROWS} faults, {sum(1 for rows in tests.values() if rows)} tests that name them")


if __name__ == "__main__":
    main()
