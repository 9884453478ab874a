/* SPDX-License-Identifier: Apache-2.0 */
/* What the runtime does for a running host program: memory, outputs, messages. */
#include "context.h"

#include <string.h>

void *tw_service_arena(void *call, int64_t bytes) {
  tw_context *context = call;
  void *memory = tw_scratch_reserve(&context->arena, bytes);
  if (!memory)
    tw_context_fail(context, tw_fail(TW_ERROR_MEMORY,
                                     "Out of memory: the model needs %d bytes of arena.", bytes));
  return memory;
}

void *tw_service_workspace(void *call, int64_t bytes) {
  return tw_scratch_reserve(&((tw_context *)call)->workspace, bytes);
}

int32_t tw_service_fail(void *call, int32_t status, int32_t message, const int64_t *values,
                        int32_t count) {
  tw_context *context = call;
  const tw_model *model = context->model;
  tw_text text;
  if (status < TW_ERROR_ARGUMENT || status > TW_ERROR_INDEX) status = TW_ERROR_RUN;
  /* The host program knows which values need the memory that a service did not get. */
  bool tells_more = context->failure == TW_ERROR_MEMORY && status == TW_ERROR_MEMORY;
  if (context->failure && !tells_more) return context->failure;
  tw_fail_begin(&text);
  if (message < 0 || message >= model->message_count) {
    tw_text_add(&text, "The model stopped with message number ");
    tw_text_add_integer(&text, message);
    tw_text_add(&text, ".");
    return (int32_t)tw_context_fail(context, (tw_status)status);
  }
  for (const char *at = model->messages[message]; *at; at++) {
    if (at[0] == '{' && at[1] >= '0' && at[1] <= '9' && at[2] == '}' && values &&
        at[1] - '0' < count) {
      tw_text_add_integer(&text, values[at[1] - '0']);
      at += 2;
    } else {
      char one[2] = {*at, 0};
      tw_text_add(&text, one);
    }
  }
  return (int32_t)tw_context_fail(context, (tw_status)status);
}

static bool overlaps(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes) {
  return a_bytes && b_bytes && (uintptr_t)a < (uintptr_t)b + b_bytes &&
         (uintptr_t)b < (uintptr_t)a + a_bytes;
}

/* Memory that is about to be written must not be read in this run, nor be another output. */
static tw_status check_overlap(const tw_context *context, int32_t index, const void *data,
                               uint64_t bytes) {
  const tw_model *model = context->model;
  const char *name = model->outputs[index].port.name;
  for (int32_t input = 0; input < model->input_count; input++)
    if (overlaps(data, bytes, context->inputs[input].data, context->input_bytes[input]))
      return tw_fail(TW_ERROR_INPUT, "The memory of output %q overlaps input %q.", name,
                     model->inputs[input].port.name);
  for (int32_t other = 0; other < model->output_count; other++)
    if (other != index && context->outputs[other].data &&
        overlaps(data, bytes, context->outputs[other].data, context->outputs[other].bytes))
      return tw_fail(TW_ERROR_INPUT, "The memory of output %q overlaps output %q.", name,
                     model->outputs[other].port.name);
  return TW_OK;
}

static tw_status wrong_shape(const char *begin, const char *name, int32_t rank,
                             const int64_t *shape, const char *middle, int32_t other_rank,
                             const int64_t *other, tw_status status) {
  tw_text text;
  tw_fail_begin(&text);
  tw_text_add(&text, begin);
  tw_text_add_quoted(&text, name);
  tw_text_add(&text, " has the shape ");
  tw_text_add_shape(&text, rank, shape);
  tw_text_add(&text, middle);
  if (other) tw_text_add_shape(&text, other_rank, other);
  tw_text_add(&text, ".");
  return status;
}

/* The caller's own memory for an output, if it fits. */
static tw_status supplied_output(tw_context *context, int32_t index, const int64_t *shape,
                                 void **data) {
  const tw_port_row *row = &context->model->outputs[index];
  const tw_value *value = &context->given[index];
  uint64_t bytes = 0;
  tw_status status = tw_value_check(value, row, "Output", &bytes, data);
  if (status) return status;
  for (int32_t axis = 0; axis < row->port.rank; axis++)
    if (value->as.tensor.shape[axis] != shape[axis])
      return wrong_shape("Output ", row->port.name, row->port.rank, shape,
                         ", but the memory supplied for it has the shape ", row->port.rank,
                         value->as.tensor.shape, TW_ERROR_INPUT);
  return check_overlap(context, index, *data, bytes);
}

/* Memory for an output from the caller's allocator, or the context's own. */
static tw_status new_output(tw_context *context, int32_t index, const int64_t *shape,
                            uint64_t bytes, void **data) {
  const tw_port_row *row = &context->model->outputs[index];
  if (context->options.allocate) {
    *data = context->options.allocate(context->options.allocate_user, index, row->port.rank, shape);
    if (!bytes) *data = tw_nothing;
    if (!*data)
      return tw_fail(TW_ERROR_MEMORY, "The allocator gave no memory for output %q of %d bytes.",
                     row->port.name, (int64_t)bytes);
    if ((uintptr_t)*data % row->dtype->alignment)
      return tw_fail(TW_ERROR_ARGUMENT,
                     "The allocator's memory for output %q is not aligned to %d bytes.",
                     row->port.name, (int64_t)row->dtype->alignment);
    return check_overlap(context, index, *data, bytes);
  }
  /* An input may be an output of the last run: its memory must neither be freed nor written. */
  tw_scratch *memory = &context->outputs[index].memory;
  tw_status status = check_overlap(context, index, memory->data, memory->bytes);
  if (status) return status;
  *data = tw_scratch_reserve(memory, (int64_t)bytes);
  if (*data) return TW_OK;
  return tw_fail(TW_ERROR_MEMORY, "Out of memory: output %q has %d bytes.", row->port.name,
                 (int64_t)bytes);
}

/* Checks a shape that the host program computed; fills in the bytes. */
static tw_status check_output(const tw_context *context, int32_t index, int32_t rank,
                              const int64_t *shape, uint64_t *bytes) {
  const tw_model *model = context->model;
  if (index < 0 || index >= model->output_count || (rank && !shape))
    return tw_fail(TW_ERROR_RUN, "The model asked for output %d of %d.", (int64_t)index,
                   (int64_t)model->output_count);
  const tw_port_row *row = &model->outputs[index];
  bool fits = rank == row->port.rank;
  for (int32_t axis = 0; fits && axis < rank; axis++)
    fits = row->port.extents[axis] < 0 || row->port.extents[axis] == shape[axis];
  if (fits && tw_shape_bytes(row->dtype, rank, shape, bytes)) return TW_OK;
  if (rank < 0 || rank > TW_MAX_RANK) rank = 0;
  return wrong_shape("The model computed that output ", row->port.name, rank, shape,
                     ", which is not possible", 0, NULL, TW_ERROR_RUN);
}

void *tw_service_output(void *call, int32_t index, int32_t rank, const int64_t *shape) {
  tw_context *context = call;
  uint64_t bytes = 0;
  void *data = NULL;
  if (context->failure) return NULL;
  tw_status status = check_output(context, index, rank, shape, &bytes);
  if (!status) {
    tw_output_row *output = &context->outputs[index];
    if (output->data) {
      if (!memcmp(output->shape, shape, (size_t)rank * sizeof *shape)) return output->data;
      status = tw_fail(TW_ERROR_RUN, "The model asked twice for output %q.",
                       context->model->outputs[index].port.name);
    } else if (context->given[index].kind == TW_TENSOR) {
      status = supplied_output(context, index, shape, &data);
    } else {
      status = new_output(context, index, shape, bytes, &data);
    }
    if (!status) {
      if (rank) memcpy(output->shape, shape, (size_t)rank * sizeof *shape);
      output->data = data;
      output->bytes = bytes;
      return data;
    }
  }
  tw_context_fail(context, status);
  return NULL;
}
