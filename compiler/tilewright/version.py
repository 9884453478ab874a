# SPDX-License-Identifier: Apache-2.0
"""The version, and those of the packages that decide what code comes out."""

VERSION = "0.1.0"


def package_version(name: str) -> str:
    """The version of an installed package, or ``not installed``; the package is not imported."""
    # Late: this import takes longer than all others of the command's help together.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def llvm_version() -> str:
    """LLVM's version as the code generator has it."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return "not installed"
    return ".".join(map(str, llvm.llvm_version_info))
