/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory that only grow, and the blocks of a model's metadata. */
#include <string.h>

#include "core.h"

enum { ZONE_BYTES = 16384, ZONE_ALIGNMENT = 16, ZONE_HEADER = 64 };

void *tw_scratch_reserve(tw_scratch *scratch, int64_t bytes) {
  if (bytes < 0) return NULL;
  if (scratch->data && (uint64_t)bytes <= scratch->bytes) return scratch->data;
  tw_scratch_free(scratch); /* first: contents are not kept, and the peak stays low */
  void *data = tw_os_allocate((size_t)bytes);
  if (!data) return NULL;
  scratch->data = data;
  scratch->bytes = (size_t)bytes;
  return data;
}

void tw_scratch_free(tw_scratch *scratch) {
  tw_os_free(scratch->data);
  scratch->data = NULL;
  scratch->bytes = 0;
}

void *tw_zone_allocate(tw_zone **zone, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  bytes = (bytes + ZONE_ALIGNMENT - 1) & ~(size_t)(ZONE_ALIGNMENT - 1);
  tw_zone *block = *zone;
  if (!block || bytes > block->capacity - block->used) {
    size_t capacity = bytes + ZONE_HEADER > ZONE_BYTES ? bytes + ZONE_HEADER : ZONE_BYTES;
    block = tw_os_allocate(capacity);
    if (!block) return NULL;
    *block = (tw_zone){*zone, ZONE_HEADER, capacity};
    *zone = block;
  }
  void *memory = (char *)block + block->used;
  block->used += bytes;
  memset(memory, 0, bytes);
  return memory;
}
