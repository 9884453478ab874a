/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ABI between generated code and the runtime.
 *
 * Code generation knows this layout by heart (all targets are 64-bit), so a change here is a new
 * artifact format. A model's code is one position-independent image without external symbols: all
 * that it needs from outside arrives through the table of services.
 *
 * Two kinds of functions live in an image. A *kernel* runs the tasks [begin, end) of one fused
 * group; tasks are independent of each other and their number never depends on the threads present.
 * The *host program* is the entry: it reads shapes, checks, computes offsets and launches kernels.
 * Both return 0, or a status that stops the run.
 *
 * Memory. The data of inputs and outputs is aligned to its element (a complex number: to its
 * parts); constants, arena and workspace are aligned to 64 bytes. Pointers are never null, also for
 * empty tensors.
 */
#ifndef TW_ABI_H
#define TW_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. Codes are stored in artifacts and never change; runtime/dtypes.py mirrors them. */
enum tw_dtype {
  TW_BOOL = 1, /* one byte, 0 or 1 */
  TW_INT8 = 2,
  TW_INT16 = 3,
  TW_INT32 = 4,
  TW_INT64 = 5,
  TW_UINT8 = 6,
  TW_UINT16 = 7,
  TW_UINT32 = 8,
  TW_UINT64 = 9,
  TW_FLOAT16 = 10,
  TW_BFLOAT16 = 11,
  TW_FLOAT32 = 12,
  TW_FLOAT64 = 13,
  TW_COMPLEX64 = 14,
  TW_COMPLEX128 = 15,
  TW_FLOAT8_E4M3FN = 16,
  TW_FLOAT8_E4M3FNUZ = 17,
  TW_FLOAT8_E5M2 = 18,
  TW_FLOAT8_E5M2FNUZ = 19,
  TW_FLOAT8_E8M0FNU = 20,
  TW_INT4 = 21, /* the types of 4 and 2 bits take one byte an element, as in ml_dtypes */
  TW_UINT4 = 22,
  TW_INT2 = 23,
  TW_UINT2 = 24,
  TW_FLOAT4_E2M1FN = 25,
  TW_STRING = 26 /* reserved: named, but refused by this runtime */
};

typedef union tw_arg {
  void *pointer;
  int64_t integer;
} tw_arg;

/* Runs the tasks begin <= task < end. `workspace` is scratch of the executing thread alone. `args`
   are the buffers, then the sizes, then the address of the state of the run, which a kernel that
   may take long reads now and then: above 1 it returns TW_ERROR_CANCELLED. */
typedef int32_t (*tw_kernel)(const tw_arg *args, int64_t begin, int64_t end, void *workspace);

/* A tensor, compact and row-major. 24 bytes: data 0, shape 8, rank 16, dtype 20. */
typedef struct tw_tensor {
  void *data;
  const int64_t *shape;
  int32_t rank;
  int32_t dtype; /* enum tw_dtype */
} tw_tensor;

/* What the runtime does for a host program. `call` is the host program's own first argument. */
typedef struct tw_services {
  int64_t size;   /* of this struct in bytes; grows when services are added */
  int64_t direct; /* 1: kernels may be called directly; 0: profiling, every kernel goes by launch */

  /* Runs all tasks of a kernel, in parallel where that pays; returns 0 or the failing status, which
     the host program must return. `call_id` is an index into the manifest's "kernels". */
  int32_t (*launch)(void *call, tw_kernel fn, const tw_arg *args, int64_t tasks,
                    int64_t workspace_bytes, int64_t call_id);

  /* The context's arena: at least `bytes`, aligned to 64; contents are not kept between runs. A
     later call in the same run invalidates the pointer. NULL: out of memory; the message is set, and
     the host program may set one that names values, by `fail` with TW_ERROR_MEMORY. */
  void *(*arena)(void *call, int64_t bytes);

  /* Scratch of the calling thread for direct kernel calls; valid until the next call of workspace
     or launch. NULL: out of memory; the host program goes on by launch, which says of what. */
  void *(*workspace)(void *call, int64_t bytes);

  /* The data pointer of an output of the given shape. Every output must be asked for once in a
     successful run. NULL: the shape does not fit what the caller supplied, or out of memory; the
     message is set, and the host program returns any non-zero status. */
  void *(*output)(void *call, int32_t index, int32_t rank, const int64_t *shape);

  /* Sets the message of a failing run: text `message` of the manifest's "messages", where {0} to
     {9} stand for values. `status` is a tw_status (TW_ERROR_INPUT for shapes that the caller fed
     wrongly, TW_ERROR_INDEX for an index out of range). Returns the status, for the host program
     to return. */
  int32_t (*fail)(void *call, int32_t status, int32_t message, const int64_t *values,
                  int32_t count);

  /* The state of the run: 1, and more once it is to end. The last argument of every kernel. */
  const volatile int32_t *state;
} tw_services;

/* The entry of an image. `inputs` is in the order of the manifest, `constants` likewise. */
typedef int32_t (*tw_host)(void *call, const tw_services *services, const tw_tensor *inputs,
                           void *const *constants);

#ifdef __cplusplus
}
#endif

#endif
