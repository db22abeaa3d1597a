"""Builds layer_pages.so here: python setup.py build_ext --inplace"""
import os

import pagestash
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

library = pagestash.get_library()
setup(
    name="layer_pages",
    ext_modules=[CppExtension(
        "layer_pages", ["layer_pages.cpp"],
        include_dirs=[pagestash.get_include()],
        # TORCH_TARGET_VERSION: torch's stable interface, as of 2.10; one binary for every Python.
        extra_compile_args=["-std=c++17", "-DTORCH_TARGET_VERSION=0x020a000000000000ULL",
                            *os.environ.get("LAYER_PAGES_FLAGS", "").split()],
        extra_link_args=[library, "-Wl,-rpath," + os.path.dirname(library),
                         *os.environ.get("LAYER_PAGES_FLAGS", "").split()],
        py_limited_api=True)],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)})
