/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32 with zlib's polynomial, eight bytes a step ("slicing by 8": Kounavis and Berry, "Novel
 * table lookup-based algorithms for high-performance CRC generation", 2008). The tables are made on
 * first use; two threads that race there write the same values.
 */
#include <string.h>

#include "core.h"

static _Atomic uint32_t tables[8][256];
static _Atomic bool ready;

static uint32_t table(int row, uint32_t index) {
  return atomic_load_explicit(&tables[row][index & 255], memory_order_relaxed);
}

static void make_tables(void) {
  for (uint32_t index = 0; index < 256; index++) {
    uint32_t crc = index;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    atomic_store_explicit(&tables[0][index], crc, memory_order_relaxed);
  }
  for (int row = 1; row < 8; row++)
    for (uint32_t index = 0; index < 256; index++) {
      uint32_t crc = table(row - 1, index);
      atomic_store_explicit(&tables[row][index], crc >> 8 ^ table(0, crc), memory_order_relaxed);
    }
  atomic_store_explicit(&ready, true, memory_order_release);
}

/* Little-endian, whatever the machine. */
static uint32_t word(const uint8_t *data) {
  return (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
         (uint32_t)data[3] << 24;
}

uint32_t tw_crc32(uint32_t crc, const void *data, size_t bytes) {
  const uint8_t *at = data;
  if (!atomic_load_explicit(&ready, memory_order_acquire)) make_tables();
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint32_t low = crc ^ word(at), high = word(at + 4);
    crc = table(7, low) ^ table(6, low >> 8) ^ table(5, low >> 16) ^ table(4, low >> 24) ^
          table(3, high) ^ table(2, high >> 8) ^ table(1, high >> 16) ^ table(0, high >> 24);
  }
  while (bytes--) crc = crc >> 8 ^ table(0, crc ^ *at++);
  return ~crc;
}
