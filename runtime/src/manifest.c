/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the JSON manifest to a model's tables. Unknown members are ignored; each member that is read
 * is checked for kind and range, so that a run can trust the tables.
 */
#include <string.h>

#include "core.h"

enum { MAX_SYMBOLS = 4096 };

typedef struct loader {
  tw_model *model;
  json_document document;
  const uint64_t *constant_bytes; /* of each constant */
} loader;

static tw_status out_of_memory(void) {
  return tw_fail(TW_ERROR_MEMORY, "Out of memory while the artifact is loaded.");
}

static tw_status bad_member(const char *key) {
  return tw_fail(TW_ERROR_ARTIFACT, "Member %q of the artifact's manifest is missing or wrong.",
                 key);
}

static const json_node *member(const loader *in, const json_node *object, const char *key,
                               json_kind kind) {
  const json_node *node = tw_json_member(&in->document, object, key);
  return node && node->kind == kind ? node : NULL;
}

/* A table of `count` zeroed rows; never NULL for an empty one. */
static void *make_table(loader *in, size_t count, size_t row_bytes) {
  if (count > SIZE_MAX / 4 / row_bytes) return NULL;
  return tw_zone_allocate(&in->model->zone, count ? count * row_bytes : 1);
}

static tw_status load_target(loader *in, const json_node *root) {
  const json_node *target = member(in, root, "target", JSON_OBJECT);
  const json_node *arch = member(in, target, "arch", JSON_STRING);
  const json_node *features = member(in, target, "features", JSON_ARRAY);
  if (!arch || !features) return bad_member("target");
  if (strcmp(arch->as.string, tw_cpu_architecture()))
    return tw_fail(TW_ERROR_TARGET, "The artifact is for %q, but this machine is %q.",
                   arch->as.string, tw_cpu_architecture());
  char missing[512];
  tw_text text;
  int64_t count = 0;
  tw_text_begin(&text, missing, sizeof missing);
  const json_node *feature = tw_json_first(&in->document, features);
  for (uint32_t index = 0; index < features->count; index++) {
    if (feature->kind != JSON_STRING) return bad_member("features");
    if (tw_cpu_has(feature->as.string) != 1) {
      if (count++) tw_text_add(&text, ", ");
      tw_text_add_quoted(&text, feature->as.string);
    }
    feature = tw_json_next(&in->document, feature);
  }
  if (!count) return TW_OK;
  return tw_fail(TW_ERROR_TARGET,
                 "The artifact needs the processor features %s, which this machine lacks: compile "
                 "the model with '--target native' here, or for a target without them.",
                 missing);
}

/* Reads a member that may be absent or null; false if it is of another kind. */
static bool optional_integer(const loader *in, const json_node *object, const char *key,
                             int64_t *value) {
  const json_node *node = tw_json_member(&in->document, object, key);
  if (!node || node->kind == JSON_NULL) return true;
  *value = node->as.integer;
  return node->kind == JSON_INTEGER;
}

/* Symbols are kept sorted by name, for the look-up below. */
static tw_status load_symbols(loader *in, const json_node *root) {
  const json_node *list = member(in, root, "symbols", JSON_ARRAY);
  if (!list || list->count > MAX_SYMBOLS) return bad_member("symbols");
  tw_symbol *symbols = make_table(in, list->count, sizeof *symbols);
  if (!symbols) return out_of_memory();
  const json_node *item = tw_json_first(&in->document, list);
  for (uint32_t index = 0; index < list->count; index++) {
    const json_node *name = member(in, item, "name", JSON_STRING);
    tw_symbol symbol = {NULL, 0, INT64_MAX, 1};
    if (!name || !optional_integer(in, item, "lo", &symbol.lo) ||
        !optional_integer(in, item, "hi", &symbol.hi) ||
        !optional_integer(in, item, "multiple", &symbol.multiple) || symbol.multiple < 1)
      return bad_member("symbols");
    symbol.name = name->as.string;
    uint32_t at = index;
    for (; at && strcmp(symbols[at - 1].name, symbol.name) > 0; at--) symbols[at] = symbols[at - 1];
    if (at && !strcmp(symbols[at - 1].name, symbol.name)) return bad_member("symbols");
    symbols[at] = symbol;
    item = tw_json_next(&in->document, item);
  }
  in->model->symbols = symbols;
  in->model->symbol_count = (int32_t)list->count;
  return TW_OK;
}

static int32_t find_symbol(const tw_model *model, const char *name) {
  int32_t low = 0, high = model->symbol_count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    int order = strcmp(model->symbols[middle].name, name);
    if (!order) return middle;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

static tw_status load_port(loader *in, const json_node *item, tw_port_row *row) {
  const json_node *name = member(in, item, "name", JSON_STRING);
  const json_node *dtype = member(in, item, "dtype", JSON_STRING);
  const json_node *shape = member(in, item, "shape", JSON_ARRAY);
  if (!name || !dtype || !shape || shape->count > TW_MAX_RANK) return bad_member("inputs, outputs");
  int64_t *extents = make_table(in, shape->count, sizeof *extents);
  int32_t *symbols = make_table(in, shape->count, sizeof *symbols);
  const char **dims = make_table(in, shape->count, sizeof *dims);
  if (!extents || !symbols || !dims) return out_of_memory();
  int32_t code = tw_dtype_parse(dtype->as.string);
  row->port = (tw_port){name->as.string, code, (int32_t)shape->count, extents, dims, NULL};
  row->symbols = symbols;
  row->dtype = tw_dtype_find(code);
  if (!row->dtype || !row->dtype->bytes)
    return tw_fail(TW_ERROR_UNSUPPORTED, "The dtype %q of %q is not supported by this runtime.",
                   dtype->as.string, name->as.string);
  const json_node *dim = tw_json_first(&in->document, shape);
  for (uint32_t axis = 0; axis < shape->count; axis++) {
    symbols[axis] = -1;
    if (dim->kind == JSON_INTEGER && dim->as.integer >= 0) {
      char *digits = make_table(in, 24, 1);
      tw_text text;
      if (!digits) return out_of_memory();
      tw_text_begin(&text, digits, 24);
      tw_text_add_integer(&text, dim->as.integer);
      extents[axis] = dim->as.integer;
      dims[axis] = digits;
    } else if (dim->kind == JSON_STRING) {
      extents[axis] = -1;
      symbols[axis] = find_symbol(in->model, dim->as.string);
      dims[axis] = dim->as.string;
    } else {
      return bad_member("shape");
    }
    dim = tw_json_next(&in->document, dim);
  }
  return TW_OK;
}

/* The default of an input: a constant of the artifact's that is as large as its shape says. */
static tw_status load_default(loader *in, const json_node *item, tw_port_row *row) {
  const json_node *node = tw_json_member(&in->document, item, "default");
  if (!node) return TW_OK;
  const json_node *constant = member(in, node, "constant", JSON_INTEGER);
  const json_node *shape = member(in, node, "shape", JSON_ARRAY);
  if (!constant || !shape || shape->count != (uint32_t)row->port.rank || constant->as.integer < 0 ||
      constant->as.integer >= in->model->constant_count)
    return bad_member("default");
  int64_t *extents = make_table(in, shape->count, sizeof *extents);
  if (!extents) return out_of_memory();
  const json_node *dim = tw_json_first(&in->document, shape);
  for (uint32_t axis = 0; axis < shape->count; axis++) {
    if (dim->kind != JSON_INTEGER) return bad_member("default");
    extents[axis] = dim->as.integer;
    dim = tw_json_next(&in->document, dim);
  }
  uint64_t bytes = 0;
  if (!tw_shape_bytes(row->dtype, row->port.rank, extents, &bytes) ||
      bytes > in->constant_bytes[constant->as.integer])
    return bad_member("default");
  row->port.default_extents = extents;
  row->fallback.kind = TW_TENSOR;
  row->fallback.as.tensor = (tw_dl_tensor){in->model->constants[constant->as.integer],
                                           {TW_DL_CPU, 0},
                                           row->port.rank,
                                           {row->dtype->code, row->dtype->bits, 1},
                                           extents,
                                           NULL,
                                           0};
  return TW_OK;
}

static tw_status load_ports(loader *in, const json_node *root, const char *key, tw_port_row **rows,
                            int32_t *count) {
  const json_node *list = member(in, root, key, JSON_ARRAY);
  if (!list || list->count > TW_MAX_PORTS) return bad_member(key);
  *rows = make_table(in, list->count, sizeof **rows);
  if (!*rows) return out_of_memory();
  const json_node *item = tw_json_first(&in->document, list);
  for (uint32_t index = 0; index < list->count; index++) {
    tw_status status = load_port(in, item, &(*rows)[index]);
    if (!status && !strcmp(key, "inputs")) status = load_default(in, item, &(*rows)[index]);
    if (status) return status;
    item = tw_json_next(&in->document, item);
  }
  *count = (int32_t)list->count;
  return TW_OK;
}

static tw_status load_texts(loader *in, const json_node *root) {
  tw_model *model = in->model;
  const json_node *messages = member(in, root, "messages", JSON_ARRAY);
  const json_node *kernels = member(in, root, "kernels", JSON_ARRAY);
  if (!messages) return bad_member("messages");
  if (!kernels) return bad_member("kernels");
  model->messages = make_table(in, messages->count, sizeof *model->messages);
  model->kernels = make_table(in, kernels->count, sizeof *model->kernels);
  if (!model->messages || !model->kernels) return out_of_memory();
  const json_node *item = tw_json_first(&in->document, messages);
  for (uint32_t index = 0; index < messages->count; index++) {
    if (item->kind != JSON_STRING) return bad_member("messages");
    model->messages[index] = item->as.string;
    item = tw_json_next(&in->document, item);
  }
  item = tw_json_first(&in->document, kernels);
  for (uint32_t index = 0; index < kernels->count; index++) {
    const json_node *name = member(in, item, "name", JSON_STRING);
    const json_node *origin = member(in, item, "origin", JSON_STRING);
    if (!name) return bad_member("kernels");
    model->kernels[index] =
        (tw_kernel_name){name->as.string, origin ? origin->as.string : ""};
    item = tw_json_next(&in->document, item);
  }
  model->message_count = messages->count;
  model->kernel_count = kernels->count;
  return TW_OK;
}

static tw_status load_constants(loader *in, const json_node *root) {
  tw_model *model = in->model;
  const json_node *list = member(in, root, "constants", JSON_ARRAY);
  if (!list) return bad_member("constants");
  model->constants = make_table(in, list->count, sizeof *model->constants);
  uint64_t *sizes = make_table(in, list->count, sizeof *sizes);
  if (!model->constants || !sizes) return out_of_memory();
  const json_node *item = tw_json_first(&in->document, list);
  for (uint32_t index = 0; index < list->count; index++) {
    const json_node *offset = member(in, item, "offset", JSON_INTEGER);
    const json_node *bytes = member(in, item, "bytes", JSON_INTEGER);
    if (!offset || !bytes || offset->as.integer < 0 || bytes->as.integer < 0 ||
        offset->as.integer % 64 || (uint64_t)offset->as.integer > model->constant_bytes ||
        (uint64_t)bytes->as.integer > model->constant_bytes - (uint64_t)offset->as.integer)
      return bad_member("constants");
    model->constants[index] = (char *)model->constant_data + offset->as.integer;
    sizes[index] = (uint64_t)bytes->as.integer;
    item = tw_json_next(&in->document, item);
  }
  model->constant_count = list->count;
  in->constant_bytes = sizes;
  return TW_OK;
}

/* The member "entry" of an object: the offset of a function in the code. */
static bool load_entry(loader *in, const json_node *object, tw_host *function) {
  const json_node *entry = member(in, object, "entry", JSON_INTEGER);
  if (!entry || entry->as.integer < 0 || (uint64_t)entry->as.integer >= in->model->code_bytes)
    return false;
  void *address = (char *)in->model->code + entry->as.integer;
  memcpy(function, &address, sizeof address);
  return true;
}

/* The program for calls that replace no default, and where its launches begin among all; only a
   model whose inputs have defaults may have one. */
static tw_status load_defaults_entry(loader *in, const json_node *root) {
  tw_model *model = in->model;
  const json_node *node = tw_json_member(&in->document, root, "defaults_entry");
  if (!node) return TW_OK;
  const json_node *first = member(in, node, "first_kernel", JSON_INTEGER);
  bool replaceable = false;
  for (int32_t index = 0; index < model->input_count; index++)
    replaceable |= model->inputs[index].fallback.kind != TW_NONE;
  if (!replaceable || !first || first->as.integer < 0 ||
      first->as.integer > model->kernel_count || !load_entry(in, node, &model->defaults_entry))
    return bad_member("defaults_entry");
  return TW_OK;
}

static tw_status load_root(loader *in, const json_node *root) {
  tw_model *model = in->model;
  tw_status status;
  const json_node *format = member(in, root, "format", JSON_INTEGER);
  if (!format || format->as.integer != TW_FORMAT_VERSION) return bad_member("format");
  if ((status = load_target(in, root))) return status;
  if ((status = load_symbols(in, root))) return status;
  if ((status = load_constants(in, root))) return status;
  if ((status = load_ports(in, root, "inputs", &model->inputs, &model->input_count))) return status;
  if ((status = load_ports(in, root, "outputs", &model->outputs, &model->output_count)))
    return status;
  if ((status = load_texts(in, root))) return status;
  if (!load_entry(in, root, &model->entry)) return bad_member("entry");
  return load_defaults_entry(in, root);
}

tw_status tw_manifest_load(tw_model *model, char *text, size_t bytes) {
  loader in = {.model = model};
  size_t where = 0;
  tw_status status;
  const char *reason = tw_json_parse(&in.document, text, bytes, &where);
  if (reason)
    status = tw_fail(TW_ERROR_ARTIFACT, "The artifact's manifest is no JSON: %s at byte %d.",
                     reason, (int64_t)where);
  else
    status = load_root(&in, in.document.nodes);
  tw_json_free(&in.document);
  return status;
}
