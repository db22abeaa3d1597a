"""What the benchmark's Python scripts share: options, exit codes, reports read and written."""
import argparse
import json
import os
import sys
import tempfile

DONE, NO, USAGE, BAD_FILE, ABSENT = range(5)


class Stop(Exception):
    """Ends a script with an exit code and one line."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Parser(argparse.ArgumentParser):
    """A wrong option is one line; -V tells the version of the report."""

    def __init__(self, prog, schema_version, **more):
        super().__init__(prog=prog, allow_abbrev=False, **more)
        self.add_argument("-V", "--version", action="version",
                          version=f"{prog} (report schema {schema_version})")

    def error(self, message):
        raise Stop(USAGE, message)

    def parse_args(self, args=None, namespace=None):
        """--json stands alone or as --json=FILE: it never takes the next word."""
        words = sys.argv[1:] if args is None else args
        return super().parse_args(["--json=-" if word == "--json" else word for word in words],
                                  namespace)

    def add_json(self):
        self.add_argument("--json", metavar="[=FILE]",
                          help="write the report; without FILE to stdout, and no table then")

    def check_json(self, path):
        """Before the work that would be in vain."""
        if path is None or path == "-":
            return
        folder = os.path.dirname(os.path.abspath(path))
        if not path or os.path.isdir(path):
            self.error(f"--json {path!r}: allowed is a file, or - for stdout")
        if not os.access(folder, os.W_OK | os.X_OK):
            self.error(f"--json {path}: cannot write in {folder}")


def run(prog, main, *arguments):
    """Exits with what main(*arguments) gives, or with the line of a Stop."""
    try:
        code = main(*arguments)
    except Stop as stop:
        print(f"{prog}: {stop}", file=sys.stderr)
        code = stop.code
    except OSError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        code = NO
    sys.exit(code)


def read_report(path, schema_version, others=None):
    """The report as a dictionary; "-" is stdin. others: versions of the commands that are read, too."""
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as file:
            report = json.load(file, parse_constant=refuse)
    except OSError as error:
        raise Stop(BAD_FILE, f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Stop(BAD_FILE, f"{path}: not JSON: {error}") from error
    found = report.get("schema_version") if isinstance(report, dict) else None
    command = report.get("command") if isinstance(report, dict) else None
    schema_version = (others or {}).get(command, schema_version)
    if found != schema_version:
        raise Stop(BAD_FILE, f"{path}: schema_version {found}: wanted is {schema_version}")
    return report


def write_json(document, path):
    """The whole file or nothing; "-" is stdout."""
    text = json.dumps(document, indent=2) + "\n"
    if path == "-":
        sys.stdout.write(text)
        return
    descriptor, scratch = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(scratch, 0o666 & ~mask)
        os.replace(scratch, path)
    except BaseException:
        os.unlink(scratch)
        raise
