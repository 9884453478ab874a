/* SPDX-License-Identifier: Apache-2.0 */
/* What memory gives: a loop that reads an array and a copy, each timed inside. */

#include <stddef.h>
#include <string.h>
#include <time.h>

typedef float vector __attribute__((vector_size(64), aligned(4), may_alias));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that it takes to sum up `count` floats, a multiple of 128, in eight chains of vectors. */
double plain_read(const float *x, size_t count, float *sum) {
  double start = now();
  vector parts[8] = {0};
  for (size_t i = 0; i < count; i += 128)
    for (int part = 0; part < 8; ++part) parts[part] += *(const vector *)(x + i + 16 * part);
  vector all = parts[0];
  for (int part = 1; part < 8; ++part) all += parts[part];
  float total = 0;
  for (int lane = 0; lane < 16; ++lane) total += all[lane];
  *sum = total;
  return now() - start;
}

/* Seconds that it takes to copy. */
double plain_copy(const void *x, size_t bytes, void *y) {
  double start = now();
  memcpy(y, x, bytes);
  return now() - start;
}
