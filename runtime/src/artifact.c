/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of an artifact, all little-endian:
 *
 *      0  magic, 8 bytes: 89 'T' 'W' 0D 0A 1A 0A 00
 *      8  u32 format version          12  u32 bytes of this header, 128
 *     16  u64 bytes of the file
 *     24  u64 offset, u64 bytes of the manifest, UTF-8 JSON
 *     40  u64 offset, u64 bytes of the constants
 *     56  u64 offset, u64 bytes of the code image
 *     72  u32 CRC-32 of the manifest, 76 of the constants, 80 of the code
 *     84  u32 alignment of the constants and the code in the file, a power of two
 *     88  zeros
 *    124  u32 CRC-32 of the 124 bytes before
 */
#include <string.h>

#include "core.h"

enum {
  MAX_MANIFEST_BYTES = 64 << 20,
  MAX_CODE_BYTES = 1 << 30,
  MIN_ALIGNMENT = 64,
};

static uint32_t read32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t read64(const uint8_t *at) { return read32(at) | (uint64_t)read32(at + 4) << 32; }

/* Whether a section lies inside the file, behind the header, and is no larger than allowed. */
static bool is_inside(const tw_section *section, uint64_t file_bytes, uint64_t most) {
  return section->offset >= TW_HEADER_BYTES && section->bytes <= most &&
         section->offset <= file_bytes && section->bytes <= file_bytes - section->offset;
}

tw_status tw_header_parse(const uint8_t *data, uint64_t file_bytes, tw_header *header) {
  static const uint8_t magic[8] = {0x89, 'T', 'W', '\r', '\n', 0x1A, '\n', 0};
  if (file_bytes < TW_HEADER_BYTES || memcmp(data, magic, sizeof magic))
    return tw_fail(TW_ERROR_ARTIFACT, "This is not a Tilewright artifact.");
  if (read32(data + 8) != TW_FORMAT_VERSION)
    return tw_fail(TW_ERROR_ARTIFACT,
                   "The artifact has format version %d, but this runtime reads version %d: "
                   "compile the model again.",
                   (int64_t)read32(data + 8), (int64_t)TW_FORMAT_VERSION);
  if (read32(data + 124) != tw_crc32(0, data, 124))
    return tw_fail(TW_ERROR_ARTIFACT, "The header of the artifact is damaged.");
  header->file_bytes = read64(data + 16);
  header->manifest = (tw_section){read64(data + 24), read64(data + 32), read32(data + 72)};
  header->constants = (tw_section){read64(data + 40), read64(data + 48), read32(data + 76)};
  header->code = (tw_section){read64(data + 56), read64(data + 64), read32(data + 80)};
  if (header->file_bytes != file_bytes)
    return tw_fail(TW_ERROR_ARTIFACT,
                   "The artifact should have %d bytes, but has %d: it is incomplete.",
                   (int64_t)header->file_bytes, (int64_t)file_bytes);
  uint32_t alignment = read32(data + 84);
  bool zeros = true;
  for (int at = 88; at < 124; at++) zeros = zeros && !data[at];
  if (read32(data + 12) != TW_HEADER_BYTES || !zeros || alignment < MIN_ALIGNMENT ||
      (alignment & (alignment - 1)) || header->constants.offset % alignment ||
      header->code.offset % alignment ||
      !is_inside(&header->manifest, file_bytes, MAX_MANIFEST_BYTES) ||
      !is_inside(&header->constants, file_bytes, SIZE_MAX / 2) ||
      !is_inside(&header->code, file_bytes, MAX_CODE_BYTES) || !header->code.bytes)
    return tw_fail(TW_ERROR_ARTIFACT, "The header of the artifact contradicts itself.");
  return TW_OK;
}

tw_status tw_section_check(const tw_section *section, const void *data, const char *name) {
  if (tw_crc32(0, data, section->bytes) == section->crc) return TW_OK;
  return tw_fail(TW_ERROR_ARTIFACT, "The artifact is damaged: the checksum of its %s is wrong.",
                 name);
}
