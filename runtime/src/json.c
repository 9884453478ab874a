/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON reader of json.h. Limits: 32 levels, 8 million values; the grammar is RFC 8259's. */
#include "json.h"

#include <stdbool.h>
#include <string.h>

#include "os.h"

enum { MAX_DEPTH = 32, MAX_NODES = 1 << 23 };

typedef struct reader {
  json_document *document;
  const char *reason;
  char *at; /* the text ends in NUL, so that one character can always be looked at */
  char *end;
} reader;

static bool refuse(reader *in, const char *reason) {
  if (!in->reason) in->reason = reason;
  return false;
}

static void skip_space(reader *in) {
  while (*in->at == ' ' || *in->at == '\n' || *in->at == '\r' || *in->at == '\t') in->at++;
}

/* The index of a new node; UINT32_MAX when there is no room. */
static uint32_t add_node(reader *in, json_kind kind) {
  json_document *document = in->document;
  if (document->count == document->capacity) {
    uint32_t capacity = document->capacity ? document->capacity * 2 : 256;
    json_node *nodes = NULL;
    if (capacity <= MAX_NODES) nodes = tw_os_allocate(capacity * sizeof *nodes);
    if (!nodes) {
      refuse(in, "too many values");
      return UINT32_MAX;
    }
    if (document->count) memcpy(nodes, document->nodes, document->count * sizeof *nodes);
    tw_os_free(document->nodes);
    document->nodes = nodes;
    document->capacity = capacity;
  }
  json_node *node = &document->nodes[document->count];
  memset(node, 0, sizeof *node);
  node->kind = kind;
  node->next = document->count + 1;
  return document->count++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool read_number(reader *in) {
  bool negative = *in->at == '-', real = false;
  uint64_t magnitude = 0;
  if (negative) in->at++;
  if (!is_digit(*in->at)) return refuse(in, "a digit is missing");
  if (*in->at == '0' && is_digit(in->at[1])) return refuse(in, "a number begins with 0");
  for (; is_digit(*in->at); in->at++) {
    uint64_t digit = (uint64_t)(*in->at - '0');
    if (magnitude > (UINT64_C(9223372036854775807) + negative - digit) / 10)
      real = true;
    else
      magnitude = magnitude * 10 + digit;
  }
  if (*in->at == '.') {
    real = true;
    if (!is_digit(*++in->at)) return refuse(in, "a digit is missing");
    while (is_digit(*in->at)) in->at++;
  }
  if (*in->at == 'e' || *in->at == 'E') {
    real = true;
    in->at++;
    if (*in->at == '+' || *in->at == '-') in->at++;
    if (!is_digit(*in->at)) return refuse(in, "a digit is missing");
    while (is_digit(*in->at)) in->at++;
  }
  uint32_t node = add_node(in, real ? JSON_REAL : JSON_INTEGER);
  if (node == UINT32_MAX) return false;
  in->document->nodes[node].as.integer = (int64_t)(negative ? 0 - magnitude : magnitude);
  return true;
}

/* Four hexadecimal digits, or -1. */
static int32_t read_hex(reader *in) {
  int32_t value = 0;
  for (int i = 0; i < 4; i++, in->at++) {
    char c = *in->at;
    int32_t digit = is_digit(c)               ? c - '0'
                    : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                    : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value << 4 | digit;
  }
  return value;
}

/* Writes the UTF-8 of the \u escape whose digits come next (never longer than the escape). */
static bool read_unicode(reader *in, char **out) {
  int32_t code = read_hex(in);
  if (code >= 0xD800 && code <= 0xDBFF && in->at[0] == '\\' && in->at[1] == 'u') {
    in->at += 2;
    int32_t low = read_hex(in);
    if (low < 0xDC00 || low > 0xDFFF) return refuse(in, "half of a surrogate pair");
    code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
  } else if (code <= 0 || (code >= 0xD800 && code <= 0xDFFF)) {
    return refuse(in, "a \\u escape that is no character");
  }
  char *to = *out;
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xC0 | code >> 6);
    *to++ = (char)(0x80 | (code & 63));
  } else {
    if (code >= 0x10000) {
      *to++ = (char)(0xF0 | code >> 18);
      *to++ = (char)(0x80 | (code >> 12 & 63));
    } else {
      *to++ = (char)(0xE0 | code >> 12);
    }
    *to++ = (char)(0x80 | (code >> 6 & 63));
    *to++ = (char)(0x80 | (code & 63));
  }
  *out = to;
  return true;
}

/* Copies one UTF-8 sequence of two to four bytes. Overlong forms pass: nothing here compares
   characters. */
static bool read_multibyte(reader *in, char **out) {
  unsigned char lead = (unsigned char)*in->at;
  int more = lead >= 0xF0 && lead < 0xF5 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead >= 0xF5) return refuse(in, "a string that is not UTF-8");
  *(*out)++ = *in->at++;
  for (; more; more--) {
    if (((unsigned char)*in->at & 0xC0) != 0x80) return refuse(in, "a string that is not UTF-8");
    *(*out)++ = *in->at++;
  }
  return true;
}

static bool read_string(reader *in) {
  static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  uint32_t node = add_node(in, JSON_STRING);
  if (node == UINT32_MAX) return false;
  char *out = ++in->at;
  in->document->nodes[node].as.string = out;
  while (*in->at != '"') {
    unsigned char c = (unsigned char)*in->at;
    if (c < 32) return refuse(in, "a string without end, or a control character");
    if (c >= 0x80) {
      if (!read_multibyte(in, &out)) return false;
    } else if (c != '\\') {
      *out++ = *in->at++;
    } else if (*++in->at == 'u') {
      in->at++;
      if (!read_unicode(in, &out)) return false;
    } else {
      const char *escape = *in->at ? strchr(escapes, *in->at) : NULL;
      if (!escape) return refuse(in, "an unknown escape");
      *out++ = meanings[escape - escapes];
      in->at++;
    }
  }
  in->at++;
  *out = 0;
  return true;
}

static bool read_value(reader *in, int depth);

/* The members of an object or the elements of an array; `in->at` is at the opening bracket. */
static bool read_children(reader *in, int depth, json_kind kind, char close) {
  uint32_t node = add_node(in, kind), count = 0;
  if (node == UINT32_MAX) return false;
  if (depth >= MAX_DEPTH) return refuse(in, "nested too deeply");
  in->at++;
  skip_space(in);
  while (count || *in->at != close) {
    if (kind == JSON_OBJECT) {
      skip_space(in);
      if (*in->at != '"') return refuse(in, "a key is missing");
      if (!read_string(in)) return false;
      skip_space(in);
      if (*in->at != ':') return refuse(in, "a colon is missing");
      in->at++;
    }
    if (!read_value(in, depth + 1)) return false;
    count++;
    skip_space(in);
    if (*in->at != ',') break;
    in->at++;
  }
  if (*in->at != close) return refuse(in, "a comma or a closing bracket is missing");
  in->at++;
  in->document->nodes[node].count = count;
  in->document->nodes[node].next = in->document->count;
  return true;
}

static bool read_word(reader *in, const char *word, json_kind kind) {
  size_t length = strlen(word);
  if (strncmp(in->at, word, length)) return refuse(in, "an unknown word");
  in->at += length;
  return add_node(in, kind) != UINT32_MAX;
}

static bool read_value(reader *in, int depth) {
  skip_space(in);
  switch (*in->at) {
    case '{': return read_children(in, depth, JSON_OBJECT, '}');
    case '[': return read_children(in, depth, JSON_ARRAY, ']');
    case '"': return read_string(in);
    case 't': return read_word(in, "true", JSON_TRUE);
    case 'f': return read_word(in, "false", JSON_FALSE);
    case 'n': return read_word(in, "null", JSON_NULL);
    default:
      if (*in->at == '-' || is_digit(*in->at)) return read_number(in);
      return refuse(in, "a value is missing");
  }
}

const char *tw_json_parse(json_document *document, char *text, size_t bytes, size_t *where) {
  reader in = {document, NULL, text, text + bytes};
  memset(document, 0, sizeof *document);
  if (read_value(&in, 0)) {
    skip_space(&in);
    if (in.at != in.end) refuse(&in, "text after the end");
  }
  *where = (size_t)(in.at - text);
  return in.reason;
}

void tw_json_free(json_document *document) {
  tw_os_free(document->nodes);
  memset(document, 0, sizeof *document);
}

const json_node *tw_json_first(const json_document *document, const json_node *parent) {
  return &document->nodes[parent - document->nodes + 1];
}

const json_node *tw_json_next(const json_document *document, const json_node *node) {
  return &document->nodes[node->next];
}

const json_node *tw_json_member(const json_document *document, const json_node *object,
                                const char *key) {
  if (!object || object->kind != JSON_OBJECT) return NULL;
  const json_node *name = tw_json_first(document, object);
  for (uint32_t index = 0; index < object->count; index++) {
    const json_node *value = tw_json_next(document, name);
    if (!strcmp(name->as.string, key)) return value;
    name = tw_json_next(document, value);
  }
  return NULL;
}
