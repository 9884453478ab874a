# SPDX-License-Identifier: Apache-2.0
"""Schedules: steps as data, their application to kernels, default schedules, and the proof that a
schedule is legal.
"""
