/* SPDX-License-Identifier: Apache-2.0 */
/* Small host programs and kernels, as a compiler makes them; each test uses one as the entry. */
#include "tw_abi.h"

#define MAX_PARTIAL 64

static int32_t copy_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  const float *from = args[0].pointer;
  float *to = args[1].pointer;
  (void)workspace;
  for (int64_t i = begin; i < end; i++) to[i] = from[i];
  return 0;
}

/* y = x, over all elements of any rank. */
int32_t host_copy(void *call, const tw_services *services, const tw_tensor *inputs,
                  void *const *constants) {
  int64_t count = 1;
  (void)constants;
  for (int32_t axis = 0; axis < inputs[0].rank; axis++) count *= inputs[0].shape[axis];
  void *y = services->output(call, 0, inputs[0].rank, inputs[0].shape);
  if (!y) return 1;
  tw_arg args[2] = {{.pointer = inputs[0].data}, {.pointer = y}};
  if (services->direct && count < 16) return copy_kernel(args, 0, count, 0);
  return services->launch(call, copy_kernel, args, count, 0, 0);
}

/* Bytes, whatever the dtype: args are from, to, bytes of an element. */
static int32_t bytes_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  const volatile char *from = args[0].pointer;
  char *to = args[1].pointer;
  int64_t size = args[2].integer;
  (void)workspace;
  for (int64_t i = begin * size; i < end * size; i++) to[i] = from[i];
  return 0;
}

/* y = x for elements whose size is constant 0, an int64. */
int32_t host_bytes(void *call, const tw_services *services, const tw_tensor *inputs,
                   void *const *constants) {
  void *y = services->output(call, 0, 1, inputs[0].shape);
  if (!y) return 1;
  tw_arg args[3] = {{.pointer = inputs[0].data},
                    {.pointer = y},
                    {.integer = *(const int64_t *)constants[0]}};
  return services->launch(call, bytes_kernel, args, inputs[0].shape[0], 0, 0);
}

/* A task squares a row of 64 in its workspace, and stores the sum; args: x, partial sums. */
static int32_t rows_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  float *scratch = workspace;
  if ((uintptr_t)workspace % 64) return 3;
  for (int64_t row = begin; row < end; row++) {
    const float *x = (const float *)args[0].pointer + row * MAX_PARTIAL;
    float sum = 0;
    for (int i = 0; i < MAX_PARTIAL; i++) scratch[i] = x[i] * x[i];
    for (int i = 0; i < MAX_PARTIAL; i++) sum += scratch[i];
    ((float *)args[1].pointer)[row] = sum;
  }
  return 0;
}

/* y[0] = scale * the sum of squares of x [rows, 64], by partial sums in the arena. */
int32_t host_sum(void *call, const tw_services *services, const tw_tensor *inputs,
                 void *const *constants) {
  int64_t rows = inputs[0].shape[0], one = 1;
  float *partial = services->arena(call, rows * (int64_t)sizeof *partial);
  float *y = services->output(call, 0, 1, &one);
  if (!partial || !y) return 1;
  tw_arg args[2] = {{.pointer = inputs[0].data}, {.pointer = partial}};
  int32_t status = services->launch(call, rows_kernel, args, rows, 4 * MAX_PARTIAL, 0);
  if (status) return status;
  y[0] = 0;
  for (int64_t row = 0; row < rows; row++) y[0] += partial[row];
  y[0] *= *(const float *)constants[0];
  return 0;
}

/* The values of x that are not zero: an output whose size depends on the data. */
int32_t host_nonzero(void *call, const tw_services *services, const tw_tensor *inputs,
                     void *const *constants) {
  const float *x = inputs[0].data;
  int64_t count = 0;
  (void)constants;
  for (int64_t i = 0; i < inputs[0].shape[0]; i++) count += x[i] != 0;
  float *y = services->output(call, 0, 1, &count);
  if (!y) return 1;
  for (int64_t i = 0; i < inputs[0].shape[0]; i++)
    if (x[i] != 0) *y++ = x[i];
  return 0;
}

/* y = a + b, z = a - b, n elements each. */
int32_t host_two(void *call, const tw_services *services, const tw_tensor *inputs,
                 void *const *constants) {
  const float *a = inputs[0].data, *b = inputs[1].data;
  (void)constants;
  float *y = services->output(call, 0, 1, inputs[0].shape);
  float *z = services->output(call, 1, 1, inputs[0].shape);
  if (!y || !z) return 1;
  for (int64_t i = 0; i < inputs[0].shape[0]; i++) y[i] = a[i] + b[i];
  for (int64_t i = 0; i < inputs[0].shape[0]; i++) z[i] = a[i] - b[i];
  return 0;
}

/* A kernel whose every task goes on until the run is cancelled; args: the state of the run. */
static int32_t endless_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  const volatile int32_t *state = args[0].pointer;
  (void)begin, (void)end, (void)workspace;
  while (*state <= 1) continue;
  return 11;
}

/* Launches that, with as many tasks as x has elements, if x[0] is not 0; x of one: calls it. */
int32_t host_endless(void *call, const tw_services *services, const tw_tensor *inputs,
                     void *const *constants) {
  int64_t count = inputs[0].shape[0];
  tw_arg args[1] = {{.pointer = (void *)services->state}};
  (void)constants;
  if (!services->output(call, 0, 1, inputs[0].shape)) return 1;
  if (!*(const float *)inputs[0].data) return 0;
  if (count == 1) return endless_kernel(args, 0, count, 0);
  return services->launch(call, endless_kernel, args, count, 0, 1);
}

/* A kernel of many tasks of some microseconds each, which asks nothing. */
static int32_t deaf_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  (void)args, (void)workspace;
  for (int64_t task = begin; task < end; task++)
    for (volatile int i = 0; i < 1000; i++) continue;
  return 0;
}

/* Launches that again and again, many million times. */
int32_t host_deaf(void *call, const tw_services *services, const tw_tensor *inputs,
                  void *const *constants) {
  int32_t status = 0;
  tw_arg args[1] = {{.integer = 0}};
  (void)constants;
  if (!services->output(call, 0, 1, inputs[0].shape)) return 1;
  for (int turn = 0; turn < 100000000 && !status && *(const float *)inputs[0].data; turn++)
    status = services->launch(call, deaf_kernel, args, inputs[0].shape[0], 0, 1);
  return status;
}

/* A kernel that fails with status 7 from task 5 on. */
static int32_t failing_kernel(const tw_arg *args, int64_t begin, int64_t end, void *workspace) {
  (void)args, (void)begin, (void)workspace;
  return end > 5 ? 7 : 0;
}

/* Launches the failing kernel and, against the rules, goes on. */
int32_t host_kernel_fails(void *call, const tw_services *services, const tw_tensor *inputs,
                          void *const *constants) {
  tw_arg args[1] = {{.integer = 0}};
  (void)constants;
  services->launch(call, failing_kernel, args, inputs[0].shape[0], 0, 1);
  services->output(call, 0, 1, inputs[0].shape);
  return 0;
}

/* Fails with message 0 or 1, chosen by x[0]; values 42 and -7. x[0] = 2: plain status 5;
   x[0] = -1: message 1 with status 10, an index out of range. */
int32_t host_fails(void *call, const tw_services *services, const tw_tensor *inputs,
                   void *const *constants) {
  int64_t values[2] = {42, -7};
  int32_t choice = (int32_t)*(const float *)inputs[0].data;
  (void)constants;
  if (choice == 2) return 5;
  if (choice == -1) return services->fail(call, 10, 1, values, 2);
  return services->fail(call, choice ? 2 : 77, choice, values, 2);
}

/* Asks for an output of a shape that cannot be, by x[0]; 9: asks for none. */
int32_t host_bad_output(void *call, const tw_services *services, const tw_tensor *inputs,
                        void *const *constants) {
  int64_t shape[3] = {1, 1, 1};
  int32_t index = 0, rank = 1;
  (void)constants;
  switch ((int32_t)*(const float *)inputs[0].data) {
    case 0: index = 1; break;
    case 1: index = -1; break;
    case 2: rank = 3; break;
    case 3: shape[0] = -4; break;
    case 4: shape[0] = INT64_MAX / 2; break;
    case 5: rank = -1; break;
    case 6: return services->arena(call, -1) ? 0 : 1;
    case 7: return services->arena(call, INT64_MAX) ? 0 : 1;
    case 8: return services->launch(call, copy_kernel, 0, -3, 0, 0);
    case 9: return 0;
    case 10: return services->launch(call, copy_kernel, 0, 1, INT64_MAX, 0);
  }
  return services->output(call, index, rank, shape) ? 0 : 1;
}
