# SPDX-License-Identifier: Apache-2.0
"""Benchmarks against other inference engines, and the real models that they and the tests use."""
