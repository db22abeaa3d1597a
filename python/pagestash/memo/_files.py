"""Files of profiles and plans: what the commands read, and beside it, in FILE.json, what no column has."""
from __future__ import annotations

import json
import os
from typing import Any, Union

from .. import _files
from .._c import Error

Path = Union[str, "os.PathLike[str]"]


def path_of(path: Path, rank: int, world: dict) -> str:
    """The file of a rank: where there are several, plan.csv is plan.rank3.csv."""
    path = os.fspath(path)
    if world.get("world", 1) <= 1:
        return path
    stem, extension = os.path.splitext(path)
    return f"{stem}.rank{rank}{extension}"


def write(path: str, content: bytes) -> None:
    """In whole or not at all."""
    _files.write(path, content, "save")


def save(path: str, content: bytes, kind: str, data: dict) -> None:
    """The file, and FILE.json."""
    write(path, content)
    write(path + ".json", json.dumps({"memo": kind, **data}, indent=1).encode() + b"\n")


def load(path: str, keys: dict[str, set]) -> tuple[bytes, dict]:
    """Content and data. keys: of each kind. Errors: what cannot be read, or is neither."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        with open(path + ".json", "rb") as file:
            data: Any = json.load(file)
    except OSError as error:
        raise Error(f"load: {error.filename}: {error.strerror}") from None
    except ValueError:
        raise Error(f"load: {path}.json is no JSON") from None
    kind = data.get("memo") if isinstance(data, dict) else None
    if kind not in keys:
        raise Error(f"load: {path}.json is of no {' and of no '.join(keys)}")
    if missing := sorted(keys[kind] - set(data)):
        raise Error(f"load: {path}.json: there is no {missing[0]}")
    return content, data
