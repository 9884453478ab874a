# SPDX-License-Identifier: Apache-2.0
"""A small linker: ELF64 objects in, one position-independent image without external symbols out."""

from tilewright.codegen.link.image import Image, link_image

__all__ = ["Image", "link_image"]
