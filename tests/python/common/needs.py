"""What a test needs and a machine may lack: skipped there with a sentence, failed where
PSTI_TEST_ALL_TOOLS is 1, as in CI."""
import importlib.util
import os
import sys
import unittest


def absent(*modules, python=(3, 10)):
    """The sentence that says what is missing of modules and of the version of Python; "" if nothing is."""
    if sys.version_info < python:
        return f"needs Python {'.'.join(map(str, python))}"
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def needs(*modules, python=(3, 10)):
    """Decorates a test class or method. Top-level names of modules; nothing of them is imported."""
    sentence = absent(*modules, python=python)
    if not sentence:
        return lambda test: test
    if os.environ.get("PSTI_TEST_ALL_TOOLS") != "1":
        return unittest.skip(sentence)

    def failing(test):
        def fail(*_):
            raise AssertionError(f"PSTI_TEST_ALL_TOOLS is 1, and this {sentence}")
        if isinstance(test, type):
            test.setUpClass = classmethod(fail)
            return test
        return fail
    return failing
