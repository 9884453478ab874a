# SPDX-License-Identifier: Apache-2.0
"""What passes and schedules make depends on the target, so these tests name theirs."""

import pytest

from tests.targets import refuse_native
from tilewright.ir import target as target_module


@pytest.fixture(autouse=True)
def no_native_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "_native", refuse_native)
