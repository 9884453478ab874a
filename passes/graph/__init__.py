# SPDX-License-Identifier: Apache-2.0
"""Passes over the graph IR, one a file; the pass manager finds them here."""
