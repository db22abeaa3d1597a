"""pagestash keeps the live bytes of oversized MoE buffers in pages until the backward pass.

    import pagestash.torch
    stash = pagestash.torch.Stash()
    with stash.layer(counts, capacity):
        y = experts(x)

pagestash.torch is for any model of torch; pagestash.megatron and pagestash.te for those frameworks;
pagestash.schedule for people who write pipelines. pagestash.simulate(...) and pagestash.policy(...) say in
arrays what a pipeline's schedule will cost; pagestash.estimate(...) and pagestash.plan(...) answer what the
command of that name answers.

A C or C++ extension needs two things of this package, and neither CMake's package nor pkg-config:
get_include() for the compiler, get_library() for the linker. With setuptools or torch.utils.cpp_extension:

    include_dirs=[pagestash.get_include()], extra_link_args=[pagestash.get_library()]

The extension then finds the library by its name, if the process has loaded it: `import pagestash` before
the extension does that, and both share one library with one set of devices and pools. With
-Wl,-rpath,<folder of get_library()> it also loads without that."""
import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _abi
from ._c import Error, library_path as _library_path, version_text as _version_text

if _TYPE_CHECKING:  # what __getattr__ gives
    from ._policy import policy
    from ._simulate import simulate
    from ._simulated_layers import SimulatedLayer, SimulatedPart, read_routing, routed_layers
    from .estimates import estimate
    from .plans import plan

__version__ = _version_text(_abi.PST_VERSION)  # _c holds the library to it
__all__ = ["Error", "SimulatedLayer", "SimulatedPart", "__version__", "estimate", "get_include",
           "get_library", "plan", "policy", "read_routing", "routed_layers", "simulate"]

_MODULES = ("allocator", "megatron", "memo", "schedule", "te", "torch")
# name: the module that has it
_FUNCTIONS = {"estimate": "estimates", "plan": "plans", "policy": "_policy",
              "simulate": "_simulate"}
_FUNCTIONS |= dict.fromkeys(("SimulatedLayer", "SimulatedPart", "read_routing", "routed_layers"),
                            "_simulated_layers")


def get_include() -> str:
    """The folder of the headers: #include <pagestash/pagestash.h>. Error where there are none."""
    package = _os.path.dirname(_os.path.abspath(__file__))
    in_sources = _os.path.join(_os.path.dirname(_os.path.dirname(package)), "include")
    for folder in (_os.path.join(package, "include"), in_sources):
        if _os.path.exists(_os.path.join(folder, "pagestash", "pagestash.h")):
            return folder
    raise Error(f"get_include: there are no headers in {package}: it was not installed from a wheel")


def get_library() -> str:
    """The file of the shared library that this process has loaded: $PAGESTASH_LIBRARY, else the wheel's."""
    return _os.path.abspath(_library_path())


def __getattr__(name):
    """What costs more to import, when it is first asked for."""
    if name in _MODULES:
        return _importlib.import_module(f".{name}", __name__)
    if name in _FUNCTIONS:
        value = getattr(_importlib.import_module(f".{_FUNCTIONS[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'pagestash' has no attribute '{name}'")


def __dir__():
    return sorted({*globals(), *__all__, *_MODULES})
