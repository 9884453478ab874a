# SPDX-License-Identifier: Apache-2.0
"""Makes ``.ir`` files tests; see :mod:`golden_collector`."""

from golden_collector import pytest_addoption, pytest_collect_file

__all__ = ["pytest_addoption", "pytest_collect_file"]
