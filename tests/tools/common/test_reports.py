#!/usr/bin/env python3
"""test_reports.py PAGESTASH SOURCE PROGRAM...: every report has a schema that it fits, but for those of files that
docs/formats.md names; the benchmarks' shortest runs here, the others in the tests of each command. A key too many,
a key too few and another type are noticed."""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays clean
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import reports  # noqa: E402

COMMAND, SOURCE, PROGRAMS = sys.argv[1], sys.argv[2], sys.argv[3:]
SHORT = {"pagestash-bench": ("--call-cost",),
         "pagestash-arena-bench": ("--requests=200", "--iterations=1"),
         "pagestash-simulate-bench": ("--micro-batches=16", "--routing-steps=2", "--samples=1"),
         "pagestash-plan-bench": ("--only=tilings", "--seeds=1", "--tilings=1", "--deadline=1"),
         "pagestash-schedule-bench": ("--costs", "--samples=3")}
WRITES = re.compile(r"\bjson\.dump|\bwrite_json\(|\b(?:fprintf|fputs)\([^;]*\bjson\b")


def sources():
    """(path in the source, text) of what may write a report, but for the two that write what others made."""
    for folder in ("bench", "tools"):
        for path in sorted((pathlib.Path(SOURCE) / folder).rglob("*")):
            name = path.relative_to(SOURCE).as_posix()
            if path.suffix in (".c", ".cu", ".py", ".sh") and name not in ("bench/common/script.py",
                                                                          "tools/common/json_out.c"):
                yield name, path.read_text(encoding="utf-8")


def keys_of(schema):
    """All keys of a report but those of its `options`, which are flags."""
    if isinstance(schema, list):
        return set().union(*map(keys_of, schema))
    if not isinstance(schema, dict):
        return set()
    named = {key: part for key, part in schema.get("properties", {}).items() if key != "options"}
    return set(named).union(*map(keys_of, named.values()),
                            *(keys_of(part) for key, part in schema.items() if key != "properties"))


def unexplained(page):
    """Keys of the commands' reports that the page has not. (estimate's are those of structs in the headers, too.)"""
    return {name: missing for name in ("env", "plan", "replay", "simulate", "top", "trace")
            if (missing := {key for key in keys_of(reports.validator(name).schema)
                            if not re.search(rf"\b{re.escape(key)}\b", page)})}


def answer(*command):
    return subprocess.run(command, text=True, capture_output=True, timeout=600, check=True).stdout


class Reports(unittest.TestCase):
    def test_each_has_a_schema(self):
        names = {path.stem for path in reports.SCHEMAS.glob("*.json")}
        self.assertEqual(names, {name for _, text in sources() for name in re.findall(r'json_begin\("([^"]+)"', text)})
        self.assertEqual({name for name in names if name.startswith("pagestash-")}, set(SHORT))
        for name in names:
            schema = reports.validator(name).schema
            version = schema.get("oneOf", [schema])[0]["properties"]["schema_version"]["const"]
            self.assertEqual(schema["$id"], f"urn:pagestash:{name}:{version}")

    def test_those_without_one_are_named(self):
        page = (pathlib.Path(SOURCE) / "docs/formats.md").read_text(encoding="utf-8")
        named = re.search(r"write JSON without a schema: ([^.]*(?:\.\w+`[^.]*)*)\.\n", page)[1]
        self.assertEqual(re.findall(r"`([^`]+)`", named), [
            name for name, text in sources() if WRITES.search(text) and "json_begin(" not in text])

    def test_no_object_is_open(self):
        def walk(part):
            if isinstance(part, dict):
                if "properties" in part:
                    self.assertIs(part["additionalProperties"], False)
                for value in part.values():
                    walk(value)
            elif isinstance(part, list):
                for value in part:
                    walk(value)
        for path in reports.SCHEMAS.glob("*.json"):
            walk(json.loads(path.read_text(encoding="utf-8")))

    def test_each_key_is_explained(self):
        page = (pathlib.Path(SOURCE) / "docs/formats.md").read_text(encoding="utf-8")
        self.assertEqual(unexplained(page), {})
        self.assertEqual(unexplained(page.replace("waits_ns", "")), {"simulate": {"waits_ns"}})

    def test_benchmarks(self):
        for program in PROGRAMS:
            name = os.path.basename(program)
            self.assertEqual(reports.load(answer(program, *SHORT[name], "--json"))["command"], name)

    def test_what_does_not_fit(self):
        report = reports.load(answer(COMMAND, "env", "--json"))
        entry = report["variables"][0]
        for change in ({**entry, "more": 1}, {key: entry[key] for key in entry if key != "help"},
                       {**entry, "is_set": "yes"}):
            other = copy.deepcopy(report)
            other["variables"][0] = change
            with self.assertRaisesRegex(AssertionError, "env: variables/0"):
                reports.load(json.dumps(other))
        with self.assertRaisesRegex(AssertionError, "schema_version: "):
            reports.load(json.dumps({**report, "schema_version": report["schema_version"] + 1}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
