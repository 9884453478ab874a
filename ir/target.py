# SPDX-License-Identifier: Apache-2.0
"""The description of what code is generated for: architecture, features, vector width, registers,
caches, cores.

Passes, schedules and backends ask the :class:`Target` and never compare names. Text:
``ARCH[-LEVEL][+feature...][,cores=N]``, e.g. ``native``, ``x86-64-v3``,
``aarch64+dotprod,cores=4``; for GPUs, whose kernels are generated but in no artifact yet,
``opencl`` or ``cuda-sm80``.
"""

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilewright.ir.errors import TargetError

_X86_V2 = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_X86_V3 = (*_X86_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_X86_V4 = (*_X86_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_USED = {
    "x86-64": {*_X86_V4, "avx512bf16", "avx512fp16", "avx512vnni", "avxvnni"},
    "aarch64": {"bf16", "dotprod", "fullfp16", "i8mm", "neon", "sve", "sve2"},
}
# What the runtime can tell of a processor: an artifact that needs anything else runs nowhere.
_NAMES = {
    "x86-64": (
        "64bit adx aes avx avx2 avx512bf16 avx512bitalg avx512bw avx512cd avx512dq avx512f "
        "avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni avx512vpopcntdq avxifma "
        "avxneconvert avxvnni avxvnniint8 bmi bmi2 cmov crc32 cx16 cx8 f16c fma fxsr gfni lzcnt "
        "mmx movbe pclmul popcnt prfchw rdrnd sahf sse sse2 sse3 sse4.1 sse4.2 ssse3 vaes "
        "vpclmulqdq xsave"
    ),
    "aarch64": (
        "aes bf16 complxnum crc dotprod fp-armv8 fp16fml fullfp16 i8mm jsconv lse neon rcpc rdm "
        "sha2 sha3 sve sve2"
    ),
}
_KNOWN = {arch: frozenset(names.split()) for arch, names in _NAMES.items()}
_MOST_CORES = 4096
_X86_LEVELS: dict[str, tuple[str, ...]] = {"v1": (), "v2": _X86_V2, "v3": _X86_V3, "v4": _X86_V4}
_TRIPLES = {"x86-64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_GPU_TEXT = re.compile(r"opencl|cuda-(?P<level>sm\d{2,3}a?)")
_TEXT = re.compile(
    r"(?P<arch>x86-64|aarch64)(-(?P<level>v[1-4]))?(?P<features>(\+[\w.-]+)*)(,cores=(?P<cores>-?\d+))?"
)


@dataclass(frozen=True)
class Target:
    """Build it with :func:`parse_target`.

    ``arch`` is ``x86-64``, ``aarch64``, ``opencl`` or ``cuda``; ``features`` are LLVM's names,
    sorted, of a CUDA target its level (``sm80``); ``cores`` is the number of cores that schedules
    are made for; ``vector_bits`` and ``registers`` describe one vector register file; ``l1``,
    ``l2``, ``l3`` are cache sizes in bytes (of one core, l3 shared).
    """

    arch: str
    features: tuple[str, ...]
    cores: int = 2
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 16 << 20

    @property
    def kind(self) -> str:
        """``cpu`` or ``gpu``: which templates make its schedules."""
        return "cpu" if self.arch in _TRIPLES else "gpu"

    @property
    def triple(self) -> str:
        """LLVM's name of the platform; TargetError for a GPU."""
        if self.kind == "gpu":
            raise TargetError(f"LLVM makes no code for '{self}'. Name a processor.")
        return _TRIPLES[self.arch]

    @property
    def warp(self) -> int:
        """Threads of a GPU that run in step."""
        return 32

    @property
    def block_threads(self) -> int:
        """The most threads that one GPU block should have; every device takes as many."""
        return 256

    @property
    def shared_bytes(self) -> int:
        """Shared memory that one GPU block may use: the least that the standard (or CUDA without
        opt-in) gives.
        """
        return {"cuda": 48 << 10, "opencl": 32 << 10}.get(self.arch, 0)

    @property
    def feature_text(self) -> str:
        """The features as LLVM reads them: ``+avx2,+fma``."""
        return ",".join(f"+{f}" for f in self.features)

    @property
    def vector_bits(self) -> int:
        if "avx512f" in self.features:
            return 512
        return 256 if "avx2" in self.features else 128

    @property
    def registers(self) -> int:
        """Vector registers that code can name."""
        return 32 if self.arch == "aarch64" or "avx512f" in self.features else 16

    @property
    def has_fma(self) -> bool:
        return self.arch == "aarch64" or "fma" in self.features

    def lanes(self, element_bytes: int) -> int:
        """Elements of that size in one vector register."""
        return max(1, self.vector_bits // 8 // element_bytes)

    def __str__(self) -> str:
        if self.kind == "gpu":
            return "-".join((self.arch, *self.features))
        features = "".join(f"+{f}" for f in self.features)
        return f"{self.arch}{features},cores={self.cores}"


def available_cores() -> int:
    """Cores that this process may use: affinity, not the size of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_target(text: str) -> Target:
    """The target that a text describes; ``native`` is the processor of this machine.

    Raises TargetError with the accepted forms if the text is none of them, and for unknown features
    and impossible numbers of cores.
    """
    head, _, rest = text.partition(",")
    if head == "native":
        cores = re.fullmatch(r"cores=(-?\d+)", rest) if rest else None
        if rest and not cores:
            raise TargetError(
                f"Target '{text}' is not understood. Write 'native' or 'native,cores=4'."
            )
        target = _native()
        return replace(target, cores=_checked_cores(text, cores[1])) if cores else target
    gpu = _GPU_TEXT.fullmatch(text)
    if gpu:
        return Target(text.partition("-")[0], (gpu["level"],) if gpu["level"] else ())
    match = _TEXT.fullmatch(text)
    if not match or (match["level"] and match["arch"] != "x86-64"):
        raise TargetError(
            f"Target '{text}' is not understood. Write 'native' or "
            "ARCH[-LEVEL][+feature...][,cores=N], such as 'x86-64-v3' or "
            "'aarch64+dotprod,cores=4'."
        )
    features = set(match["features"].split("+")) - {""}
    _check_features(text, match["arch"], features)
    if match["arch"] == "x86-64":
        features |= set(_X86_LEVELS[match["level"] or "v1"])
    else:
        features |= {"neon"}
    cores_count = _checked_cores(text, match["cores"] or "2")
    return Target(match["arch"], tuple(sorted(features)), cores_count)


def _check_features(text: str, arch: str, features: set[str]) -> None:
    """TargetError, with the nearest names, for a feature that no processor of that kind has."""
    for feature in sorted(features - _KNOWN[arch]):
        near = difflib.get_close_matches(feature, sorted(_KNOWN[arch]))
        shown = " or ".join(f"'{name}'" for name in near)
        hint = f"Did you mean {shown}?" if near else f"Known are {_listed(_KNOWN[arch])}."
        raise TargetError(f"Target '{text}' has the unknown feature '{feature}'. {hint}")


def _checked_cores(text: str, digits: str) -> int:
    if len(digits) > 9 or not 1 <= int(digits) <= _MOST_CORES:
        raise TargetError(f"Target '{text}' must have from 1 to {_MOST_CORES} cores.")
    return int(digits)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def is_generic(text: str) -> bool:
    """True for a target text that leaves most of a current machine's vector units unused."""
    return text.split(",")[0] in ("x86-64", "x86-64-v1", "x86-64-v2")


_PROCESSOR_FACTS = frozenset(
    ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")
    + ("CPU implementer", "CPU variant", "CPU part", "CPU revision")
)


def machine_identity() -> str:
    """What ``native`` follows from: the system's own account of the processor, caches and cores.

    Equal texts mean equal targets; it costs a hundredth of what asking LLVM does.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            first = f.read(1 << 16).partition("\n\n")[0]
    except OSError:
        return repr(_native())
    facts = [line for line in first.split("\n") if line.split("\t")[0] in _PROCESSOR_FACTS]
    if not facts:
        return repr(_native())
    caches = [_cache_size(index, 0) for index in (0, 2, 3)]
    return "\n".join([*facts, *map(str, caches), str(available_cores())])


def _native() -> Target:
    """This machine, with those of its features that generated code can use."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    names = {name for name, on in llvm.get_host_cpu_features().items() if on}
    arch = "aarch64" if triple.startswith(("aarch64", "arm64")) else "x86-64"
    l1, l2, l3 = (
        _cache_size(index, default)
        for index, default in ((0, 32 << 10), (2, 512 << 10), (3, 16 << 20))
    )
    return Target(arch, tuple(sorted(names & _USED[arch])), available_cores(), l1, l2, l3)


def _cache_size(level: int, default: int) -> int:
    try:
        with open(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size", encoding="ascii") as f:
            return int(f.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return default
