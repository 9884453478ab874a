# SPDX-License-Identifier: Apache-2.0
"""An empty torchvision, so that timm can be imported without the real one.

timm imports names of torchvision for data loading and for networks that are not used here, and no
torchvision matches the pinned torch. Every name of the stand-in is a placeholder; only what timm
looks at during its own import (base classes, one enumeration) is real enough to pass.
"""

from __future__ import annotations

import enum
import importlib.machinery
import sys
import types
from typing import Any
from unittest.mock import MagicMock

import torch

VERSION = "0.28.0"
MODULES = (
    "torchvision",
    "torchvision.datasets",
    "torchvision.datasets.folder",
    "torchvision.models",
    "torchvision.models.feature_extraction",
    "torchvision.ops",
    "torchvision.ops.misc",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.transforms.v2",
)
# Names that timm subclasses or tests with isinstance: they must be classes.
CLASSES = {
    "torchvision.datasets": "CIFAR10 CIFAR100 FashionMNIST ImageFolder KMNIST MNIST QMNIST",
    "torchvision.transforms": "CenterCrop Compose RandomCrop RandomResizedCrop Resize",
}
INTERPOLATIONS = "nearest nearest-exact bilinear bicubic box hamming lanczos"


class _Module(types.ModuleType):
    """A module in which every name that is asked for exists."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__path__: list[str] = []
        self.__version__ = VERSION

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


def install() -> None:
    """Put the stand-in into `sys.modules`, unless a torchvision is there already."""
    if "torchvision" in sys.modules:
        return
    modules = {name: _Module(name) for name in MODULES}
    for name, module in modules.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(modules[parent], child, module)
    for name, classes in CLASSES.items():
        for each in classes.split():
            setattr(modules[name], each, type(each, (), {}))
    modes = {word.upper().replace("-", "_"): word for word in INTERPOLATIONS.split()}
    modes_class = enum.Enum("InterpolationMode", modes)  # type: ignore[misc]
    for name in ("torchvision.transforms", "torchvision.transforms.functional"):
        modules[name].__dict__["InterpolationMode"] = modes_class
    frozen = type("FrozenBatchNorm2d", (torch.nn.Module,), {})
    modules["torchvision.ops.misc"].__dict__["FrozenBatchNorm2d"] = frozen
    sys.modules.update(modules)
