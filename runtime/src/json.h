/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded JSON reader. It parses in place: strings are unescaped inside the text and end in NUL,
 * and the values form one array in the order of the text, so that a value's children directly
 * follow it and `next` leads past them.
 */
#ifndef TW_JSON_H
#define TW_JSON_H

#include <stddef.h>
#include <stdint.h>

typedef enum json_kind {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_INTEGER, /* fits int64_t */
  JSON_REAL,    /* any other number; its value is not kept */
  JSON_STRING,  /* UTF-8, without NUL */
  JSON_ARRAY,
  JSON_OBJECT   /* children alternate: key, value */
} json_kind;

typedef struct json_node {
  json_kind kind;
  uint32_t next;  /* index of the first node after this value */
  uint32_t count; /* elements of an array, members of an object */
  union {
    int64_t integer;
    const char *string;
  } as;
} json_node;

typedef struct json_document {
  json_node *nodes;
  uint32_t count;
  uint32_t capacity;
} json_document;

/* Parses text[0..bytes), whose byte text[bytes] must be there and be NUL. NULL: parsed; else the
   reason, with *where the offset of the fault. Free the document in both cases. */
const char *tw_json_parse(json_document *document, char *text, size_t bytes, size_t *where);
void tw_json_free(json_document *document);

/* The member `key` of an object, or NULL (also if `object` is NULL or no object). */
const json_node *tw_json_member(const json_document *document, const json_node *object,
                                const char *key);
/* Visits children: node = first, then next, `count` times (twice that for objects). */
const json_node *tw_json_first(const json_document *document, const json_node *parent);
const json_node *tw_json_next(const json_document *document, const json_node *node);

#endif
