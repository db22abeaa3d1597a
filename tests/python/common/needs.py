"""What a test needs and a machine may lack: skipped there with a sentence, failed where
PSTI_TEST_ALL_TOOLS is 1, as in CI. A file of tests of which nothing ran exits with 77, which ctest calls
skipped."""
import importlib.util
import os
import sys
import unittest

SKIPPED = 77


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


def from_torch(*oldest, what):
    """Decorates a test of what torch has from this version on: skipped below, in CI, too, where the oldest torch
    that the package supports is tried."""
    import torch  # pylint: disable=import-outside-toplevel
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return unittest.skipIf(version < oldest, f"{what}: needs torch {'.'.join(map(str, oldest))}, and this is "
                                             f"{torch.__version__}")


def skip_test(sentence):
    """Of a test that sees within it what is missing: raises."""
    if os.environ.get("PSTI_TEST_ALL_TOOLS") == "1":
        raise AssertionError(f"PSTI_TEST_ALL_TOOLS is 1, and there is {sentence}")
    raise unittest.SkipTest(sentence)


def skip(sentence):
    """Of a module of tests that cannot even be imported, at its begin: raises, or exits where it runs alone."""
    alone = getattr(sys.modules["__main__"], "__file__", None) or ""
    if os.path.basename(alone).startswith("test_") and os.environ.get("PSTI_TEST_ALL_TOOLS") != "1":
        print(f"skipped: {sentence}", file=sys.stderr)
        sys.exit(SKIPPED)
    skip_test(sentence)


def main():
    """unittest.main() of a file of which everything may be skipped."""
    program = unittest.main(exit=False)
    if not program.result.wasSuccessful():
        sys.exit(1)
    num_skipped = len(program.result.skipped)
    sys.exit(SKIPPED if num_skipped and num_skipped >= program.test.countTestCases() else 0)
