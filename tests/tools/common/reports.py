"""Reports in JSON, held against their schemas in docs/schemas as they are read, and tables of reports as text."""
import functools
import json
import pathlib
import re

SCHEMAS = pathlib.Path(__file__).resolve().parents[3] / "docs/schemas"


@functools.lru_cache(maxsize=None)
def validator(command):
    import jsonschema  # not in the Python package's environment, whose tests read no report by this
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def load(text):
    """What json.loads makes of a report; AssertionError where it does not fit its schema."""
    from jsonschema.exceptions import best_match
    report = json.loads(text)
    error = best_match(validator(report["command"]).iter_errors(report))
    assert error is None, f"{report['command']}: {'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
    return report


def check_tables(text):
    """A row of a table, which has four columns or more, fits a terminal of 100 columns."""
    wide = [line for line in text.splitlines() if len(line) > 100 and re.search(r"\S(?: {2,}\S+){3}", line)]
    assert not wide, f"{len(wide[0])} columns: {wide[0]}"
