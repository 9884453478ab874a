/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the C interface as a C program would, and abuses it.
 *
 *     use_runtime use COPY.tw SUM.tw FAILS.tw DEFAULT.tw
 *                                               calls of all kinds, threads, a loop of its own
 *     use_runtime cancel ENDLESS.tw             runs that are ended by threads and by signals
 *     use_runtime damage COPY.tw COUNT          opens COUNT damaged copies with right checksums
 *
 * COPY and SUM are host_copy and host_sum of models.c, DEFAULT is COPY with the default 1, 2, 3 for
 * its input. Prints "ok", or the failed check.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "tilewright.h"

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      printf("line %d: %s; last error: %s\n", __LINE__, #condition, tw_last_error()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static tw_value tensor(void *data, int rank, int64_t *shape) {
  tw_value value = {.kind = TW_TENSOR};
  CHECK(!tw_dtype_to_dlpack(TW_FLOAT32, &value.as.tensor.dtype));
  value.as.tensor.data = data;
  value.as.tensor.device.type = 1;
  value.as.tensor.rank = rank;
  value.as.tensor.shape = shape;
  return value;
}

static unsigned char *read_file(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  CHECK(file);
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  unsigned char *data = aligned_alloc(64, (*bytes + 63) / 64 * 64);
  CHECK(data && fread(data, 1, *bytes, file) == *bytes);
  fclose(file);
  return data;
}

/* ---- ordinary use ---- */

static void use_dtypes(void) {
  int known = 0;
  for (int32_t dtype = -1; dtype < 40; dtype++) {
    tw_dl_dtype found;
    if (tw_dtype_to_dlpack(dtype, &found)) continue;
    known++;
    CHECK(tw_dtype_name(dtype) && found.lanes == 1 && tw_dtype_from_dlpack(found) == dtype);
    tw_dl_dtype vector = found, wider = found, other = found;
    vector.lanes = 2, wider.bits = 77, other.code = 99;
    CHECK(!tw_dtype_from_dlpack(vector) && !tw_dtype_from_dlpack(wider));
    CHECK(!tw_dtype_from_dlpack(other));
  }
  CHECK(known > 12 && tw_dtype_to_dlpack(TW_FLOAT32, NULL) == TW_ERROR_ARGUMENT);
}

static void use_copy(const char *path) {
  tw_model *model;
  tw_context *context;
  const tw_port *port;
  const char *text, *origin;
  size_t bytes;
  CHECK(!tw_model_open(path, NULL, &model));
  CHECK(tw_model_input_count(model) == 1 && tw_model_output_count(model) == 1);
  CHECK(!tw_model_input(model, 0, &port) && !strcmp(port->name, "x") && port->rank == 1);
  CHECK(port->dtype == TW_FLOAT32 && port->extents[0] == -1 && !strcmp(port->dims[0], "n"));
  CHECK(!tw_model_kernel(model, 0, &text, &origin) && !strcmp(origin, "Copy_0"));
  CHECK(!tw_model_manifest(model, &text, &bytes) && bytes > 2 && text[0] == '{');
  CHECK(!tw_context_create(model, NULL, &context));
  tw_model_close(model); /* the context keeps it */

  float x[1000], y[1000];
  int64_t shape[1] = {1000}, strides[1] = {1};
  for (int i = 0; i < 1000; i++) x[i] = (float)i;
  tw_value input = tensor(x, 1, shape), output = {.kind = TW_NONE};
  input.as.tensor.strides = strides;
  CHECK(!tw_context_run(context, &input, 1, &output, 1));
  CHECK(output.kind == TW_TENSOR && output.as.tensor.shape[0] == 1000);
  CHECK(!memcmp(output.as.tensor.data, x, sizeof x));
  /* An output of the last run as the input of the next: it may not be written meanwhile. */
  tw_value again = output;
  output.kind = TW_NONE;
  CHECK(tw_context_run(context, &again, 1, &output, 1) == TW_ERROR_INPUT);
  CHECK(!strcmp(tw_last_error(), "The memory of output 'y' overlaps input 'x'."));
  output = tensor(y, 1, shape);
  CHECK(!tw_context_run(context, &again, 1, &output, 1) && !memcmp(x, y, sizeof x));
  shape[0] = 0;
  input.as.tensor.data = NULL;
  output.kind = TW_NONE;
  CHECK(!tw_context_run(context, &input, 1, &output, 1));
  CHECK(output.as.tensor.shape[0] == 0 && output.as.tensor.data);
  tw_context_close(context);
}

/* ---- wrong arguments ---- */

static void abuse(const char *path) {
  tw_model *model = NULL;
  tw_context *context = NULL;
  const tw_port *port;
  const char *text;
  tw_open_options open = {0, 0};
  tw_context_options options = {.size = 8};
  CHECK(tw_model_open(NULL, NULL, &model) == TW_ERROR_ARGUMENT);
  CHECK(tw_model_open(path, NULL, NULL) == TW_ERROR_ARGUMENT);
  CHECK(tw_model_open("/nowhere", NULL, &model) == TW_ERROR_IO);
  CHECK(tw_model_open(path, &open, &model) == TW_ERROR_ARGUMENT);
  open = (tw_open_options){sizeof open, 64};
  CHECK(tw_model_open(path, &open, &model) == TW_ERROR_ARGUMENT);
  open.flags = TW_BORROW_CONSTANTS;
  CHECK(tw_model_open(path, &open, &model) == TW_ERROR_ARGUMENT && !model);
  CHECK(tw_model_open_memory(NULL, 9, NULL, &model) == TW_ERROR_ARGUMENT);
  CHECK(tw_model_open_memory("abc", 3, NULL, &model) == TW_ERROR_ARTIFACT);
  tw_model_close(NULL);
  tw_context_close(NULL);
  CHECK(!tw_model_open(path, NULL, &model));
  CHECK(tw_model_input(model, 1, &port) && tw_model_input(model, -1, &port));
  CHECK(tw_model_output(NULL, 0, &port) && tw_model_output(model, 0, NULL));
  CHECK(tw_model_kernel(model, 2, &text, &text) && tw_model_kernel(model, -1, &text, &text));
  CHECK(tw_context_create(NULL, NULL, &context) == TW_ERROR_ARGUMENT);
  CHECK(tw_context_create(model, NULL, NULL) == TW_ERROR_ARGUMENT);
  CHECK(tw_context_create(model, &options, &context) == TW_ERROR_ARGUMENT);
  options = (tw_context_options){.size = sizeof options, .threads = 1000};
  CHECK(tw_context_create(model, &options, &context) == TW_ERROR_ARGUMENT);
  CHECK(!tw_context_create(model, NULL, &context));

  float x[8] = {0};
  int64_t shape[2] = {4, 1}, strides[1] = {2};
  tw_value good = tensor(x, 1, shape), input, output = {.kind = TW_NONE};
  CHECK(tw_context_run(NULL, &good, 1, &output, 1) == TW_ERROR_ARGUMENT);
  CHECK(tw_context_run(context, NULL, 1, &output, 1) == TW_ERROR_ARGUMENT);
  CHECK(tw_context_run(context, &good, 2, &output, 1) == TW_ERROR_ARGUMENT);
  CHECK(tw_context_run(context, &good, 1, &output, 0) == TW_ERROR_ARGUMENT);
#define REFUSED(change, status)                                             \
  input = good;                                                             \
  input.change;                                                             \
  CHECK(tw_context_run(context, &input, 1, &output, 1) == (status));        \
  CHECK(strlen(tw_last_error()) > 10)
  REFUSED(kind = TW_NONE, TW_ERROR_INPUT);
  REFUSED(kind = TW_STRINGS, TW_ERROR_INPUT);
  REFUSED(as.tensor.device.type = 2, TW_ERROR_INPUT);
  REFUSED(as.tensor.dtype.bits = 64, TW_ERROR_INPUT);
  REFUSED(as.tensor.dtype.lanes = 2, TW_ERROR_INPUT);
  REFUSED(as.tensor.rank = 2, TW_ERROR_INPUT);
  REFUSED(as.tensor.rank = -1, TW_ERROR_INPUT);
  REFUSED(as.tensor.shape = NULL, TW_ERROR_ARGUMENT);
  REFUSED(as.tensor.strides = strides, TW_ERROR_INPUT);
  REFUSED(as.tensor.data = NULL, TW_ERROR_ARGUMENT);
  REFUSED(as.tensor.byte_offset = 2, TW_ERROR_INPUT);
  shape[0] = -1;
  REFUSED(kind = TW_TENSOR, TW_ERROR_INPUT);
  shape[0] = INT64_MAX / 2;
  REFUSED(kind = TW_TENSOR, TW_ERROR_INPUT);
  shape[0] = INT64_MAX / 4 - 64;
  REFUSED(as.tensor.data = (void *)(UINTPTR_MAX - 4095), TW_ERROR_ARGUMENT);
  shape[0] = 4;
  output.kind = TW_SEQUENCE;
  CHECK(tw_context_run(context, &good, 1, &output, 1) == TW_ERROR_ARGUMENT);
  tw_context_close(context);
  tw_model_close(model);
}

/* ---- callbacks ---- */

typedef struct range {
  tw_range body;
  void *job;
  int64_t begin, end;
} range;

static void *run_range(void *argument) {
  range *part = argument;
  part->body(part->job, part->begin, part->end);
  return NULL;
}

/* Three threads, the last range first; leaves out the last task if *user is set. */
static void own_loop(void *user, tw_range body, void *job, int64_t tasks) {
  pthread_t threads[3];
  range parts[3];
  for (int i = 0; i < 3; i++) {
    parts[i] = (range){body, job, tasks * (2 - i) / 3, tasks * (3 - i) / 3};
    if (!i && *(int *)user) parts[i].end--;
    pthread_create(&threads[i], NULL, run_range, &parts[i]);
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

static void foul_loop(void *user, tw_range body, void *job, int64_t tasks) {
  (void)user;
  body(job, -5, 3);
  body(job, 0, tasks + 1);
  body(job, 2, 1);
}

static void *allocate(void *user, int32_t index, int32_t rank, const int64_t *shape) {
  void **memory = user;
  CHECK(index == 0 && rank == 1 && shape[0] == 1);
  return *memory;
}

static void count_kernels(void *user, int64_t kernel, int64_t begin, int64_t end, int64_t tasks) {
  CHECK(kernel == 0 && begin <= end && tasks > 0);
  ++*(int *)user;
}

static float run_sum(tw_model *model, const tw_context_options *options, tw_status expected) {
  float x[100][64];
  int64_t shape[2] = {100, 64};
  tw_context *context;
  tw_value output = {.kind = TW_NONE};
  for (int i = 0; i < 6400; i++) x[i / 64][i % 64] = (float)(i % 77) / 8;
  tw_value input = tensor(x, 2, shape);
  CHECK(!tw_context_create(model, options, &context));
  CHECK(tw_context_run(context, &input, 1, &output, 1) == expected);
  float result = expected ? 0 : *(float *)output.as.tensor.data;
  tw_context_close(context);
  return result;
}

static void use_callbacks(const char *path) {
  tw_model *model;
  size_t bytes;
  unsigned char *data = read_file(path, &bytes);
  tw_open_options open = {sizeof open, TW_BORROW_CONSTANTS};
  CHECK(tw_model_open_memory(data + 1, bytes - 1, &open, &model) == TW_ERROR_ARGUMENT);
  CHECK(!tw_model_open_memory(data, bytes, &open, &model));
  tw_context_options options = {.size = sizeof options, .threads = 1};
  float expected = run_sum(model, &options, TW_OK);
  for (options.threads = 2; options.threads < 6; options.threads++)
    CHECK(run_sum(model, &options, TW_OK) == expected);
  int leave_out = 0, kernels = 0;
  options.parallel_for = own_loop;
  options.parallel_user = &leave_out;
  CHECK(run_sum(model, &options, TW_OK) == expected);
  leave_out = 1;
  run_sum(model, &options, TW_ERROR_ARGUMENT);
  CHECK(!strcmp(tw_last_error(), "The caller's parallel loop ran 99 tasks of 100."));
  options.parallel_for = foul_loop;
  run_sum(model, &options, TW_ERROR_ARGUMENT);
  options.parallel_for = NULL;

  float memory[2] = {0, 0};
  void *place = memory;
  options.allocate = allocate;
  options.allocate_user = &place;
  options.profile = count_kernels;
  options.profile_user = &kernels;
  CHECK(run_sum(model, &options, TW_OK) == expected && memory[0] == expected && kernels == 1);
  place = (char *)memory + 1;
  run_sum(model, &options, TW_ERROR_ARGUMENT);
  place = NULL;
  run_sum(model, &options, TW_ERROR_MEMORY);
  tw_model_close(model);
  free(data);
}

/* ---- many threads ---- */

static tw_model *shared;
static float shared_result;

static void *run_often(void *argument) {
  tw_context_options options = {.size = sizeof options, .threads = 3};
  (void)argument;
  for (int i = 0; i < 20; i++) CHECK(run_sum(shared, &options, TW_OK) == shared_result);
  return NULL;
}

static void use_threads(const char *path) {
  pthread_t threads[6];
  CHECK(!tw_model_open(path, NULL, &shared));
  shared_result = run_sum(shared, NULL, TW_OK);
  for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, run_often, NULL);
  for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
  tw_model_close(shared);
}

static void use_failures(const char *path) {
  tw_model *model;
  tw_context *context;
  float x = 0;
  int64_t shape = 1;
  tw_value input = tensor(&x, 1, &shape), output = {.kind = TW_NONE};
  CHECK(!tw_model_open(path, NULL, &model) && !tw_context_create(model, NULL, &context));
  CHECK(tw_context_run(context, &input, 1, &output, 1) == TW_ERROR_RUN);
  CHECK(!strcmp(tw_last_error(), "Value 42 is not -7, says '42', {2}."));
  tw_context_close(context);
  tw_model_close(model);
}

/* ---- damage ---- */

static uint32_t crc32(const unsigned char *data, size_t bytes) {
  uint32_t crc = ~0u;
  for (; bytes; bytes--) {
    crc ^= *data++;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

/* The last section is the manifest: its bytes and those of the header's numbers are changed. */
static void damage(const char *path, int count) {
  size_t bytes;
  unsigned char *data = read_file(path, &bytes);
  uint64_t offset;
  memcpy(&offset, data + 24, 8);
  int opened = 0;
  srand(7);
  for (int round = 0; round < count; round++) {
    unsigned char *copy = malloc(bytes); /* exactly, so that a sanitizer sees every overrun */
    memcpy(copy, data, bytes);
    for (int change = rand() % 4; change >= 0; change--) {
      size_t place = 12 + (size_t)rand() % 75;
      if (rand() % 4) place = offset + (size_t)rand() % (bytes - offset);
      copy[place] = (unsigned char)(rand() % 3 ? "\"{}[],:0919-\\utfn"[rand() % 17] : rand());
    }
    uint32_t crc = crc32(copy + offset, bytes - offset);
    memcpy(copy + 72, &crc, 4);
    crc = crc32(copy, 124);
    memcpy(copy + 124, &crc, 4);
    tw_model *model;
    if (!tw_model_open_memory(copy, bytes, NULL, &model)) opened++;
    CHECK(strlen(tw_last_error()) < 1024);
    tw_model_close(model);
    free(copy);
  }
  CHECK(opened > 0 && opened < count);
  free(data);
}

/* ---- inputs that may be left out ---- */

static void use_default(const char *without, const char *path) {
  tw_model *model;
  tw_context *context;
  const tw_port *port;
  float x[2] = {8, 9}, y[3];
  int64_t shape[1] = {2}, three[1] = {3};
  CHECK(!tw_model_open(path, NULL, &model) && !tw_context_create(model, NULL, &context));
  CHECK(!tw_model_input(model, 0, &port) && port->extents[0] == -1);
  CHECK(port->default_extents && port->default_extents[0] == 3);
  CHECK(!tw_model_output(model, 0, &port) && !port->default_extents);
  tw_value input = {.kind = TW_NONE}, given = tensor(x, 1, shape), output = tensor(y, 1, three);
  for (int time = 0; time < 2; time++) {
    CHECK(!tw_context_run(context, &input, 1, &output, 1) && y[0] == 1 && y[2] == 3);
    tw_value own = {.kind = TW_NONE};
    CHECK(!tw_context_run(context, &given, 1, &own, 1) && own.as.tensor.shape[0] == 2);
    CHECK(!memcmp(own.as.tensor.data, x, sizeof x));
  }
  CHECK(input.kind == TW_NONE); /* the caller's values are only read */
  tw_context_close(context);
  tw_model_close(model);

  CHECK(!tw_model_open(without, NULL, &model) && !tw_context_create(model, NULL, &context));
  CHECK(!tw_model_input(model, 0, &port) && !port->default_extents);
  CHECK(tw_context_run(context, &input, 1, &output, 1) == TW_ERROR_INPUT);
  CHECK(!strcmp(tw_last_error(), "Input 'x' is missing, and has no default."));
  tw_context_close(context);
  tw_model_close(model);
}

/* ---- runs that are ended ---- */

static tw_context *endless;

static void on_alarm(int number) {
  (void)number;
  tw_context_cancel(endless);
}

static void *cancel_often(void *argument) {
  while (!atomic_load((_Atomic int *)argument)) tw_context_cancel(endless);
  return NULL;
}

/* Runs on `count` elements that are all `value`. */
static tw_status run_endless(int64_t count, float value) {
  static float x[64];
  int64_t shape[1] = {count};
  for (int64_t i = 0; i < count; i++) x[i] = value;
  tw_value input = tensor(x, 1, shape), output = {.kind = TW_NONE};
  return tw_context_run(endless, &input, 1, &output, 1);
}

static void use_cancel(const char *path) {
  static const int64_t counts[] = {1, 2, 64};
  static int whole; /* the loop leaves nothing out */
  tw_model *model;
  CHECK(!tw_model_open(path, NULL, &model));
  tw_context_cancel(NULL);
  for (int own = 0; own < 2; own++) {
    tw_context_options options = {.size = sizeof options, .threads = 2};
    if (own) options.parallel_for = own_loop, options.parallel_user = &whole;
    CHECK(!tw_context_create(model, &options, &endless));
    tw_context_cancel(endless); /* without a run: nothing */
    CHECK(!run_endless(3, 0));
    signal(SIGALRM, on_alarm);
#if !defined(__SANITIZE_THREAD__) /* which lets signals wait until a call of the system */
    for (int turn = 0; turn < 3; turn++) {
      struct itimerval soon = {.it_value = {0, 20000}};
      CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
      CHECK(run_endless(counts[turn], 1) == TW_ERROR_CANCELLED);
      CHECK(!strcmp(tw_last_error(), "The run was cancelled."));
      CHECK(!run_endless(3, 0)); /* it can be used as before */
    }
#endif
    _Atomic int stop = 0;
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, cancel_often, &stop));
    for (int turn = 0; turn < 300; turn++)
      CHECK(run_endless(counts[turn % 3], 1) == TW_ERROR_CANCELLED);
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    CHECK(!run_endless(3, 0));
    tw_context_close(endless);
  }
  tw_model_close(model);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "cancel")) {
    use_cancel(argv[2]);
    puts("ok");
    return 0;
  }
  CHECK(tw_version() == TW_VERSION && tw_default_threads() > 0);
  if (argc == 4 && !strcmp(argv[1], "damage")) {
    damage(argv[2], atoi(argv[3]));
  } else if (argc == 6 && !strcmp(argv[1], "use")) {
    use_dtypes();
    use_copy(argv[2]);
    abuse(argv[2]);
    use_callbacks(argv[3]);
    use_threads(argv[3]);
    use_failures(argv[4]);
    use_default(argv[2], argv[5]);
  } else {
    return 2;
  }
  puts("ok");
  return 0;
}
