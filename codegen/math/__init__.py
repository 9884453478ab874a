# SPDX-License-Identifier: Apache-2.0
"""The math library: elementary functions on vectors, each from one polynomial description."""
