# SPDX-License-Identifier: Apache-2.0
"""From loop IR to machine code, and the linking of that code into artifacts."""
