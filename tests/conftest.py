# SPDX-License-Identifier: Apache-2.0
"""Makes ``.ir`` files tests, see :mod:`golden_collector`; and chooses the machine, see
:mod:`tests.targets`.
"""

import golden_collector
import pytest
from golden_collector import pytest_collect_file

from tests.targets import be_machine

__all__ = ["pytest_addoption", "pytest_collect_file", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    golden_collector.add_options(parser)
    parser.addoption(
        "--machine", metavar="TARGET", help="let 'native' be this target, as on such a machine"
    )


def pytest_configure(config: pytest.Config) -> None:
    text = config.getoption("--machine")
    if text:
        be_machine(text)
