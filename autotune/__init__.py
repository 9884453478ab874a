# SPDX-License-Identifier: Apache-2.0
"""Schedule spaces, search, measurement and the schedule cache."""
