"""Blocks of README.md and docs/*.md that check_blocks.py cannot run, for the tests that their pages name."""
import importlib.util
import pathlib

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location("check_blocks", _ROOT / "tests/docs/check_blocks.py")
_check_blocks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_check_blocks)


def run_block(page, word, names):
    """Runs the one block of the page that has the word, where it knows the names, and adds those that it makes."""
    exec(compile(_check_blocks.text_of(_ROOT / page, word), page, "exec"), names)  # pylint: disable=exec-used
