/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that the core needs from an operating system; os_linux.c is the one implementation. The core
 * itself is freestanding C11: porting the runtime means writing these functions once more.
 */
#ifndef TW_OS_H
#define TW_OS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Memory aligned to 64 bytes, of undefined content; NULL when there is none. Large blocks are
   aligned for huge pages. `tw_os_free` takes NULL too. */
void *tw_os_allocate(size_t bytes);
void tw_os_free(void *memory);

/* A mapping of part of an open file, or of anonymous memory, that can be made executable. */
size_t tw_os_page_size(void);
void *tw_os_map_memory(size_t bytes);
void *tw_os_map_file(int file, uint64_t offset, size_t bytes);
int tw_os_make_executable(void *memory, size_t bytes); /* 0: done; then read-only as well */
void tw_os_unmap(void *memory, size_t bytes);

/* Opens a regular file for reading: its descriptor and size, or -1 with *reason a short phrase. */
int tw_os_open(const char *path, uint64_t *bytes, const char **reason);
/* What changes when a file is written into: filled in once any later write must change it (which
   takes some milliseconds if the last one was just now). 0: done. */
typedef struct tw_os_state {
  uint64_t device, inode, bytes;
  int64_t seconds, nanoseconds;
} tw_os_state;
int tw_os_settled_state(int file, tw_os_state *state);
int tw_os_has_state(int file, const tw_os_state *state); /* 1: as it was */
int tw_os_read(int file, uint64_t offset, void *buffer, size_t bytes); /* 0: all bytes read */
void tw_os_close(int file);

/* A running thread waits while *word is `value`; wake lets up to `count` waiters go. Waits may end
   without a cause. */
void tw_os_wait(_Atomic uint32_t *word, uint32_t value);
void tw_os_wake(_Atomic uint32_t *word, int count);
int tw_os_start_thread(void *(*body)(void *), void *argument); /* 0: started, detached */
void tw_os_on_fork_child(void (*handler)(void));

int64_t tw_os_clock_ns(void);
/* Processors that this process may use: its affinity, and a container's quota rounded up. */
int tw_os_processors(void);
const char *tw_os_environment(const char *name);
/* The processor's feature words where the system reports them (AArch64); 0 elsewhere. */
uint64_t tw_os_hardware_capabilities(int word);

#endif
