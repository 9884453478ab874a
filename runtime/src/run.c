/* SPDX-License-Identifier: Apache-2.0 */
/* One run of a model: the caller's values are checked, the host program is called, the outputs are
   described. */
#include "context.h"

#include <string.h>

const char tw_cancelled[] = "The run was cancelled.";

tw_status tw_context_fail(tw_context *context, tw_status status) {
  if (!context->failure) context->failure = status;
  return context->failure;
}

bool tw_shape_bytes(const tw_dtype_row *dtype, int32_t rank, const int64_t *shape,
                    uint64_t *bytes) {
  uint64_t total = dtype->bytes;
  bool empty = false;
  for (int32_t axis = 0; axis < rank; axis++) {
    if (shape[axis] < 0) return false;
    if (!shape[axis])
      empty = true; /* the other extents must not overflow either: host programs multiply them */
    else if (__builtin_mul_overflow(total, (uint64_t)shape[axis], &total) || total > INT64_MAX)
      return false;
  }
  *bytes = empty ? 0 : total;
  return true;
}

static bool is_compact(const tw_dl_tensor *tensor) {
  int64_t step = 1;
  if (!tensor->strides) return true;
  for (int32_t axis = tensor->rank - 1; axis >= 0; axis--) {
    if (tensor->shape[axis] == 0) return true;
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != step) {
      for (int32_t other = 0; other < axis; other++)
        if (tensor->shape[other] == 0) return true; /* no element: strides do not matter */
      return false;
    }
    step *= tensor->shape[axis];
  }
  return true;
}

static tw_status wrong_dtype(const tw_dl_dtype *dtype, const tw_port_row *row, const char *what) {
  const char *name = tw_dtype_name(tw_dtype_from_dlpack(*dtype));
  return tw_fail(TW_ERROR_INPUT, "%s %q is %s, but the model expects %s.", what, row->port.name,
                 name ? name : "of an unknown dtype", row->dtype->name);
}

tw_status tw_value_check(const tw_value *value, const tw_port_row *row, const char *what,
                         uint64_t *bytes, void **data) {
  const tw_dl_tensor *tensor = &value->as.tensor;
  const char *name = row->port.name;
  if (value->kind != TW_TENSOR)
    return tw_fail(TW_ERROR_INPUT, "%s %q is no tensor: its kind is %d.", what, name,
                   (int64_t)value->kind);
  if (tensor->device.type != TW_DL_CPU)
    return tw_fail(TW_ERROR_INPUT, "%s %q is on device type %d, but must be in the CPU's memory.",
                   what, name, (int64_t)tensor->device.type);
  if (tensor->dtype.code != row->dtype->code || tensor->dtype.bits != row->dtype->bits ||
      tensor->dtype.lanes != 1)
    return wrong_dtype(&tensor->dtype, row, what);
  if (tensor->rank != row->port.rank)
    return tw_fail(TW_ERROR_INPUT, "%s %q has rank %d, but the model expects rank %d.", what, name,
                   (int64_t)tensor->rank, (int64_t)row->port.rank);
  if (tensor->rank && !tensor->shape)
    return tw_fail(TW_ERROR_ARGUMENT, "The shape of %q is null.", name);
  if (!tw_shape_bytes(row->dtype, tensor->rank, tensor->shape, bytes))
    return tw_fail(TW_ERROR_INPUT, "The shape of %q has a negative extent or is too large.", name);
  if (!is_compact(tensor))
    return tw_fail(TW_ERROR_INPUT, "%s %q is not contiguous.", what, name);
  if (!*bytes) {
    *data = tw_nothing;
    return TW_OK;
  }
  if (!tensor->data) return tw_fail(TW_ERROR_ARGUMENT, "The data of %q is null.", name);
  *data = (char *)tensor->data + tensor->byte_offset;
  if ((uintptr_t)*data % row->dtype->alignment)
    return tw_fail(TW_ERROR_INPUT, "The data of %q is not aligned to %d bytes.", name,
                   (int64_t)row->dtype->alignment);
  if ((uintptr_t)*data > UINTPTR_MAX - *bytes)
    return tw_fail(TW_ERROR_ARGUMENT, "The data of %q runs past the end of memory.", name);
  return TW_OK;
}

static tw_status wrong_extent(const tw_port_row *row, int32_t axis, int64_t extent,
                              const tw_symbol *symbol, int64_t bound) {
  const char *name = row->port.name;
  if (!symbol)
    return tw_fail(TW_ERROR_INPUT, "Dim %d of input %q is %d, but the model expects %d.",
                   (int64_t)axis, name, extent, bound);
  if (bound >= 0)
    return tw_fail(TW_ERROR_INPUT,
                   "Dim %d of input %q is %d, but %q is %d elsewhere in the inputs.", (int64_t)axis,
                   name, extent, symbol->name, bound);
  if (extent >= symbol->lo && extent <= symbol->hi)
    return tw_fail(TW_ERROR_INPUT, "Dim %d of input %q is %d, but %q must be a multiple of %d.",
                   (int64_t)axis, name, extent, symbol->name, symbol->multiple);
  if (symbol->hi == INT64_MAX)
    return tw_fail(TW_ERROR_INPUT, "Dim %d of input %q is %d, but %q must be at least %d.",
                   (int64_t)axis, name, extent, symbol->name, symbol->lo);
  return tw_fail(TW_ERROR_INPUT, "Dim %d of input %q is %d, but %q must be from %d to %d.",
                 (int64_t)axis, name, extent, symbol->name, symbol->lo, symbol->hi);
}

/* Checks the extents of an input; a dim that is plainly a symbol binds it. */
static tw_status bind_shape(tw_context *context, const tw_port_row *row, const int64_t *shape,
                            int64_t *copy) {
  for (int32_t axis = 0; axis < row->port.rank; axis++) {
    int64_t extent = copy[axis] = shape[axis];
    int64_t expected = row->port.extents[axis];
    int32_t index = row->symbols[axis];
    if (expected >= 0) {
      if (extent != expected) return wrong_extent(row, axis, extent, NULL, expected);
    } else if (index >= 0) {
      const tw_symbol *symbol = &context->model->symbols[index];
      int64_t bound = context->bindings[index];
      if (bound >= 0 ? bound != extent
                     : extent < symbol->lo || extent > symbol->hi || extent % symbol->multiple)
        return wrong_extent(row, axis, extent, symbol, bound);
      context->bindings[index] = extent;
    }
  }
  return TW_OK;
}

/* Checks all inputs; *replaced says whether the call gives one that has a default. */
static tw_status bind_inputs(tw_context *context, const tw_value *values, bool *replaced) {
  const tw_model *model = context->model;
  *replaced = false;
  for (int32_t index = 0; index < model->symbol_count; index++) context->bindings[index] = -1;
  for (int32_t index = 0; index < model->input_count; index++) {
    const tw_port_row *row = &model->inputs[index];
    const tw_value *value = values[index].kind == TW_NONE ? &row->fallback : &values[index];
    tw_tensor *tensor = &context->inputs[index];
    *replaced |= value != &row->fallback && row->fallback.kind != TW_NONE;
    if (value->kind == TW_NONE)
      return tw_fail(TW_ERROR_INPUT, "Input %q is missing, and has no default.", row->port.name);
    tw_status status =
        tw_value_check(value, row, "Input", &context->input_bytes[index], &tensor->data);
    if (!status)
      status = bind_shape(context, row, value->as.tensor.shape, (int64_t *)tensor->shape);
    if (status) return status;
  }
  return TW_OK;
}

/* Describes the outputs of a run that succeeded. */
static tw_status describe_outputs(tw_context *context, tw_value *outputs) {
  for (int32_t index = 0; index < context->model->output_count; index++) {
    const tw_port_row *row = &context->model->outputs[index];
    const tw_output_row *output = &context->outputs[index];
    if (!output->data)
      return tw_fail(TW_ERROR_RUN, "The model did not provide its output %q.", row->port.name);
    if (outputs[index].kind == TW_TENSOR) continue;
    outputs[index].kind = TW_TENSOR;
    outputs[index].as.tensor = (tw_dl_tensor){
        output->data,  {TW_DL_CPU, 0}, row->port.rank, {row->dtype->code, row->dtype->bits, 1},
        output->shape, NULL,        0};
  }
  return TW_OK;
}

static tw_status run(tw_context *context, const tw_value *inputs, tw_value *outputs) {
  const tw_model *model = context->model;
  bool replaced;
  tw_status status = bind_inputs(context, inputs, &replaced);
  if (status) return status;
  context->failure = TW_OK;
  context->given = outputs;
  for (int32_t index = 0; index < model->output_count; index++) {
    if (outputs[index].kind != TW_NONE && outputs[index].kind != TW_TENSOR)
      return tw_fail(TW_ERROR_ARGUMENT, "Output %q has the kind %d, but must be none or a tensor.",
                     model->outputs[index].port.name, (int64_t)outputs[index].kind);
    context->outputs[index].data = NULL;
    context->outputs[index].bytes = 0;
  }
  tw_host entry = replaced || !model->defaults_entry ? model->entry : model->defaults_entry;
  int32_t result = entry(context, &context->services, context->inputs, model->constants);
  if (context->failure) return context->failure;
  if (result && tw_context_is_cancelled(context)) return tw_fail(TW_ERROR_CANCELLED, "%s", tw_cancelled);
  if (result) return tw_fail(TW_ERROR_RUN, "The model stopped with status %d.", (int64_t)result);
  return describe_outputs(context, outputs);
}

tw_status tw_context_run(tw_context *context, const tw_value *inputs, int32_t input_count,
                         tw_value *outputs, int32_t output_count) {
  if (!context) return tw_fail(TW_ERROR_ARGUMENT, "The context is null.");
  const tw_model *model = context->model;
  if (input_count != model->input_count || output_count != model->output_count)
    return tw_fail(TW_ERROR_ARGUMENT,
                   "The call has %d inputs and %d outputs, but the model has %d and %d.",
                   (int64_t)input_count, (int64_t)output_count, (int64_t)model->input_count,
                   (int64_t)model->output_count);
  if ((input_count && !inputs) || (output_count && !outputs))
    return tw_fail(TW_ERROR_ARGUMENT, "The array of inputs or outputs is null.");
  int32_t idle = TW_IDLE;
  if (!atomic_compare_exchange_strong_explicit(&context->state, &idle, TW_RUNNING,
                                               memory_order_acquire, memory_order_relaxed))
    return tw_fail(TW_ERROR_STATE, "The context is running: use one context for each thread.");
  tw_status status = tw_model_check_file(model);
  if (!status) status = run(context, inputs, outputs);
  if (!status) status = tw_model_check_file(model); /* else some of the constants may be others */
  atomic_store_explicit(&context->state, TW_IDLE, memory_order_release);
  return status;
}
