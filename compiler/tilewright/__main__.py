# SPDX-License-Identifier: Apache-2.0
"""``python -m tilewright`` is the command ``tilewright``."""

from tilewright.cli.main import run

if __name__ == "__main__":
    run()
