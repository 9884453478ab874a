# SPDX-License-Identifier: Apache-2.0
"""The parts of the legality proof; :mod:`tilewright.passes.schedule.legality` puts them
together.
"""
