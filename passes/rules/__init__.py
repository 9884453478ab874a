# SPDX-License-Identifier: Apache-2.0
"""Local rewrite rules, by the kind of op they look at; passes choose among them."""
