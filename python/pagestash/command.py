"""Runs the command `pagestash`, whose JSON becomes objects: what estimate(...) and plan(...) share."""
import copy
import html
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from . import _abi
from ._c import Error, version_text

VERSION = version_text(_abi.PST_VERSION)
ANSWERS = (0, 1)  # exit codes; 1: the answer is no


class CommandError(Error):
    """What the command refused, in its own sentence.

    exit_code: 1: the answer is no, 2: a flag or a value, 3: a file that cannot be read or written, 4: the
    device is absent or failed (docs/formats.md); None: the command could not be run."""

    def __init__(self, text: str, exit_code: int | None = None):
        super().__init__(text)
        self.exit_code = exit_code


class Answer(Mapping):
    """A JSON object, frozen: keys are attributes, answer.stages[0].bytes.peak, or looked up as in a dict.

    Objects within it are Answers, lists are tuples."""

    __slots__ = ("_json",)

    def __init__(self, data: dict):
        object.__setattr__(self, "_json", data)

    @property
    def json(self) -> dict:
        """A copy of the JSON, of plain dicts and lists."""
        return copy.deepcopy(self._json)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._json:
            raise AttributeError(f"there is no {name} here, but {', '.join(self._json)}")
        return _wrapped(self._json[name])

    def __getitem__(self, key: str) -> Any:
        return _wrapped(self._json[key])

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen; .json is a copy that can be changed")

    __delattr__ = __setattr__  # type: ignore[assignment]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)

    def __dir__(self):
        return sorted({*super().__dir__(), *filter(str.isidentifier, self._json)})

    def __reduce__(self):
        return type(self), (self._json,)

    def __repr__(self) -> str:
        text = ", ".join(f"{key}={_short(value)}" for key, value in self._json.items())
        return f"{type(self).__name__}({text})"


def _wrapped(value):
    if isinstance(value, dict):
        return Answer(value)
    if isinstance(value, list):
        return tuple(map(_wrapped, value))
    return value


def _short(value):
    if isinstance(value, dict):
        return "{...}" if value else "{}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return repr(value)


class Table:
    """Rows of text under a heading: for terminals, and for notebooks."""

    def __init__(self, title: str, columns: Sequence, rows: Sequence[Sequence],
                 notes: Sequence[str] = ()):
        self.title, self.notes = title, list(notes)
        self.columns = [str(column) for column in columns]
        self.rows = [[str(cell) for cell in row] for row in rows]

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip()
                 for row in [self.columns, *self.rows]]
        return "\n".join([self.title, *lines, *self.notes])

    def html(self) -> str:
        def row(tag, cells):
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
        body = "".join(row("td", cells) for cells in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return (f"<table><caption>{html.escape(self.title)}</caption><thead>{row('th', self.columns)}"
                f"</thead><tbody>{body}</tbody></table>{notes}")


def gib(count: int) -> str:
    return f"{count / (1 << 30):.3f}"


def command_path() -> str:
    """Of the command: $PAGESTASH_COMMAND, else that of the build whose library $PAGESTASH_LIBRARY names, else
    beside this Python's scripts, where a wheel puts it, else in $PATH. CommandError where there is none."""
    if named := os.environ.get("PAGESTASH_COMMAND"):
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable),
               sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
               os.path.join(os.path.dirname(here), "bin")]  # of pip install --target
    if library := os.environ.get("PAGESTASH_LIBRARY"):
        folders.insert(0, os.path.join(os.path.dirname(os.path.abspath(library)), "bin"))
    found = shutil.which("pagestash", path=os.pathsep.join(folders)) or shutil.which("pagestash")
    if found is None:
        raise CommandError("the command pagestash is neither with this Python's scripts nor in PATH: a "
                           "wheel that was built without jansson (Debian: libjansson-dev) lacks it; "
                           "PAGESTASH_COMMAND may name another")
    return found


def flags_of(flags: Mapping[str, Any], joined: bool) -> list[str]:
    """Words for flags given as keyword arguments. A list is one word with commas where `joined`, else
    a word for each element, as Megatron-LM's flags take them."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple, range)) and joined:
            words += [flag, ",".join(map(word_of, value))]
        elif isinstance(value, (list, tuple, range)):
            words += [flag, *map(word_of, value)]
        else:
            words += [flag, word_of(value)]
    return words


def word_of(value: Any) -> str:
    """A value as the command reads it."""
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        if isinstance(text, str) and "\0" not in text:
            return text
    elif isinstance(value, float):
        return float.__repr__(value)  # of numpy's, too
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        return str(value.__index__())
    raise Error(f"{value!r} is no value of a flag: allowed are text, paths, integers, floats, lists of "
                "these, and True for a flag without a value")


def run(words: list[str], stdin: bytes | None = None) -> tuple[str, str, int]:
    """What the command prints to stdout, its last sentence on stderr, and its exit code, 0 or 1.
    CommandError for other exit codes. KeyboardInterrupt ends the command, too, before it is raised."""
    path = command_path()
    try:
        done = subprocess.Popen([path, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
    except OSError as error:
        raise CommandError(f"cannot run {path}: {error.strerror}") from None
    with done:
        try:
            streams = done.communicate(b"" if stdin is None else stdin)
        except BaseException:
            done.terminate()  # it leaves no temporary file, which it would if it were killed
            done.wait()
            raise
    out, err = (stream.decode(errors="replace") for stream in streams)
    sentence = err.strip().rsplit("\n", 1)[-1].removeprefix("pagestash: ")
    if done.returncode not in ANSWERS:
        _check_version(path)
        raise CommandError(sentence or f"{path} {words[0]} ended with exit code {done.returncode}",
                           done.returncode)
    return out, sentence, done.returncode


def ask(words: list[str], stdin: bytes | None = None) -> tuple[dict, str]:
    """The command's JSON, and the sentence that says why where the answer is no."""
    out, sentence, code = run([*words, "--json"], stdin)
    try:
        data = json.loads(out)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        _check_version(command_path())
        raise CommandError(sentence or f"{words[0]}: these flags give no report", code)
    if data.get("version") != VERSION:
        _refuse(command_path(), str(data.get("version")))
    return data, sentence if code else ""


def _check_version(path):
    try:
        done = subprocess.run([path, "--version"], capture_output=True, check=False, text=True,
                              stdin=subprocess.DEVNULL, errors="replace")
    except OSError as error:
        raise CommandError(f"cannot run {path}: {error.strerror}") from None
    version = done.stdout.split()[-1:] or ["unknown"]
    if version != [VERSION]:
        _refuse(path, version[0])


def _refuse(path, version):
    raise CommandError(f"{path} is version {version[:40]}, and this package {VERSION}")
