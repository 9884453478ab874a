/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which features this processor has, under LLVM's names. A vector feature counts only if the
 * operating system saves its registers. A feature that is not in the table is unknown, and an
 * artifact that asks for it is refused.
 */
#include <string.h>

#include "core.h"

#if defined(__x86_64__)

#include <cpuid.h>

enum { LEAF_1, LEAF_7, LEAF_7_1, LEAF_EXTENDED, LEAF_COUNT };
enum { EAX, EBX, ECX, EDX };
enum { SAVED_NONE = 0, SAVED_AVX = 0x6, SAVED_AVX512 = 0xE6 }; /* bits of XCR0 */

typedef struct feature_row {
  const char *name;
  uint8_t leaf;
  uint8_t reg;
  uint8_t bit;
  uint8_t saved;
} feature_row;

static const feature_row features[] = {
    {"64bit", LEAF_EXTENDED, EDX, 29, SAVED_NONE},
    {"adx", LEAF_7, EBX, 19, SAVED_NONE},
    {"aes", LEAF_1, ECX, 25, SAVED_NONE},
    {"avx", LEAF_1, ECX, 28, SAVED_AVX},
    {"avx2", LEAF_7, EBX, 5, SAVED_AVX},
    {"avx512bf16", LEAF_7_1, EAX, 5, SAVED_AVX512},
    {"avx512bitalg", LEAF_7, ECX, 12, SAVED_AVX512},
    {"avx512bw", LEAF_7, EBX, 30, SAVED_AVX512},
    {"avx512cd", LEAF_7, EBX, 28, SAVED_AVX512},
    {"avx512dq", LEAF_7, EBX, 17, SAVED_AVX512},
    {"avx512f", LEAF_7, EBX, 16, SAVED_AVX512},
    {"avx512fp16", LEAF_7, EDX, 23, SAVED_AVX512},
    {"avx512ifma", LEAF_7, EBX, 21, SAVED_AVX512},
    {"avx512vbmi", LEAF_7, ECX, 1, SAVED_AVX512},
    {"avx512vbmi2", LEAF_7, ECX, 6, SAVED_AVX512},
    {"avx512vl", LEAF_7, EBX, 31, SAVED_AVX512},
    {"avx512vnni", LEAF_7, ECX, 11, SAVED_AVX512},
    {"avx512vpopcntdq", LEAF_7, ECX, 14, SAVED_AVX512},
    {"avxifma", LEAF_7_1, EAX, 23, SAVED_AVX},
    {"avxneconvert", LEAF_7_1, EDX, 5, SAVED_AVX},
    {"avxvnni", LEAF_7_1, EAX, 4, SAVED_AVX},
    {"avxvnniint8", LEAF_7_1, EDX, 4, SAVED_AVX},
    {"bmi", LEAF_7, EBX, 3, SAVED_NONE},
    {"bmi2", LEAF_7, EBX, 8, SAVED_NONE},
    {"cmov", LEAF_1, EDX, 15, SAVED_NONE},
    {"crc32", LEAF_1, ECX, 20, SAVED_NONE},
    {"cx16", LEAF_1, ECX, 13, SAVED_NONE},
    {"cx8", LEAF_1, EDX, 8, SAVED_NONE},
    {"f16c", LEAF_1, ECX, 29, SAVED_AVX},
    {"fma", LEAF_1, ECX, 12, SAVED_AVX},
    {"fxsr", LEAF_1, EDX, 24, SAVED_NONE},
    {"gfni", LEAF_7, ECX, 8, SAVED_NONE},
    {"lzcnt", LEAF_EXTENDED, ECX, 5, SAVED_NONE},
    {"mmx", LEAF_1, EDX, 23, SAVED_NONE},
    {"movbe", LEAF_1, ECX, 22, SAVED_NONE},
    {"pclmul", LEAF_1, ECX, 1, SAVED_NONE},
    {"popcnt", LEAF_1, ECX, 23, SAVED_NONE},
    {"prfchw", LEAF_EXTENDED, ECX, 8, SAVED_NONE},
    {"rdrnd", LEAF_1, ECX, 30, SAVED_NONE},
    {"sahf", LEAF_EXTENDED, ECX, 0, SAVED_NONE},
    {"sse", LEAF_1, EDX, 25, SAVED_NONE},
    {"sse2", LEAF_1, EDX, 26, SAVED_NONE},
    {"sse3", LEAF_1, ECX, 0, SAVED_NONE},
    {"sse4.1", LEAF_1, ECX, 19, SAVED_NONE},
    {"sse4.2", LEAF_1, ECX, 20, SAVED_NONE},
    {"ssse3", LEAF_1, ECX, 9, SAVED_NONE},
    {"vaes", LEAF_7, ECX, 9, SAVED_AVX},
    {"vpclmulqdq", LEAF_7, ECX, 10, SAVED_AVX},
    {"xsave", LEAF_1, ECX, 26, SAVED_NONE},
};

const char *tw_cpu_architecture(void) { return "x86_64"; }

static void query(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
  uint32_t a, b, c, d;
  memset(registers, 0, 4 * sizeof *registers);
  if (__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d)) { /* 0: no such leaf */
    registers[EAX] = a;
    registers[EBX] = b;
    registers[ECX] = c;
    registers[EDX] = d;
  }
}

/* Which register sets the operating system saves (XCR0), 0 without OSXSAVE. */
static uint32_t saved_registers(const uint32_t leaf1[4]) {
  uint32_t low, high;
  if (!(leaf1[ECX] >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  return low;
}

int tw_cpu_has(const char *name) {
  uint32_t leaves[LEAF_COUNT][4];
  query(1, 0, leaves[LEAF_1]);
  query(7, 0, leaves[LEAF_7]);
  query(7, 1, leaves[LEAF_7_1]);
  query(0x80000001u, 0, leaves[LEAF_EXTENDED]);
  for (size_t row = 0; row < sizeof features / sizeof features[0]; row++) {
    const feature_row *feature = &features[row];
    if (strcmp(feature->name, name)) continue;
    if (!(leaves[feature->leaf][feature->reg] >> feature->bit & 1)) return 0;
    return (saved_registers(leaves[LEAF_1]) & feature->saved) == feature->saved;
  }
  return -1;
}

#elif defined(__aarch64__)

/* Bits of Linux's AT_HWCAP (word 0) and AT_HWCAP2 (word 1). */
typedef struct feature_row {
  const char *name;
  uint8_t word;
  uint64_t bits;
} feature_row;

static const feature_row features[] = {
    {"aes", 0, 1 << 3 | 1 << 4},
    {"bf16", 1, 1 << 14},
    {"complxnum", 0, 1 << 14},
    {"crc", 0, 1 << 7},
    {"dotprod", 0, 1 << 20},
    {"fp-armv8", 0, 1 << 0},
    {"fp16fml", 0, 1 << 23},
    {"fullfp16", 0, 1 << 9 | 1 << 10},
    {"i8mm", 1, 1 << 13},
    {"jsconv", 0, 1 << 13},
    {"lse", 0, 1 << 8},
    {"neon", 0, 1 << 1},
    {"rcpc", 0, 1 << 15},
    {"rdm", 0, 1 << 12},
    {"sha2", 0, 1 << 5 | 1 << 6},
    {"sha3", 0, 1 << 17},
    {"sve", 0, 1 << 22},
    {"sve2", 1, 1 << 1},
};

const char *tw_cpu_architecture(void) { return "aarch64"; }

int tw_cpu_has(const char *name) {
  for (size_t row = 0; row < sizeof features / sizeof features[0]; row++) {
    const feature_row *feature = &features[row];
    if (strcmp(feature->name, name)) continue;
    return (tw_os_hardware_capabilities(feature->word) & feature->bits) == feature->bits;
  }
  return -1;
}

#else
#error "The runtime supports x86-64 and AArch64."
#endif
