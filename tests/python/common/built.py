"""Files of the build that is tested."""
import os

from pagestash import _c


def folder():
    """Where it lies: $PSTI_TEST_BUILD, else where libpagestash.so is."""
    return os.environ.get("PSTI_TEST_BUILD") or os.path.dirname(_c.library_path())


def torch_library():
    """libpagestash_torch.so."""
    return os.path.join(folder(), "libpagestash_torch.so")


def command():
    """The program pagestash."""
    return os.environ.get("PAGESTASH_COMMAND") or os.path.join(folder(), "bin", "pagestash")
