/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a compiled model once on raw files, on a machine without Python.
 *
 *     run_on_files MODEL.tw THREADS OUTPUT_PREFIX [DIMS:FILE ...]
 *
 * There is one DIMS:FILE for each input in order, as 1x3x224x224:image.raw. Output number i is
 * written to OUTPUT_PREFIX followed by i, and its dims are printed, one line for each output.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

enum { MAX_PORTS = 256, MAX_RANK = 16 };

static void fail(const char *what, const char *name) {
  fprintf(stderr, "%s '%s'.\n", what, name);
  exit(1);
}

static void check(tw_status status) {
  if (!status) return;
  fprintf(stderr, "%d: %s\n", (int)status, tw_last_error());
  exit(1);
}

static size_t tensor_bytes(const tw_dl_tensor *tensor) {
  size_t elements = 1;
  for (int axis = 0; axis < tensor->rank; axis++) elements *= (size_t)tensor->shape[axis];
  return elements * ((tensor->dtype.bits + 7u) / 8);
}

/* Parses DIMS:FILE and reads the file; the shape is written to `shape`. */
static void read_tensor(char *text, int32_t dtype, int64_t *shape, tw_value *value) {
  tw_dl_dtype type;
  int32_t rank = 0;
  char *at = text;
  check(tw_dtype_to_dlpack(dtype, &type));
  while (*at != ':') {
    char *end;
    if (rank == MAX_RANK) fail("Too many dims in", text);
    shape[rank++] = strtoll(at, &end, 10);
    if (end == at || (*end != 'x' && *end != ':')) fail("There are no dims in", text);
    at = *end == 'x' ? end + 1 : end;
  }
  value->kind = TW_TENSOR;
  value->as.tensor = (tw_dl_tensor){.device = {1, 0}, .rank = rank, .dtype = type, .shape = shape};
  size_t bytes = tensor_bytes(&value->as.tensor);
  FILE *file = fopen(at + 1, "rb");
  value->as.tensor.data = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (!file || !value->as.tensor.data || fread(value->as.tensor.data, 1, bytes, file) != bytes)
    fail("Cannot read", at + 1);
  fclose(file);
}

static void write_tensor(const char *prefix, int number, const tw_dl_tensor *tensor) {
  char path[4096];
  size_t bytes = tensor_bytes(tensor);
  snprintf(path, sizeof path, "%s%d", prefix, number);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(tensor->data, 1, bytes, file) != bytes || fclose(file))
    fail("Cannot write", path);
  for (int axis = 0; axis < tensor->rank; axis++) printf("%lld ", (long long)tensor->shape[axis]);
  printf("\n");
}

int main(int count, char **arguments) {
  static tw_value inputs[MAX_PORTS], outputs[MAX_PORTS]; /* zeros: outputs of kind TW_NONE */
  static int64_t shapes[MAX_PORTS][MAX_RANK];
  tw_context_options options = {.size = sizeof options};
  tw_model *model;
  tw_context *context;
  const tw_port *port;
  if (count < 4) fail("Usage: run_on_files MODEL.tw THREADS OUTPUT_PREFIX [DIMS:FILE ...], not",
                      arguments[0]);
  options.threads = atoll(arguments[2]);
  check(tw_model_open(arguments[1], NULL, &model));
  int32_t output_count = tw_model_output_count(model);
  if (count - 4 > MAX_PORTS || output_count > MAX_PORTS) fail("Too many ports in", arguments[1]);
  for (int i = 0; i < count - 4; i++) {
    check(tw_model_input(model, i, &port));
    read_tensor(arguments[4 + i], port->dtype, shapes[i], &inputs[i]);
  }
  check(tw_context_create(model, &options, &context));
  check(tw_context_run(context, inputs, count - 4, outputs, output_count));
  for (int32_t i = 0; i < output_count; i++) write_tensor(arguments[3], i, &outputs[i].as.tensor);
  tw_context_close(context); /* the outputs' memory goes with it */
  tw_model_close(model);
  for (int i = 0; i < count - 4; i++) free(inputs[i].as.tensor.data);
  return 0;
}
