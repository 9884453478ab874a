# SPDX-License-Identifier: Apache-2.0
"""The C runtime and its thin Python wrapper."""
