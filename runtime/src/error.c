/* SPDX-License-Identifier: Apache-2.0 */
/* The message of the last failed call, one for each thread, and the small formatter behind it. */
#include <stdarg.h>
#include <string.h>

#include "core.h"

enum { MESSAGE_BYTES = 1024, QUOTED_BYTES = 200 };

static _Thread_local char message[MESSAGE_BYTES];

void tw_text_begin(tw_text *text, char *data, size_t capacity) {
  text->data = data;
  text->capacity = capacity;
  text->length = 0;
  data[0] = 0;
}

static void add_char(tw_text *text, char c) {
  if (text->length + 1 < text->capacity) {
    text->data[text->length++] = c;
    text->data[text->length] = 0;
  }
}

void tw_text_add(tw_text *text, const char *string) {
  for (; *string; string++) add_char(text, *string);
}

void tw_text_add_quoted(tw_text *text, const char *string) {
  add_char(text, '\'');
  for (int count = 0; *string; string++) {
    unsigned char c = (unsigned char)*string;
    if (count++ >= QUOTED_BYTES && (c & 0xC0) != 0x80) { /* never inside a UTF-8 sequence */
      tw_text_add(text, "...");
      break;
    }
    add_char(text, c < 32 || c == 127 ? '?' : (char)c);
  }
  add_char(text, '\'');
}

void tw_text_add_integer(tw_text *text, int64_t value) {
  char digits[24];
  int count = 0;
  uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    digits[count++] = (char)('0' + magnitude % 10);
    magnitude /= 10;
  } while (magnitude);
  if (value < 0) add_char(text, '-');
  while (count) add_char(text, digits[--count]);
}

void tw_text_add_shape(tw_text *text, int32_t rank, const int64_t *shape) {
  add_char(text, '[');
  for (int32_t axis = 0; axis < rank; axis++) {
    if (axis) tw_text_add(text, ", ");
    tw_text_add_integer(text, shape[axis]);
  }
  add_char(text, ']');
}

void tw_fail_begin(tw_text *text) { tw_text_begin(text, message, sizeof message); }

tw_status tw_fail(tw_status status, const char *format, ...) {
  tw_text text;
  va_list values;
  tw_fail_begin(&text);
  va_start(values, format);
  for (; *format; format++) {
    if (*format != '%') {
      add_char(&text, *format);
      continue;
    }
    switch (*++format) {
      case 's': tw_text_add(&text, va_arg(values, const char *)); break;
      case 'q': tw_text_add_quoted(&text, va_arg(values, const char *)); break;
      case 'd': tw_text_add_integer(&text, va_arg(values, int64_t)); break;
      default: add_char(&text, *format); break;
    }
  }
  va_end(values);
  return status;
}

const char *tw_last_error(void) { return message; }

int32_t tw_version(void) { return TW_VERSION; }
