# SPDX-License-Identifier: Apache-2.0
"""Resize in its five versions, and Upsample."""
