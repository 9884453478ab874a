# SPDX-License-Identifier: Apache-2.0
"""How many threads a run uses: environment, affinity; and the tables that C and Python share."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.runtime import default_threads, dtypes, errors, load

INCLUDE = Path(__file__).parent.parent.parent / "runtime/include"
PRINT = "from tilewright.runtime import default_threads; print(default_threads())"


def threads_with(prepare: str = "", **variables: str) -> int:
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")
    }
    command = [sys.executable, "-c", f"{prepare}\n{PRINT}"]
    result = subprocess.run(
        command, env=environment | variables, capture_output=True, text=True, check=True
    )
    return int(result.stdout)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TILEWRIGHT_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "5,2"}, 5),
        ({"TILEWRIGHT_NUM_THREADS": "2", "OMP_NUM_THREADS": "5"}, 2),
        ({"TILEWRIGHT_NUM_THREADS": " 3 ", "OMP_NUM_THREADS": "5"}, 3),
        ({"TILEWRIGHT_NUM_THREADS": "", "OMP_NUM_THREADS": "5"}, 5),
        ({"TILEWRIGHT_NUM_THREADS": "99999999999999999999"}, 256),
    ],
)
def test_environment(variables: dict[str, str], expected: int) -> None:
    assert threads_with(**variables) == expected


@pytest.mark.parametrize("text", ["abc", "0", "4abc", "-1", "2,1", " ", "1.5"])
def test_a_wrong_environment_is_an_error(
    make: Callable[..., bytes], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", text)
    message = f"The environment variable TILEWRIGHT_NUM_THREADS is '{text}', but must be"
    for fails in (default_threads, lambda: load(make())):
        with pytest.raises(errors.ArgumentError, match=message):
            fails()
    assert load(make(), threads=1)(np.ones(3, np.float32)).sum() == 3  # it is not asked


def test_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= threads_with() <= len(allowed)
    assert threads_with(f"import os; os.sched_setaffinity(0, {{{min(allowed)}}})") == 1


def test_tables_match_the_headers() -> None:
    text = (INCLUDE / "tw_abi.h").read_text()
    codes = {name.lower(): int(code) for name, code in re.findall(r"TW_(\w+) = (\d+)", text)}
    assert codes.pop("string") == 26
    assert codes == {dtype.name: dtype.code for dtype in dtypes.DTYPES}
    text = (INCLUDE / "tilewright.h").read_text()
    statuses = {int(code) for code in re.findall(r"TW_ERROR_\w+ = (\d+)", text)}
    assert statuses == errors.BY_STATUS.keys()
