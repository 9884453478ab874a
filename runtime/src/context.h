/* SPDX-License-Identifier: Apache-2.0 */
/* A context: what one thread needs to run a model. context.c makes it, run.c checks and runs,
   services.c serves the host program, launch.c runs kernels. */
#ifndef TW_CONTEXT_H
#define TW_CONTEXT_H

#include "core.h"

typedef struct tw_output_row {
  tw_scratch memory; /* the context's own buffer, made when first needed */
  int64_t *shape;    /* room for the output's rank */
  void *data;        /* of this run; NULL: not provided yet */
  uint64_t bytes;
} tw_output_row;

/* Scratch of the threads of a caller's own parallel loop: whoever finds a free slot takes it. */
typedef struct tw_slot {
  _Alignas(64) _Atomic int taken;
  tw_scratch scratch;
} tw_slot;

struct tw_context {
  tw_services services;
  tw_model *model;
  tw_context_options options;
  _Atomic int32_t state; /* one of those below; kernels read it */
  int threads;
  tw_zone *zone; /* of the tables below */
  tw_tensor *inputs;
  uint64_t *input_bytes;
  int64_t *bindings; /* of the model's symbols in this run; -1: not bound */
  tw_output_row *outputs;
  const tw_value *given; /* the caller's outputs in this run */
  tw_status failure;     /* 0, or the status of a failure whose message is set */
  tw_scratch arena;
  tw_scratch workspace;
  tw_slot *slots; /* TW_MAX_THREADS of them, if the caller has a parallel loop of its own */
};

enum { TW_IDLE = 0, TW_RUNNING = 1, TW_CANCELLED = 2 };

extern const char tw_cancelled[]; /* the sentence of a run that is */

static inline bool tw_context_is_cancelled(const tw_context *context) {
  return atomic_load_explicit(&context->state, memory_order_relaxed) == TW_CANCELLED;
}

/* Where data pointers of empty tensors and scratch of zero bytes point. */
extern char tw_nothing[64];

/* Records a failure (its message is set already); the first one counts. Returns its status. */
tw_status tw_context_fail(tw_context *context, tw_status status);

/* Checks a tensor of the caller's (kind, device, dtype, rank, strides, pointer) against its port.
   `what` is "Input" or "Output"; *bytes and *data are its extent in memory. */
tw_status tw_value_check(const tw_value *value, const tw_port_row *row, const char *what,
                         uint64_t *bytes, void **data);

/* ---- the services; `call` is the context ---- */

int32_t tw_service_launch(void *call, tw_kernel kernel, const tw_arg *args, int64_t tasks,
                          int64_t workspace_bytes, int64_t call_id);
void *tw_service_arena(void *call, int64_t bytes);
void *tw_service_workspace(void *call, int64_t bytes);
void *tw_service_output(void *call, int32_t index, int32_t rank, const int64_t *shape);
int32_t tw_service_fail(void *call, int32_t status, int32_t message, const int64_t *values,
                        int32_t count);

#endif
