# SPDX-License-Identifier: Apache-2.0
"""The target that a user names, with a word of warning where it is a slow one."""

import logging

from tilewright.ir.target import Target, is_generic, parse_target

_logger = logging.getLogger("tilewright")


def choose_target(text: str) -> Target:
    """The target of a text; TargetError if it is not understood."""
    warn_of_generic(text)
    return parse_target(text)


def warn_of_generic(text: str) -> None:
    """Warn of a target that leaves most of current machines unused."""
    if is_generic(text):
        _logger.warning(
            "Target '%s' is generic: code for it runs several times slower than current machines "
            "allow. Choose 'x86-64-v3', which those since 2015 run, or 'native' for this one.",
            text,
        )
