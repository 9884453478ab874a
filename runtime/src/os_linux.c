/* SPDX-License-Identifier: Apache-2.0 */
/* The operating system's part of the runtime, for Linux. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "os.h"

enum { CACHE_LINE = 64, HUGE_PAGE = 2 << 20 };

/* ---- Memory and files ---- */

void *tw_os_allocate(size_t bytes) {
  void *memory = NULL;
  size_t alignment = bytes >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : CACHE_LINE;
  if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, alignment, bytes ? bytes : 1)) return NULL;
  if (alignment == HUGE_PAGE) /* advice: its failure costs speed only */
    (void)madvise(memory, bytes & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
  return memory;
}

void tw_os_free(void *memory) { free(memory); }

size_t tw_os_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void *tw_os_map_memory(size_t bytes) {
  void *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void *tw_os_map_file(int file, uint64_t offset, size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, (off_t)offset);
  return memory == MAP_FAILED ? NULL : memory;
}

int tw_os_make_executable(void *memory, size_t bytes) {
  __builtin___clear_cache((char *)memory, (char *)memory + bytes);
  return mprotect(memory, bytes, PROT_READ | PROT_EXEC);
}

void tw_os_unmap(void *memory, size_t bytes) {
  if (memory) munmap(memory, bytes);
}

int tw_os_open(const char *path, uint64_t *bytes, const char **reason) {
  struct stat status;
  /* O_NONBLOCK: opening a pipe must not wait for its other end. */
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    *reason = errno == ENOENT   ? "there is no such file"
              : errno == EACCES ? "permission denied"
                                : "the system refuses to open it";
    return -1;
  }
  if (fstat(file, &status) || !S_ISREG(status.st_mode)) {
    *reason = "it is not a regular file";
    close(file);
    return -1;
  }
  *bytes = (uint64_t)status.st_size;
  return file;
}

static int state_of(int file, tw_os_state *state) {
  struct stat status;
  if (fstat(file, &status)) return -1;
  *state = (tw_os_state){(uint64_t)status.st_dev, (uint64_t)status.st_ino,
                         (uint64_t)status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  return 0;
}

int tw_os_settled_state(int file, tw_os_state *state) {
  enum { TICK_NS = 20000000 }; /* how far times of files may lag behind the clock */
  for (int turn = 0; turn < 100; turn++) {
    struct timespec now;
    if (state_of(file, state)) return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec < state->seconds || now.tv_sec - state->seconds > 1) return 0;
    int64_t age = (now.tv_sec - state->seconds) * 1000000000 + now.tv_nsec - state->nanoseconds;
    if (age < 0 || age > TICK_NS) return 0;
    struct timespec rest = {0, (long)(TICK_NS - age) + 1};
    nanosleep(&rest, NULL);
  }
  return -1;
}

int tw_os_has_state(int file, const tw_os_state *state) {
  tw_os_state now;
  return !state_of(file, &now) && now.device == state->device && now.inode == state->inode &&
         now.bytes == state->bytes && now.seconds == state->seconds &&
         now.nanoseconds == state->nanoseconds;
}

int tw_os_read(int file, uint64_t offset, void *buffer, size_t bytes) {
  char *at = buffer;
  while (bytes) {
    ssize_t count = pread(file, at, bytes, (off_t)offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return -1;
    at += count;
    offset += (uint64_t)count;
    bytes -= (size_t)count;
  }
  return 0;
}

void tw_os_close(int file) { close(file); }

/* ---- Threads and time ---- */

void tw_os_wait(_Atomic uint32_t *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void tw_os_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int tw_os_start_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all); /* signals are for the application's own threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(&thread, NULL, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!failed) pthread_detach(thread);
  return failed;
}

void tw_os_on_fork_child(void (*handler)(void)) { pthread_atfork(NULL, NULL, handler); }

int64_t tw_os_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- What the machine grants ---- */

/* Reads up to two integers of a small file; "max" reads as -1. Returns how many were read. */
static int read_integers(const char *path, int64_t values[2]) {
  char text[64];
  FILE *file = fopen(path, "re");
  if (!file) return 0;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  int count = 0;
  for (char *at = text; count < 2; count++) {
    char *end = at + 3;
    values[count] = -1;
    if (strncmp(at, "max", 3)) values[count] = strtoll(at, &end, 10);
    if (end == at) break;
    at = end;
  }
  return count;
}

/* The processors that one control group grants, rounded up; INT_MAX without a quota. */
static int group_quota(const char *folder, bool version2) {
  char path[PATH_MAX + 64];
  int64_t values[2], period[2];
  if (version2) {
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (read_integers(path, values) != 2) return INT_MAX;
    period[0] = values[1];
  } else {
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (read_integers(path, values) < 1) return INT_MAX;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (read_integers(path, period) < 1) return INT_MAX;
  }
  if (values[0] <= 0 || period[0] <= 0) return INT_MAX;
  int64_t processors = (values[0] - 1) / period[0] + 1;
  return processors < INT_MAX ? (int)processors : INT_MAX;
}

/* The least quota of a group and those above it. Inside a container the path may name folders that
   are not there; its own limits are then at the root. */
static int hierarchy_quota(const char *root, const char *group, bool version2) {
  char folder[PATH_MAX];
  int least = INT_MAX;
  int length = snprintf(folder, sizeof folder, "%s%s", root, group);
  if (length < 0 || (size_t)length >= sizeof folder) return INT_MAX;
  for (;;) {
    int quota = group_quota(folder, version2);
    if (quota < least) least = quota;
    char *slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) < strlen(root)) return least;
    *slash = 0;
  }
}

static bool lists_cpu(const char *controllers) {
  for (const char *at = controllers; at; at = strchr(at, ',')) {
    if (*at == ',') at++;
    if (!strncmp(at, "cpu", 3) && (at[3] == ',' || at[3] == 0)) return true;
  }
  return false;
}

/* Reads /proc/self/cgroup, whose lines are "id:controllers:path" (version 2: "0::path"). */
static int cgroup_quota(void) {
  char line[PATH_MAX];
  int least = INT_MAX;
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (!file) return INT_MAX;
  while (fgets(line, sizeof line, file)) {
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    controllers++;
    group[strcspn(group, "\n")] = 0;
    int quota = INT_MAX;
    if (!*controllers)
      quota = hierarchy_quota("/sys/fs/cgroup", group, true);
    else if (lists_cpu(controllers))
      quota = hierarchy_quota("/sys/fs/cgroup/cpu", group, false);
    if (quota < least) least = quota;
  }
  fclose(file);
  return least;
}

int tw_os_processors(void) {
  cpu_set_t allowed;
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  if (!sched_getaffinity(0, sizeof allowed, &allowed)) count = CPU_COUNT(&allowed);
  int quota = cgroup_quota();
  if (count < 1) count = 1;
  return count < quota ? (int)count : quota;
}

const char *tw_os_environment(const char *name) { return getenv(name); }

uint64_t tw_os_hardware_capabilities(int word) {
#if defined(__aarch64__)
  return getauxval(word ? AT_HWCAP2 : AT_HWCAP);
#else
  (void)word;
  return 0;
#endif
}
