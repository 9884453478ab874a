# SPDX-License-Identifier: Apache-2.0
"""The target that a user names, with a word of warning where it is a slow one."""

import logging

from tilewright.ir.errors import TargetError
from tilewright.ir.target import Target, is_generic, parse_target

_logger = logging.getLogger("tilewright")


def choose_target(text: str) -> Target:
    """The processor that a text describes; TargetError if it is not understood, or is a GPU."""
    warn_of_generic(text)
    target = parse_target(text)
    require_processor(target)
    return target


def require_processor(target: Target) -> None:
    """TargetError for a GPU: kernels are generated for it, but nothing loads them yet."""
    if target.kind != "cpu":
        raise TargetError(
            f"Models cannot be compiled for '{target}' yet: artifacts are made for processors "
            "only. Choose 'native' for this machine, or a processor such as 'x86-64-v3' or "
            "'aarch64+dotprod'."
        )


def warn_of_generic(text: str) -> None:
    """Warn of a target that leaves most of current machines unused."""
    if is_generic(text):
        _logger.warning(
            "Target '%s' is generic: code for it runs several times slower than current machines "
            "allow. Choose 'x86-64-v3', which those since 2015 run, or 'native' for this one.",
            text,
        )
