/* SPDX-License-Identifier: Apache-2.0 */
/* Making and closing contexts, and how many threads they use. */
#include "context.h"

#include <string.h>

_Alignas(64) char tw_nothing[64];

/* The integer that a text begins with, but TW_MAX_THREADS at most; `*end` is set to what follows. */
static int64_t read_integer(const char *at, const char **end) {
  int64_t value = 0;
  while (*at == ' ') at++;
  for (; *at >= '0' && *at <= '9'; at++)
    if (value < TW_MAX_THREADS) value = value * 10 + (*at - '0');
  *end = at;
  return value < TW_MAX_THREADS ? value : TW_MAX_THREADS;
}

int32_t tw_default_threads(void) {
  static const char name[] = "TILEWRIGHT_NUM_THREADS";
  const char *text = tw_os_environment(name), *end;
  int64_t threads = 0;
  if (text && *text) {
    threads = read_integer(text, &end);
    while (*end == ' ') end++;
    if (*end || !threads) {
      tw_fail(TW_ERROR_ARGUMENT,
              "The environment variable %s is %q, but must be an integer from 1 on.", name, text);
      return 0;
    }
    return (int32_t)threads;
  }
  text = tw_os_environment("OMP_NUM_THREADS"); /* may be a list; its first number counts */
  if (text) threads = read_integer(text, &end);
  if (!threads) threads = tw_os_processors();
  return threads < TW_MAX_THREADS ? (int32_t)threads : TW_MAX_THREADS;
}

/* The tables whose size the model sets; false when out of memory. */
static bool make_tables(tw_context *context) {
  const tw_model *model = context->model;
  size_t inputs = (size_t)model->input_count, outputs = (size_t)model->output_count;
  size_t symbols = (size_t)model->symbol_count;
  tw_zone **zone = &context->zone;
  context->inputs = tw_zone_allocate(zone, (inputs + 1) * sizeof *context->inputs);
  context->input_bytes = tw_zone_allocate(zone, (inputs + 1) * sizeof *context->input_bytes);
  context->bindings = tw_zone_allocate(zone, (symbols + 1) * sizeof *context->bindings);
  context->outputs = tw_zone_allocate(zone, (outputs + 1) * sizeof *context->outputs);
  if (!context->inputs || !context->input_bytes || !context->bindings || !context->outputs)
    return false;
  for (size_t index = 0; index < inputs; index++) {
    const tw_port *port = &model->inputs[index].port;
    int64_t *shape = tw_zone_allocate(zone, ((size_t)port->rank + 1) * sizeof *shape);
    if (!shape) return false;
    context->inputs[index] = (tw_tensor){NULL, shape, port->rank, port->dtype};
  }
  for (size_t index = 0; index < outputs; index++) {
    size_t rank = (size_t)model->outputs[index].port.rank;
    context->outputs[index].shape = tw_zone_allocate(zone, (rank + 1) * sizeof(int64_t));
    if (!context->outputs[index].shape) return false;
  }
  if (context->options.parallel_for) {
    size_t bytes = TW_MAX_THREADS * sizeof *context->slots;
    context->slots = tw_os_allocate(bytes);
    if (!context->slots) return false;
    memset(context->slots, 0, bytes);
  }
  return true;
}

tw_status tw_context_create(tw_model *model, const tw_context_options *options,
                            tw_context **result) {
  if (!result) return tw_fail(TW_ERROR_ARGUMENT, "The pointer to the context is null.");
  *result = NULL;
  if (!model) return tw_fail(TW_ERROR_ARGUMENT, "The model is null.");
  if (options && options->size != sizeof *options)
    return tw_fail(TW_ERROR_ARGUMENT, "The size of the context options is %d, but should be %d.",
                   options->size, (int64_t)sizeof *options);
  if (options && (options->threads < 0 || options->threads > TW_MAX_THREADS))
    return tw_fail(TW_ERROR_ARGUMENT, "The number of threads is %d, but must be from 0 to %d.",
                   options->threads, (int64_t)TW_MAX_THREADS);
  int threads = options ? (int)options->threads : 0;
  if (!threads) threads = tw_default_threads();
  if (!threads) return TW_ERROR_ARGUMENT; /* the sentence is there */
  tw_context *context = tw_os_allocate(sizeof *context);
  if (!context) return tw_fail(TW_ERROR_MEMORY, "Out of memory while a context is made.");
  memset(context, 0, sizeof *context);
  tw_model_retain(model);
  context->model = model;
  if (options) context->options = *options;
  context->threads = threads;
  context->services = (tw_services){sizeof(tw_services), !context->options.profile,
                                    tw_service_launch,   tw_service_arena,
                                    tw_service_workspace, tw_service_output,
                                    tw_service_fail,
                                    (const volatile int32_t *)&context->state};
  if (!make_tables(context)) {
    tw_context_close(context);
    return tw_fail(TW_ERROR_MEMORY, "Out of memory while a context is made.");
  }
  *result = context;
  return TW_OK;
}

void tw_context_close(tw_context *context) {
  if (!context) return;
  if (context->outputs)
    for (int32_t index = 0; index < context->model->output_count; index++)
      tw_scratch_free(&context->outputs[index].memory);
  if (context->slots)
    for (int index = 0; index < TW_MAX_THREADS; index++)
      tw_scratch_free(&context->slots[index].scratch);
  tw_os_free(context->slots);
  tw_scratch_free(&context->arena);
  tw_scratch_free(&context->workspace);
  for (tw_zone *zone = context->zone, *next; zone; zone = next) {
    next = zone->next;
    tw_os_free(zone);
  }
  tw_model_close(context->model);
  tw_os_free(context);
}

tw_status tw_context_profile(tw_context *context, tw_profile profile, void *user) {
  if (!context) return tw_fail(TW_ERROR_ARGUMENT, "The context is null.");
  if (atomic_load(&context->state) != TW_IDLE)
    return tw_fail(TW_ERROR_STATE, "The context is running.");
  context->options.profile = profile;
  context->options.profile_user = user;
  context->services.direct = !profile;
  return TW_OK;
}

void tw_context_cancel(tw_context *context) {
  int32_t running = TW_RUNNING;
  if (context) atomic_compare_exchange_strong(&context->state, &running, TW_CANCELLED);
}
