# SPDX-License-Identifier: Apache-2.0
"""The intermediate representations: types, symbolic dims, the graph IR, ops and the loop IR."""
