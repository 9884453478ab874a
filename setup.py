# SPDX-License-Identifier: Apache-2.0
"""Builds the C runtime as one plain shared library; all else is in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

RUNTIME = "compiler/tilewright/runtime"


class BuildLibrary(build_ext):
    """Names the library without Python's suffix: it does not depend on the interpreter."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", "/") + ".so"


class PlainWheel(bdist_wheel):
    """One wheel for every Python 3 of a platform."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


library = Extension(
    "tilewright.runtime.libtilewright",
    sources=sorted(glob(f"{RUNTIME}/src/*.c")),
    depends=sorted(glob(f"{RUNTIME}/src/*.h") + glob(f"{RUNTIME}/include/*.h")),
    include_dirs=[f"{RUNTIME}/include"],
    extra_compile_args=["-O2", "-g0", "-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
    extra_link_args=["-pthread", "-Wl,-z,nodelete"],
)
setup(ext_modules=[library], cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlainWheel})
