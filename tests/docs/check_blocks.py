#!/usr/bin/env python3
"""check_blocks.py SOURCE BUILD LANGUAGE...: every fenced block of README.md and docs/*.md in these languages.
check_blocks.py --text PAGE WORD: prints the one block of a file that has the word, for what runs it elsewhere.

A block of `sh` runs in a scratch folder, of `c` is compiled, linked and run, of `python` runs, of `csv` is read
by a command or a program, of `text`, too, or is what the block before it has printed. Comments of a line above a
block say more:

    <!-- block: with FILE -->        tests/docs/FILE: C that includes block.inc, or reads block.csv; Python that
                                     comes first; for a shell a file beside it
    <!-- block: prints: A | B -->    what its output has, in this order
    <!-- block: read by: COMMAND --> {} is the file that the block was written to
    <!-- block: needs: MODULE -->    not run where Python lacks it, which fails where PSTI_TEST_ALL_TOOLS is 1
    <!-- block: not run: REASON -->  its reason is printed; what runs elsewhere is read by text_of there

`build` in the scratch folder is BUILD.

Python of a page is one program, and one that is `with` a file begins another. Other languages than these, none,
and a comment that is no such line are failures."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LANGUAGES = ("sh", "c", "python", "csv", "text")
MARKS = ("with", "prints", "read by", "needs", "not run")
HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """What is wrong with a block."""


class Block:
    """A fenced block: page, the line of its first line of text, language, text, and its marks as a dict."""

    def __init__(self, page, line, language, marks):
        self.page, self.line, self.language, self.marks, self.lines = page, line, language, marks, []

    @property
    def text(self):
        return "".join(line + "\n" for line in self.lines)

    def __str__(self):
        return f"{self.page}:{self.line}"


def mark_of(line):
    """(word, value) of a comment, None of another line."""
    if not line.startswith("<!-- block:"):
        return None
    match = re.fullmatch(rf"<!-- block: ({'|'.join(MARKS)}):? (\S.*?) -->", line)
    if not match:
        raise Failure(f"{line!r}: allowed is one of {', '.join(MARKS)}, and what")
    return match.groups()


def blocks_of(page, text):
    """All blocks of a page."""
    found, marks, block = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        if block and line == "```":
            block, marks = None, {}
        elif block:
            block.lines.append(line)
        elif line.startswith("```"):
            if line[3:] not in LANGUAGES:
                raise Failure(f"{page}:{number}: language {line[3:]!r}: allowed is {', '.join(LANGUAGES)}")
            block = Block(page, number + 1, line[3:], marks)
            found.append(block)
        else:
            mark = mark_of(line)
            if not mark and marks and line:
                raise Failure(f"{page}:{number}: a mark without its block")
            marks.update([mark] if mark else [])
    if block or marks:
        raise Failure(f"{page}: a block that does not end, or a mark without its block")
    return found


def text_of(page, word):
    """The one block of a file that has the word."""
    page = pathlib.Path(page)
    found = [block.text for block in blocks_of(page.name, page.read_text(encoding="utf-8")) if word in block.text]
    if len(found) != 1:
        raise Failure(f"{page}: {len(found)} blocks have {word!r}, allowed is 1")
    return found[0]


class Runner:
    """Runs the blocks of one page in a folder of theirs."""

    def __init__(self, source, build, folder):
        self.source, self.build, self.folder = source, build, pathlib.Path(folder)
        self.printed, self.python = None, None
        for name in ("bench", "examples", "tests"):
            (self.folder / name).symlink_to(source / name)
        (self.folder / "build").symlink_to(build)
        self.environment = {**os.environ, "PATH": f"{build}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(build)}

    def call(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, text=True, timeout=300, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_sh(self, block):
        if "with" in block.marks:
            name = block.marks["with"]
            (self.folder / name).write_bytes((HERE / name).read_bytes())
        return self.call("sh", "-eu", "-c", block.text)

    def compile_and_run(self, path):
        self.call("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{self.source}/include",
                  f"-I{self.source}/examples", "-I.", "-x", "c", str(path), "-o", "program", f"-L{self.build}",
                  "-lpagestash")
        return self.call("./program")

    def run_c(self, block):
        (self.folder / "block.inc").write_text(block.text, encoding="utf-8")
        return self.compile_and_run(HERE / block.marks["with"] if "with" in block.marks else "block.inc")

    def run_csv(self, block):
        (self.folder / "block.csv").write_text(block.text, encoding="utf-8")
        if "with" in block.marks:
            return self.compile_and_run(HERE / block.marks["with"])
        if "read by" not in block.marks:
            raise Failure("nothing reads it")
        return self.call("sh", "-eu", "-c", block.marks["read by"].replace("{}", "block.csv"))

    def run_text(self, block):
        if "read by" in block.marks:
            return self.run_csv(block)
        if block.text != self.printed:
            raise Failure(f"the block before it has printed\n{self.printed}")
        return self.printed

    def run(self, block):
        self.printed = getattr(self, f"run_{block.language}")(block)
        check_printed(block, self.printed)


def check_printed(block, printed):
    """Raises unless the texts that its mark wants come in their order."""
    rest = printed
    for text in filter(None, block.marks.get("prints", "").split(" | ")):
        before, found, rest = rest.partition(text)
        if not found:
            raise Failure(f"{text!r} is not printed, at its place: {before!r}")


def reason_not_to_run(block):
    """None: it is run."""
    module = block.marks.get("needs")
    if module and os.environ.get("PSTI_TEST_ALL_TOOLS") != "1" and importlib.util.find_spec(module) is None:
        return f"there is no {module}"
    return block.marks.get("not run")


def programs_of(blocks):
    """The lists of Python blocks that are one program each."""
    programs = []
    for block in blocks:
        if "with" in block.marks or not programs:
            programs.append([])
        programs[-1].append(block)
    return programs


def run_program(runner, blocks):
    """Each block at the lines that it has in the page, so that errors name those."""
    prologue = blocks[0].marks.get("with")
    begin = f"exec(compile(open({str(HERE / prologue)!r}).read(), {prologue!r}, 'exec'))" if prologue else ""
    lines = [begin]
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines)) + block.lines
    path = runner.folder / "program.py"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    strict = [] if "needs" in blocks[0].marks else ["-W", "error"]  # what a module warns of is not ours
    printed = runner.call(sys.executable, *strict, str(path))
    for block in blocks:
        check_printed(block, printed)


def pages_of(source):
    """(name, text) of what is checked."""
    for path in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
        yield str(path.relative_to(source)), path.read_text(encoding="utf-8")


class Count:
    """What was done, and what went wrong."""

    def __init__(self):
        self.run, self.compared, self.skipped, self.failures = {}, 0, [], []

    def attempt(self, blocks, action):
        try:
            action()
        except (Failure, subprocess.TimeoutExpired) as error:
            self.failures.append(f"{blocks[0]}: {error}")
            return
        for block in blocks:
            self.run[block.language] = self.run.get(block.language, 0) + 1
            self.compared += "prints" in block.marks or block.language == "text" and "read by" not in block.marks


def check_page(source, build, blocks, languages, count):
    """blocks: of one page."""
    chosen = []
    for block in blocks:
        reason = reason_not_to_run(block)
        if block.language in languages and reason:
            count.skipped.append(f"{block}: {reason}")
        elif block.language in languages:
            chosen.append(block)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(source, build, folder)
        for block in chosen:
            if block.language != "python":
                count.attempt([block], lambda block=block: runner.run(block))
        for program in programs_of([block for block in chosen if block.language == "python"]):
            count.attempt(program, lambda program=program: run_program(runner, program))


def main(arguments):
    if arguments[0] == "--text":
        print(text_of(*arguments[1:]), end="")
        return 0
    source, build, languages = pathlib.Path(arguments[0]).resolve(), pathlib.Path(arguments[1]).resolve(), arguments[2:]
    count = Count()
    for page, text in pages_of(source):
        try:
            check_page(source, build, blocks_of(page, text), languages, count)
        except Failure as error:
            count.failures.append(str(error))
    for line in count.skipped:
        print("not run:", line)
    for line in count.failures:
        print(line, file=sys.stderr)
    run = ", ".join(f"{number} {language}" for language, number in sorted(count.run.items()))
    print(f"blocks run: {run or 'none'}; output compared: {count.compared}; not run: {len(count.skipped)}; "
          f"failed: {len(count.failures)}")
    return 1 if count.failures or not count.run else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
