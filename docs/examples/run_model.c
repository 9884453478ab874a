/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a compiled model, prints its ports, runs it once on zeros and prints the first values of
 * each output.
 *
 *     run_model MODEL.tw [SIZE]
 *
 * SIZE is used for every symbolic dim; 1 unless given. `python docs/examples/build.py` builds it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

enum { MAX_PORTS = 64, MAX_RANK = 16, SHOWN = 10 };

static void check(tw_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", tw_last_error());
  exit(1);
}

static void print_port(const char *word, const tw_port *port) {
  printf("%s %s: %s[", word, port->name, tw_dtype_name(port->dtype));
  for (int axis = 0; axis < port->rank; axis++) {
    const char *comma = axis ? ", " : "";
    if (port->extents[axis] >= 0)
      printf("%s%lld", comma, (long long)port->extents[axis]);
    else
      printf("%s%s", comma, port->dims[axis]);
  }
  printf("]\n");
}

/* A tensor of zeros for an input; every symbolic dim gets `size`. */
static void make_zeros(const tw_port *port, int64_t size, int64_t *shape, tw_value *value) {
  tw_dl_dtype dtype;
  int64_t elements = 1;
  if (port->rank > MAX_RANK) {
    fprintf(stderr, "Input '%s' has more than %d dims.\n", port->name, MAX_RANK);
    exit(1);
  }
  check(tw_dtype_to_dlpack(port->dtype, &dtype));
  for (int axis = 0; axis < port->rank; axis++) {
    shape[axis] = port->extents[axis] >= 0 ? port->extents[axis] : size;
    elements *= shape[axis];
  }
  void *data = calloc((size_t)(elements > 0 ? elements : 1), (size_t)(dtype.bits + 7) / 8);
  if (!data) {
    fprintf(stderr, "Out of memory.\n");
    exit(1);
  }
  value->kind = TW_TENSOR;
  value->as.tensor = (tw_dl_tensor){
      .data = data, .device = {1, 0}, .rank = port->rank, .dtype = dtype, .shape = shape};
}

static void print_values(const tw_dl_tensor *tensor) {
  int64_t elements = 1;
  for (int axis = 0; axis < tensor->rank; axis++) elements *= tensor->shape[axis];
  if (tensor->dtype.code != 2 || tensor->dtype.bits != 32) {
    printf("  %lld elements\n", (long long)elements);
    return;
  }
  const float *values = tensor->data;
  printf(" ");
  for (int64_t i = 0; i < elements && i < SHOWN; i++) printf(" %g", values[i]);
  printf("%s\n", elements > SHOWN ? " ..." : "");
}

int main(int count, char **arguments) {
  static tw_value inputs[MAX_PORTS], outputs[MAX_PORTS]; /* zeros: of kind TW_NONE */
  static int64_t shapes[MAX_PORTS][MAX_RANK];
  tw_model *model;
  tw_context *context;
  const tw_port *port;
  if (count < 2) {
    fprintf(stderr, "Usage: run_model MODEL.tw [SIZE]\n");
    return 2;
  }
  int64_t size = count > 2 ? atoll(arguments[2]) : 1;
  check(tw_model_open(arguments[1], NULL, &model));
  int32_t input_count = tw_model_input_count(model), output_count = tw_model_output_count(model);
  if (input_count > MAX_PORTS || output_count > MAX_PORTS) {
    fprintf(stderr, "The model has more than %d inputs or outputs.\n", MAX_PORTS);
    return 1;
  }
  for (int32_t i = 0; i < input_count; i++) {
    check(tw_model_input(model, i, &port));
    print_port("input ", port);
    if (!port->default_extents) make_zeros(port, size, shapes[i], &inputs[i]); /* else: its default */
  }
  check(tw_context_create(model, NULL, &context));
  check(tw_context_run(context, inputs, input_count, outputs, output_count));
  for (int32_t i = 0; i < output_count; i++) {
    check(tw_model_output(model, i, &port));
    print_port("output", port);
    print_values(&outputs[i].as.tensor);
  }
  tw_context_close(context); /* the outputs' memory goes with it */
  tw_model_close(model);
  for (int32_t i = 0; i < input_count; i++)
    if (inputs[i].kind == TW_TENSOR) free(inputs[i].as.tensor.data);
  return 0;
}
