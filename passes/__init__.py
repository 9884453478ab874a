# SPDX-License-Identifier: Apache-2.0
"""Graph passes, lowering, schedules with their legality proof, loop passes and memory planning."""
