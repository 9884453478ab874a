/* SPDX-License-Identifier: Apache-2.0 */
/* Launching kernels: on the pool, on a caller's own parallel loop, or on the calling thread. */
#include "context.h"

typedef struct launch {
  tw_context *context;
  tw_kernel kernel;
  const tw_arg *args;
  int64_t tasks;
  int64_t workspace_bytes;
  _Atomic int32_t status; /* the first failure of a kernel; the others are not started then */
  _Atomic bool out_of_memory;
  _Atomic int64_t done; /* tasks that a caller's own loop has run */
  _Atomic bool out_of_range;
} launch;

static void run_tasks(launch *job, int64_t begin, int64_t end, tw_scratch *scratch) {
  void *workspace = tw_nothing;
  if (atomic_load_explicit(&job->status, memory_order_relaxed)) return;
  if (job->workspace_bytes) workspace = tw_scratch_reserve(scratch, job->workspace_bytes);
  int32_t status = -1, none = 0;
  if (tw_context_is_cancelled(job->context))
    status = TW_ERROR_CANCELLED;
  else if (workspace)
    status = job->kernel(job->args, begin, end, workspace);
  else
    atomic_store(&job->out_of_memory, true);
  if (status) atomic_compare_exchange_strong(&job->status, &none, status);
}

static void pool_body(void *argument, int64_t begin, int64_t end, int worker) {
  launch *job = argument;
  run_tasks(job, begin, end, worker ? tw_pool_scratch(worker) : &job->context->workspace);
}

/* The body that a caller's own loop calls, on threads that are not ours. */
static void foreign_body(void *argument, int64_t begin, int64_t end) {
  launch *job = argument;
  if (begin < 0 || end > job->tasks || begin > end) {
    atomic_store(&job->out_of_range, true);
    return;
  }
  tw_scratch temporary = {NULL, 0};
  tw_slot *slot = job->context->slots, *last = slot + TW_MAX_THREADS;
  while (slot < last && atomic_exchange_explicit(&slot->taken, 1, memory_order_acquire)) slot++;
  run_tasks(job, begin, end, slot < last ? &slot->scratch : &temporary);
  if (slot < last) atomic_store_explicit(&slot->taken, 0, memory_order_release);
  tw_scratch_free(&temporary);
  atomic_fetch_add_explicit(&job->done, end - begin, memory_order_release);
}

static tw_status launch_failure(const launch *job, int64_t call_id) {
  const tw_model *model = job->context->model;
  tw_kernel_name kernel = {"?", ""};
  if (tw_context_is_cancelled(job->context)) return tw_fail(TW_ERROR_CANCELLED, "%s", tw_cancelled);
  if (call_id >= 0 && call_id < model->kernel_count) kernel = model->kernels[call_id];
  if (atomic_load(&job->out_of_memory))
    return tw_fail(TW_ERROR_MEMORY,
                   "Out of memory in %q: kernel %q needs %d bytes of workspace a thread.",
                   kernel.origin, kernel.name, job->workspace_bytes);
  int64_t status = atomic_load(&job->status);
  if (kernel.origin[0])
    return tw_fail(TW_ERROR_RUN, "Kernel %q of %q failed with status %d.", kernel.name,
                   kernel.origin, status);
  return tw_fail(TW_ERROR_RUN, "Kernel %q failed with status %d.", kernel.name, status);
}

/* Runs all tasks on the caller's own loop; a failure there is one of the caller's. */
static tw_status run_foreign(launch *job) {
  tw_context_options *options = &job->context->options;
  options->parallel_for(options->parallel_user, foreign_body, job, job->tasks);
  int64_t done = atomic_load_explicit(&job->done, memory_order_acquire);
  if (done == job->tasks && !atomic_load(&job->out_of_range)) return TW_OK;
  return tw_fail(TW_ERROR_ARGUMENT, "The caller's parallel loop ran %d tasks of %d.", done,
                 job->tasks);
}

int32_t tw_service_launch(void *call, tw_kernel kernel, const tw_arg *args, int64_t tasks,
                          int64_t workspace_bytes, int64_t call_id) {
  tw_context *context = call;
  launch job = {.context = context, .kernel = kernel, .args = args, .tasks = tasks,
                .workspace_bytes = workspace_bytes};
  tw_status status = TW_OK;
  if (context->failure) return (int32_t)context->failure;
  if (tasks < 0 || !kernel) {
    status = tw_fail(TW_ERROR_RUN, "The model launched kernel %d with %d tasks.", call_id, tasks);
    return (int32_t)tw_context_fail(context, status);
  }
  tw_profile profile = context->options.profile;
  int64_t begin = profile ? tw_os_clock_ns() : 0;
  if (tasks > 1 && context->options.parallel_for)
    status = run_foreign(&job);
  else if (tasks > 1)
    tw_pool_run(context->threads, pool_body, &job, tasks);
  else if (tasks)
    run_tasks(&job, 0, tasks, &context->workspace);
  if (profile) {
    int64_t end = tw_os_clock_ns();
    profile(context->options.profile_user, call_id, begin, end, tasks);
  }
  if (!status && !atomic_load_explicit(&job.status, memory_order_relaxed)) return TW_OK;
  if (!status) status = launch_failure(&job, call_id);
  return (int32_t)tw_context_fail(context, status);
}
