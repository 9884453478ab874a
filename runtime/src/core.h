/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the core share. Nothing here is visible outside the library. */
#ifndef TW_CORE_H
#define TW_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "os.h"
#include "tilewright.h"

enum {
  TW_MAX_RANK = 64,
  TW_MAX_THREADS = 256,
  TW_MAX_PORTS = 65536,
};

/* ---- error.c ---- */

/* A text that is cut off, never overrun. */
typedef struct tw_text {
  char *data;
  size_t capacity;
  size_t length;
} tw_text;

void tw_text_begin(tw_text *text, char *data, size_t capacity);
void tw_text_add(tw_text *text, const char *string);
void tw_text_add_quoted(tw_text *text, const char *string); /* 'string', cut and made printable */
void tw_text_add_integer(tw_text *text, int64_t value);
void tw_text_add_shape(tw_text *text, int32_t rank, const int64_t *shape);

/* Sets the thread's message and returns `status`. Formats: %s text, %q text in quotes, %d an
   int64_t (cast every argument). */
tw_status tw_fail(tw_status status, const char *format, ...);
/* Begins a message that is built piece by piece in the thread's own buffer. */
void tw_fail_begin(tw_text *text);

/* ---- dtype.c ---- */

typedef struct tw_dtype_row {
  const char *name;
  uint8_t code; /* DLPack's */
  uint8_t bits;
  uint8_t bytes;     /* of an element; 0: not supported */
  uint8_t alignment;
} tw_dtype_row;

const tw_dtype_row *tw_dtype_find(int32_t dtype); /* NULL if unknown */
int32_t tw_dtype_parse(const char *name);         /* 0 if unknown */

/* ---- crc32.c ---- */

uint32_t tw_crc32(uint32_t crc, const void *data, size_t bytes); /* as zlib's; begin with 0 */

/* ---- cpu.c ---- */

const char *tw_cpu_architecture(void);
/* 1: present, 0: absent, -1: no such name. Names are LLVM's. */
int tw_cpu_has(const char *feature);

/* ---- run.c ---- */

enum { TW_DL_CPU = 1 }; /* DLPack's device type */

/* The bytes of a shape; false if an extent is negative or the product overflows. */
bool tw_shape_bytes(const tw_dtype_row *dtype, int32_t rank, const int64_t *shape, uint64_t *bytes);

/* ---- model.c ---- */

typedef struct tw_symbol {
  const char *name;
  int64_t lo;
  int64_t hi;
  int64_t multiple;
} tw_symbol;

typedef struct tw_kernel_name {
  const char *name;
  const char *origin;
} tw_kernel_name;

/* An input or output with, for each dim, the index of the symbol that it plainly is, or -1, and the
   value that an input has by default, which is of kind TW_NONE if it has none. */
typedef struct tw_port_row {
  tw_port port;
  const int32_t *symbols;
  const tw_dtype_row *dtype;
  tw_value fallback;
} tw_port_row;

/* One block of a model's metadata; all are freed with the model. */
typedef struct tw_zone {
  struct tw_zone *next;
  size_t used;
  size_t capacity;
} tw_zone;

void *tw_zone_allocate(tw_zone **zone, size_t bytes); /* aligned to 16; NULL when out of memory */

struct tw_model {
  _Atomic int64_t references;
  tw_zone *zone;
  tw_port_row *inputs;
  tw_port_row *outputs;
  tw_symbol *symbols;
  tw_kernel_name *kernels;
  const char **messages;
  void **constants;
  int32_t input_count;
  int32_t output_count;
  int32_t symbol_count;
  int64_t kernel_count;
  int64_t message_count;
  int64_t constant_count;
  const char *manifest;
  size_t manifest_bytes;
  void *code; /* mapped, as are constants unless they are borrowed or absent */
  size_t code_bytes;
  void *constant_data;
  size_t constant_bytes;
  bool constants_borrowed;
  int file; /* that the constants are mapped from, or -1; its path, and its state when loaded */
  const char *path;
  tw_os_state state;
  tw_host entry;
  tw_host defaults_entry; /* for calls that replace no default; NULL: there is none */
};

void tw_model_retain(tw_model *model);
/* TW_ERROR_ARTIFACT if the file that the constants are mapped from has been written into. */
tw_status tw_model_check_file(const tw_model *model);

/* ---- artifact.c ---- */

enum { TW_HEADER_BYTES = 128, TW_FORMAT_VERSION = 2 };

typedef struct tw_section {
  uint64_t offset;
  uint64_t bytes;
  uint32_t crc;
} tw_section;

typedef struct tw_header {
  uint64_t file_bytes;
  tw_section manifest;
  tw_section constants;
  tw_section code;
} tw_header;

/* Parses and bounds-checks the first TW_HEADER_BYTES of an artifact of `file_bytes`. */
tw_status tw_header_parse(const uint8_t *data, uint64_t file_bytes, tw_header *header);
tw_status tw_section_check(const tw_section *section, const void *data, const char *name);

/* ---- manifest.c ---- */

/* Fills in the model's metadata from its manifest, whose code and constants are mapped already.
   `text` is a copy of the manifest that lives as long as the model; it is overwritten. */
tw_status tw_manifest_load(tw_model *model, char *text, size_t bytes);

/* ---- pool.c ---- */

/* Runs body(job, begin, end, worker) over all tasks on up to `threads` threads of the process-wide
   pool, the caller (worker 0) among them; runs on the caller alone while another region is busy. */
typedef void (*tw_pool_body)(void *job, int64_t begin, int64_t end, int worker);
void tw_pool_run(int threads, tw_pool_body body, void *job, int64_t tasks);

/* ---- scratch.c ---- */

/* A block of memory that only grows, aligned to 64. */
typedef struct tw_scratch {
  void *data;
  size_t bytes;
} tw_scratch;

void *tw_scratch_reserve(tw_scratch *scratch, int64_t bytes); /* NULL: negative, or out of memory */
void tw_scratch_free(tw_scratch *scratch);
/* The workspace of pool worker 1..TW_MAX_THREADS-1; only that worker may ask. */
tw_scratch *tw_pool_scratch(int worker);

#endif
