# SPDX-License-Identifier: Apache-2.0
"""The base of all errors, below every part of the package: it imports nothing.

The compiler's errors are in ``tilewright.ir.errors``, those of loading and running in
``tilewright.runtime.errors``; neither part imports the other.
"""


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose."""
