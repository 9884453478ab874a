# SPDX-License-Identifier: Apache-2.0
"""Passes over scheduled loop IR."""
