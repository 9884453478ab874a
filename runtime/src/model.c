/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, sharing and closing models. The code is copied into memory of its own, checked there and
 * then made executable, so that nobody can change or shorten it under the process. So are few
 * constants; many of a file are mapped, which shares them between processes and reads what is used.
 * The file stays open then: one renamed over it does no harm, and one that was written into is told
 * by its state.
 */
#include <string.h>

#include "core.h"

enum { MAX_COPIED_BYTES = 64 << 20 };

/* Where an artifact's bytes come from: an open file, or memory. */
typedef struct source {
  int file; /* -1: memory */
  const char *path;
  const uint8_t *memory;
  uint64_t bytes;
  int64_t flags;
} source;

static const char *const no_memory = "Out of memory while the artifact is loaded.";

static tw_status read_source(const source *from, uint64_t offset, void *buffer, size_t bytes) {
  if (from->file < 0)
    memcpy(buffer, from->memory + offset, bytes);
  else if (tw_os_read(from->file, offset, buffer, bytes))
    return tw_fail(TW_ERROR_IO, "The artifact cannot be read at byte %d.", (int64_t)offset);
  return TW_OK;
}

/* A section's bytes in anonymous memory of their own; *memory is set even on failure. */
static tw_status copy_section(const source *from, const tw_section *section, void **memory) {
  *memory = tw_os_map_memory(section->bytes);
  if (!*memory) return tw_fail(TW_ERROR_MEMORY, "%s", no_memory);
  return read_source(from, section->offset, *memory, section->bytes);
}

static tw_status load_code(tw_model *model, const source *from, const tw_section *section) {
  model->code_bytes = section->bytes;
  tw_status status = copy_section(from, section, &model->code);
  if (!status) status = tw_section_check(section, model->code, "code");
  if (!status && tw_os_make_executable(model->code, model->code_bytes))
    status = tw_fail(TW_ERROR_MEMORY, "The system refuses to make the artifact's code executable.");
  return status;
}

static tw_status map_constants(tw_model *model, const source *from, const tw_section *section) {
  size_t length = strlen(from->path) + 1;
  char *path = tw_zone_allocate(&model->zone, length);
  if (!path) return tw_fail(TW_ERROR_MEMORY, "%s", no_memory);
  memcpy(path, from->path, length);
  model->path = path;
  if (tw_os_settled_state(from->file, &model->state) || model->state.bytes != from->bytes)
    return tw_fail(TW_ERROR_IO, "File %q is being written while it is loaded.", path);
  model->constant_data = tw_os_map_file(from->file, section->offset, section->bytes);
  if (!model->constant_data) return tw_fail(TW_ERROR_MEMORY, "%s", no_memory);
  model->file = from->file; /* and the model closes it */
  return TW_OK;
}

static tw_status load_constants(tw_model *model, const source *from, const tw_section *section) {
  tw_status status = TW_OK;
  model->constant_bytes = section->bytes;
  if (from->flags & TW_BORROW_CONSTANTS) {
    model->constants_borrowed = true;
    model->constant_data = (void *)(from->memory + section->offset);
  } else if (!section->bytes) {
    return TW_OK;
  } else if (from->file < 0 || section->bytes <= MAX_COPIED_BYTES ||
             (from->flags & TW_COPY_CONSTANTS) || section->offset % tw_os_page_size()) {
    status = copy_section(from, section, &model->constant_data);
  } else {
    status = map_constants(model, from, section);
  }
  if (!status && !(from->flags & TW_SKIP_CONSTANTS_CHECK))
    status = tw_section_check(section, model->constant_data, "constants");
  return status;
}

static tw_status load_manifest(tw_model *model, const source *from, const tw_section *section) {
  char *raw = tw_zone_allocate(&model->zone, section->bytes + 1);
  char *text = tw_zone_allocate(&model->zone, section->bytes + 1);
  if (!raw || !text) return tw_fail(TW_ERROR_MEMORY, "%s", no_memory);
  tw_status status = read_source(from, section->offset, raw, section->bytes);
  if (!status) status = tw_section_check(section, raw, "manifest");
  if (status) return status;
  memcpy(text, raw, section->bytes);
  model->manifest = raw;
  model->manifest_bytes = section->bytes;
  return tw_manifest_load(model, text, section->bytes);
}

static tw_status load(source *from, tw_model **result) {
  uint8_t bytes[TW_HEADER_BYTES] = {0};
  tw_header header;
  tw_status status = TW_OK;
  if (from->bytes >= TW_HEADER_BYTES) status = read_source(from, 0, bytes, sizeof bytes);
  if (!status) status = tw_header_parse(bytes, from->bytes, &header);
  if (status) return status;
  tw_model *model = tw_os_allocate(sizeof *model);
  if (!model) return tw_fail(TW_ERROR_MEMORY, "%s", no_memory);
  memset(model, 0, sizeof *model);
  atomic_init(&model->references, 1);
  model->file = -1;
  status = load_code(model, from, &header.code);
  if (!status) status = load_constants(model, from, &header.constants);
  if (!status) status = load_manifest(model, from, &header.manifest);
  if (model->file >= 0) from->file = -1;
  if (status)
    tw_model_close(model);
  else
    *result = model;
  return status;
}

/* Checks what both ways of opening share; reads the flags. */
static tw_status begin(const tw_open_options *options, tw_model **model, int64_t *flags) {
  *flags = 0;
  if (!model) return tw_fail(TW_ERROR_ARGUMENT, "The pointer to the model is null.");
  *model = NULL;
  if (!options) return TW_OK;
  if (options->size != sizeof *options)
    return tw_fail(TW_ERROR_ARGUMENT, "The size of the open options is %d, but should be %d.",
                   options->size, (int64_t)sizeof *options);
  *flags = options->flags;
  if (*flags & ~(int64_t)(TW_SKIP_CONSTANTS_CHECK | TW_BORROW_CONSTANTS | TW_COPY_CONSTANTS))
    return tw_fail(TW_ERROR_ARGUMENT, "The flags %d of the open options are unknown.", *flags);
  return TW_OK;
}

tw_status tw_model_open(const char *path, const tw_open_options *options, tw_model **model) {
  source from = {.file = -1, .path = path};
  const char *reason = NULL;
  tw_status status = begin(options, model, &from.flags);
  if (status) return status;
  if (!path) return tw_fail(TW_ERROR_ARGUMENT, "The path is null.");
  if (from.flags & TW_BORROW_CONSTANTS)
    return tw_fail(TW_ERROR_ARGUMENT,
                   "Constants can be borrowed from memory only, not from a file.");
  from.file = tw_os_open(path, &from.bytes, &reason);
  if (from.file < 0) return tw_fail(TW_ERROR_IO, "File %q cannot be opened: %s.", path, reason);
  status = load(&from, model);
  if (from.file >= 0) tw_os_close(from.file);
  return status;
}

tw_status tw_model_open_memory(const void *data, size_t bytes, const tw_open_options *options,
                               tw_model **model) {
  source from = {.file = -1, .memory = data, .bytes = bytes};
  tw_status status = begin(options, model, &from.flags);
  if (status) return status;
  if (!data) return tw_fail(TW_ERROR_ARGUMENT, "The pointer to the artifact is null.");
  if ((from.flags & TW_BORROW_CONSTANTS) && (uintptr_t)data % 64)
    return tw_fail(TW_ERROR_ARGUMENT,
                   "Borrowed constants must be aligned: the artifact's bytes begin at an address "
                   "that is not a multiple of 64.");
  return load(&from, model);
}

tw_status tw_model_check_file(const tw_model *model) {
  if (model->file < 0 || tw_os_has_state(model->file, &model->state)) return TW_OK;
  return tw_fail(TW_ERROR_ARTIFACT,
                 "File %q has been written into since the model was loaded from it: load it again. "
                 "Replace a file by renaming a new one over it, or load a copy.",
                 model->path);
}

void tw_model_retain(tw_model *model) {
  atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
}

void tw_model_close(tw_model *model) {
  if (!model) return;
  if (atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1) return;
  tw_os_unmap(model->code, model->code_bytes);
  if (!model->constants_borrowed) tw_os_unmap(model->constant_data, model->constant_bytes);
  if (model->file >= 0) tw_os_close(model->file);
  for (tw_zone *zone = model->zone, *next; zone; zone = next) {
    next = zone->next;
    tw_os_free(zone);
  }
  tw_os_free(model);
}

int32_t tw_model_input_count(const tw_model *model) { return model ? model->input_count : 0; }

int32_t tw_model_output_count(const tw_model *model) { return model ? model->output_count : 0; }

static tw_status get_port(const tw_port_row *rows, int32_t count, int32_t index,
                          const tw_port **port) {
  if (!port) return tw_fail(TW_ERROR_ARGUMENT, "The result pointer is null.");
  if (index < 0 || index >= count)
    return tw_fail(TW_ERROR_ARGUMENT, "Index %d is out of range: the model has %d.", (int64_t)index,
                   (int64_t)count);
  *port = &rows[index].port;
  return TW_OK;
}

tw_status tw_model_input(const tw_model *model, int32_t index, const tw_port **port) {
  if (!model) return tw_fail(TW_ERROR_ARGUMENT, "The model is null.");
  return get_port(model->inputs, model->input_count, index, port);
}

tw_status tw_model_output(const tw_model *model, int32_t index, const tw_port **port) {
  if (!model) return tw_fail(TW_ERROR_ARGUMENT, "The model is null.");
  return get_port(model->outputs, model->output_count, index, port);
}

tw_status tw_model_kernel(const tw_model *model, int64_t id, const char **name,
                          const char **origin) {
  if (!model || !name || !origin)
    return tw_fail(TW_ERROR_ARGUMENT, "The model or a result pointer is null.");
  if (id < 0 || id >= model->kernel_count)
    return tw_fail(TW_ERROR_ARGUMENT, "Kernel %d is out of range: the model has %d.", id,
                   model->kernel_count);
  *name = model->kernels[id].name;
  *origin = model->kernels[id].origin;
  return TW_OK;
}

tw_status tw_model_manifest(const tw_model *model, const char **text, size_t *bytes) {
  if (!model || !text || !bytes)
    return tw_fail(TW_ERROR_ARGUMENT, "The model or a result pointer is null.");
  *text = model->manifest;
  *bytes = model->manifest_bytes;
  return TW_OK;
}
