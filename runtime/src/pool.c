/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process-wide thread pool. It runs one parallel region at a time; whoever finds it busy runs
 * alone, so that many contexts at once use the machine without more threads than it has.
 *
 * A region opens by one store to `gate`, a word that holds the region's number, an open bit and how
 * many workers are inside. A worker enters by a compare-and-swap that counts it in, which succeeds
 * only while that region is open. The caller takes part, closes the gate when no task is left, and
 * waits for the workers inside; one that wakes up too late finds the gate closed, and the caller
 * never waits for it. Idle workers spin for SPIN_NS, then sleep on `gate`.
 *
 * Each participant owns an equal part of the tasks, from whose front it takes a quarter of the rest
 * at a time; when its part is empty, it takes half of another's rest from the back. So neighbouring
 * tasks stay on one core, and a thread that is held up delays the region by little.
 */
#include "core.h"

enum {
  SPIN_NS = 50000,
  MAX_PART = 1 << 30, /* tasks of one region: bounds of a part fit 32 bits */
  COUNT_MASK = 0xFFF,
  OPEN = 0x1000,
  WAITING = 0x2000, /* the caller sleeps on `gate` until the count is zero */
  NUMBER_STEP = 0x4000
};

/* The tasks begin <= task < end that nobody has taken, as begin | end << 32. */
typedef struct part {
  _Alignas(64) _Atomic uint64_t range;
} part;

typedef struct worker_row {
  _Alignas(64) tw_scratch scratch;
} worker_row;

static struct {
  _Alignas(64) _Atomic uint32_t gate;
  _Alignas(64) _Atomic int busy;
  _Atomic int sleepers;
  _Atomic int limit; /* workers that may be inside */
  _Atomic int spin;  /* 0: more threads than processors, so that spinning would only harm */
  /* The region; changed by the owner of `busy` while the gate is closed and nobody is inside. */
  tw_pool_body body;
  void *job;
  int64_t first; /* number of the region's first task */
  int parts;
  uint64_t float_state;
  /* Workers that were started; changed by the owner of `busy`. */
  int workers;
  bool registered;
  bool refused; /* the system refused to start one: do not ask again */
  part part[TW_MAX_THREADS];
  worker_row worker[TW_MAX_THREADS];
} pool;

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

/* Rounding mode and treatment of subnormals: a worker takes over the caller's, so that results do
   not depend on which thread computes them. */
#if defined(__x86_64__)
enum { FLOAT_FLAGS = 0x3F }; /* of exceptions that happened */
static uint64_t float_state(void) { return __builtin_ia32_stmxcsr() & ~(unsigned)FLOAT_FLAGS; }
static void set_float_state(uint64_t state) { __builtin_ia32_ldmxcsr((unsigned)state); }
#else
static uint64_t float_state(void) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpcr" : "=r"(state));
  return state;
}
static void set_float_state(uint64_t state) { __asm__ volatile("msr fpcr, %0" ::"r"(state)); }
#endif

tw_scratch *tw_pool_scratch(int worker) { return &pool.worker[worker].scratch; }

/* Takes tasks from one part: a quarter from the front for its owner, half from the back else. */
static bool take(part *from, bool owner, int64_t *begin, int64_t *end) {
  uint64_t range = atomic_load_explicit(&from->range, memory_order_relaxed);
  for (;;) {
    uint32_t low = (uint32_t)range, high = (uint32_t)(range >> 32);
    if (low >= high) return false;
    uint32_t count = owner ? (high - low + 3) / 4 : (high - low + 1) / 2;
    uint32_t cut = owner ? low + count : high - count;
    uint64_t rest = owner ? (uint64_t)high << 32 | cut : (uint64_t)cut << 32 | low;
    if (atomic_compare_exchange_weak_explicit(&from->range, &range, rest, memory_order_relaxed,
                                              memory_order_relaxed)) {
      *begin = owner ? low : cut;
      *end = owner ? cut : high;
      return true;
    }
  }
}

/* Runs tasks of the open region until none is left to take. */
static void work(int worker) {
  int own = worker ? 1 + (worker - 1) % (pool.parts - 1) : 0;
  int64_t begin, end;
  for (int step = 0; step < pool.parts;) {
    int index = own + step < pool.parts ? own + step : own + step - pool.parts;
    if (take(&pool.part[index], step == 0, &begin, &end))
      pool.body(pool.job, pool.first + begin, pool.first + end, worker);
    else
      step++;
  }
}

/* Waits until the gate differs from `seen`; returns its new value. */
static uint32_t wait_for_gate(uint32_t seen) {
  int64_t until = 0;
  for (uint32_t turn = 0;; turn++) {
    uint32_t gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
    if (gate != seen) return gate;
    if (atomic_load_explicit(&pool.spin, memory_order_relaxed)) {
      relax();
      if (turn % 64) continue;
      int64_t now = tw_os_clock_ns();
      if (!until) until = now + SPIN_NS;
      if (now < until) continue;
    }
    /* The sum of sleepers is raised before the gate is looked at again (by the kernel), and the
       caller opens the gate before it reads the sum: one of the two sees the other. */
    atomic_fetch_add(&pool.sleepers, 1);
    tw_os_wait(&pool.gate, gate);
    atomic_fetch_sub(&pool.sleepers, 1);
    until = 0;
  }
}

static void *worker_main(void *argument) {
  int worker = (int)(intptr_t)argument;
  uint32_t done = UINT32_MAX; /* number of the last region that this worker took part in */
  uint32_t gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
  for (;;) {
    uint32_t number = gate / NUMBER_STEP;
    int limit = atomic_load_explicit(&pool.limit, memory_order_relaxed);
    if (!(gate & OPEN) || number == done || (int)(gate & COUNT_MASK) >= limit) {
      gate = wait_for_gate(gate);
      continue;
    }
    if (!atomic_compare_exchange_weak_explicit(&pool.gate, &gate, gate + 1, memory_order_acquire,
                                               memory_order_acquire))
      continue;
    done = number;
    if (float_state() != pool.float_state) set_float_state(pool.float_state);
    work(worker);
    gate = atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_acq_rel) - 1;
    if ((gate & WAITING) && !(gate & COUNT_MASK)) tw_os_wake(&pool.gate, TW_MAX_THREADS);
  }
  return NULL;
}

/* In a child process only the forking thread lives on: forget the workers, and any region. */
static void forget_workers(void) {
  atomic_store(&pool.gate, 0);
  atomic_store(&pool.busy, 0);
  atomic_store(&pool.sleepers, 0);
  pool.workers = 0;
  pool.refused = false;
  for (int worker = 0; worker < TW_MAX_THREADS; worker++) /* may be half-changed: not freed */
    pool.worker[worker].scratch = (tw_scratch){NULL, 0};
}

/* Starts workers until there are `wanted`; all works with fewer, where the system refuses. */
static void start_workers(int wanted) {
  if (!pool.registered) tw_os_on_fork_child(forget_workers);
  pool.registered = true;
  while (pool.workers < wanted) {
    pool.refused = tw_os_start_thread(worker_main, (void *)(intptr_t)(pool.workers + 1));
    if (pool.refused) break;
    pool.workers++;
  }
  atomic_store(&pool.spin, pool.workers < tw_os_processors());
}

/* Closes the gate and waits until the workers inside have left. */
static void close_region(void) {
  uint32_t gate = atomic_fetch_and_explicit(&pool.gate, ~(uint32_t)OPEN, memory_order_acq_rel);
  int64_t until = tw_os_clock_ns() + 4 * SPIN_NS;
  for (uint32_t turn = 1;; turn++) {
    gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
    if (!(gate & COUNT_MASK)) break;
    relax();
    if (turn % 64 || tw_os_clock_ns() < until) continue;
    gate = atomic_fetch_or_explicit(&pool.gate, WAITING, memory_order_acq_rel) | WAITING;
    if (gate & COUNT_MASK) tw_os_wait(&pool.gate, gate);
  }
  if (gate & WAITING) atomic_fetch_and(&pool.gate, ~(uint32_t)WAITING);
}

static void run_region(int threads, int64_t first, uint32_t tasks) {
  pool.first = first;
  pool.parts = threads;
  for (int index = 0; index < threads; index++) {
    uint64_t begin = (uint64_t)tasks * (unsigned)index / (unsigned)threads;
    uint64_t end = (uint64_t)tasks * (unsigned)(index + 1) / (unsigned)threads;
    atomic_store_explicit(&pool.part[index].range, end << 32 | begin, memory_order_relaxed);
  }
  atomic_store_explicit(&pool.limit, threads - 1, memory_order_relaxed);
  uint32_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);
  atomic_store(&pool.gate, (gate & ~(uint32_t)(NUMBER_STEP - 1)) + NUMBER_STEP + OPEN);
  if (atomic_load(&pool.sleepers)) tw_os_wake(&pool.gate, threads - 1);
  work(0);
  close_region();
}

void tw_pool_run(int threads, tw_pool_body body, void *job, int64_t tasks) {
  int free = 0;
  if (threads > TW_MAX_THREADS) threads = TW_MAX_THREADS;
  if (threads > tasks) threads = (int)tasks;
  if (threads < 2 || !atomic_compare_exchange_strong(&pool.busy, &free, 1)) {
    body(job, 0, tasks, 0);
    return;
  }
  if (pool.workers < threads - 1 && !pool.refused) start_workers(threads - 1);
  pool.body = body;
  pool.job = job;
  pool.float_state = float_state();
  for (int64_t first = 0, count; first < tasks; first += count) {
    count = tasks - first < MAX_PART ? tasks - first : MAX_PART;
    run_region(threads, first, (uint32_t)count);
  }
  atomic_store(&pool.busy, 0);
}
