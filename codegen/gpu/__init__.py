# SPDX-License-Identifier: Apache-2.0
"""GPU code: one printer of kernels as C-like source, with a dialect for each language."""
