/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tilewright's C interface: open a compiled model, run it.
 *
 *     tw_model *model;
 *     tw_context *context;
 *     if (tw_model_open("model.tw", NULL, &model)) puts(tw_last_error());
 *     if (tw_context_create(model, NULL, &context)) puts(tw_last_error());
 *     if (tw_context_run(context, inputs, 1, outputs, 1)) puts(tw_last_error());
 *     tw_context_close(context);
 *     tw_model_close(model);
 *
 * A model is immutable and may be shared by threads; a context belongs to one thread at a time and
 * keeps its model alive. Each function checks its arguments; those that can fail return a status
 * and leave one sentence for tw_last_error. Structs that may grow begin with `size`, their own
 * sizeof.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "tw_abi.h"

#if defined(__GNUC__)
#define TW_API __attribute__((visibility("default")))
#else
#define TW_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TW_VERSION 100 /* 0.1.0: major * 10000 + minor * 100 + patch */

typedef enum tw_status {
  TW_OK = 0,
  TW_ERROR_ARGUMENT = 1,    /* an argument of the call is wrong: null, out of range */
  TW_ERROR_INPUT = 2,       /* an input or a supplied output does not fit the model */
  TW_ERROR_ARTIFACT = 3,    /* the artifact is damaged or of another format */
  TW_ERROR_TARGET = 4,      /* the artifact is for another processor */
  TW_ERROR_MEMORY = 5,      /* out of memory */
  TW_ERROR_IO = 6,          /* a file cannot be read */
  TW_ERROR_RUN = 7,         /* the model's own code reports a failure */
  TW_ERROR_STATE = 8,       /* the context is running already */
  TW_ERROR_UNSUPPORTED = 9, /* valid, but not supported by this runtime */
  TW_ERROR_INDEX = 10,      /* an index that the model reads from data is out of range */
  TW_ERROR_CANCELLED = 11   /* tw_context_cancel has ended the run */
} tw_status;

/* ---- Values: tensors as in DLPack, whose structs these match byte for byte ---- */

typedef struct tw_dl_device {
  int32_t type; /* 1: CPU, the only one accepted here */
  int32_t id;
} tw_dl_device;

typedef struct tw_dl_dtype {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 7 to 14 float8 kinds */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} tw_dl_dtype;

typedef struct tw_dl_tensor {
  void *data;
  tw_dl_device device;
  int32_t rank;
  tw_dl_dtype dtype;
  int64_t *shape;   /* `rank` extents; may be NULL for rank 0 */
  int64_t *strides; /* in elements; NULL or those of a compact row-major tensor */
  uint64_t byte_offset;
} tw_dl_tensor;

typedef enum tw_kind {
  TW_NONE = 0,     /* as an output: the runtime provides the memory; as an input: the default */
  TW_TENSOR = 1,
  TW_STRINGS = 2,  /* reserved, as are the next two */
  TW_SEQUENCE = 3,
  TW_OPTIONAL = 4
} tw_kind;

typedef struct tw_value {
  int32_t kind; /* enum tw_kind */
  int32_t reserved;
  union {
    tw_dl_tensor tensor;
    void *words[8];
  } as;
} tw_value;

/* Fills in DLPack's dtype for a tw_dtype; TW_ERROR_ARGUMENT for an unknown or a reserved one. */
TW_API tw_status tw_dtype_to_dlpack(int32_t dtype, tw_dl_dtype *result);
/* The tw_dtype of a DLPack dtype, or 0. */
TW_API int32_t tw_dtype_from_dlpack(tw_dl_dtype dtype);
/* The name of a tw_dtype, as in manifests, such as "float32"; NULL for an unknown one. */
TW_API const char *tw_dtype_name(int32_t dtype);

/* ---- Models ---- */

typedef struct tw_model tw_model;

enum {
  TW_SKIP_CONSTANTS_CHECK = 1, /* do not verify the constants' checksum, which reads them all */
  TW_BORROW_CONSTANTS = 2, /* tw_model_open_memory: use them in place; the caller keeps the bytes,
                              whose start must be aligned to 64, until the model is closed */
  TW_COPY_CONSTANTS = 4    /* tw_model_open: read them into memory, however large they are */
};

typedef struct tw_open_options {
  int64_t size;
  int64_t flags;
} tw_open_options;

/* An input or an output. `extents` holds -1 for a symbolic dim, whose text is in `dims`. An input
   with a default has its shape in `default_extents`; else that is NULL. */
typedef struct tw_port {
  const char *name;
  int32_t dtype; /* enum tw_dtype */
  int32_t rank;
  const int64_t *extents;
  const char *const *dims;
  const int64_t *default_extents;
} tw_port;

/* Large constants of a file are mapped. It must not be written into while the model is open: every
   run checks that, and fails with TW_ERROR_ARTIFACT after a change, but a file that is cut short in
   the middle of a run ends the process. Replace a file by renaming a new one over it, or set
   TW_COPY_CONSTANTS: then nothing that happens to the file matters. */
TW_API tw_status tw_model_open(const char *path, const tw_open_options *options, tw_model **model);
TW_API tw_status tw_model_open_memory(const void *data, size_t bytes,
                                      const tw_open_options *options, tw_model **model);
TW_API void tw_model_close(tw_model *model); /* NULL is allowed */
TW_API int32_t tw_model_input_count(const tw_model *model);
TW_API int32_t tw_model_output_count(const tw_model *model);
TW_API tw_status tw_model_input(const tw_model *model, int32_t index, const tw_port **port);
TW_API tw_status tw_model_output(const tw_model *model, int32_t index, const tw_port **port);
/* Name and origin of a kernel that a profiler hears of. */
TW_API tw_status tw_model_kernel(const tw_model *model, int64_t id, const char **name,
                                 const char **origin);
/* The JSON manifest as stored, not NUL-terminated. */
TW_API tw_status tw_model_manifest(const tw_model *model, const char **text, size_t *bytes);

/* ---- Contexts ---- */

typedef struct tw_context tw_context;

/* A parallel loop of the caller's own: calls body(job, begin, end) for ranges that cover each task
   in 0..tasks-1 exactly once, on any threads, and returns when all are done. */
typedef void (*tw_range)(void *job, int64_t begin, int64_t end);
typedef void (*tw_parallel_for)(void *user, tw_range body, void *job, int64_t tasks);

/* Provides the memory of output `index`, aligned to its element type. NULL fails the run. */
typedef void *(*tw_allocate)(void *user, int32_t index, int32_t rank, const int64_t *shape);

/* Called on the running thread after each kernel. Times are of one monotonic clock. */
typedef void (*tw_profile)(void *user, int64_t kernel, int64_t begin_ns, int64_t end_ns,
                           int64_t tasks);

typedef struct tw_context_options {
  int64_t size;
  int64_t threads;              /* 0: TILEWRIGHT_NUM_THREADS, else what the machine grants */
  tw_parallel_for parallel_for; /* NULL: the process's own pool */
  void *parallel_user;
  tw_allocate allocate;         /* NULL: outputs are the context's, until its next run */
  void *allocate_user;
  tw_profile profile;           /* NULL: no profiling */
  void *profile_user;
} tw_context_options;

TW_API tw_status tw_context_create(tw_model *model, const tw_context_options *options,
                                   tw_context **context);
TW_API void tw_context_close(tw_context *context); /* NULL is allowed */
TW_API tw_status tw_context_profile(tw_context *context, tw_profile profile, void *user);
/* Runs the model once. An input of kind TW_NONE has its default. An output of kind TW_TENSOR is memory of the caller's, of exactly the
   output's dtype and shape, and must not overlap an input or another output; one of kind TW_NONE is
   filled in from the allocator, else from memory that the context owns until its next run. Shapes
   of outputs belong to the context likewise. After a failure their contents are undefined. */
TW_API tw_status tw_context_run(tw_context *context, const tw_value *inputs, int32_t input_count,
                                tw_value *outputs, int32_t output_count);

/* Ends the run in progress, from any thread or from a signal handler: it returns
   TW_ERROR_CANCELLED within a fraction of a second, with no result. Without a run it does nothing,
   and the next run is an ordinary one. */
TW_API void tw_context_cancel(tw_context *context); /* NULL is allowed */

/* ---- Everything else ---- */

TW_API int32_t tw_version(void);          /* TW_VERSION of the library that was loaded */
/* What threads = 0 means in this process: TILEWRIGHT_NUM_THREADS, else OMP_NUM_THREADS, else the
   processors that are granted. 0 if the first is set to what is no number from 1 on: a failure. */
TW_API int32_t tw_default_threads(void);
/* The message of the calling thread's last failed call; never NULL. */
TW_API const char *tw_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
