# SPDX-License-Identifier: Apache-2.0
"""The ops, one class each, in the files of this folder; loading the folder registers them all.

An op is imported from its own file: ``from tilewright.ir.ops.softmax import Softmax``.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
