/* SPDX-License-Identifier: Apache-2.0 */
/* The table of element types: names as in manifests, DLPack codes, sizes. */
#include <string.h>

#include "core.h"

static const tw_dtype_row rows[] = {
    [TW_BOOL] = {"bool", 6, 8, 1, 1},
    [TW_INT8] = {"int8", 0, 8, 1, 1},
    [TW_INT16] = {"int16", 0, 16, 2, 2},
    [TW_INT32] = {"int32", 0, 32, 4, 4},
    [TW_INT64] = {"int64", 0, 64, 8, 8},
    [TW_UINT8] = {"uint8", 1, 8, 1, 1},
    [TW_UINT16] = {"uint16", 1, 16, 2, 2},
    [TW_UINT32] = {"uint32", 1, 32, 4, 4},
    [TW_UINT64] = {"uint64", 1, 64, 8, 8},
    [TW_FLOAT16] = {"float16", 2, 16, 2, 2},
    [TW_BFLOAT16] = {"bfloat16", 4, 16, 2, 2},
    [TW_FLOAT32] = {"float32", 2, 32, 4, 4},
    [TW_FLOAT64] = {"float64", 2, 64, 8, 8},
    [TW_COMPLEX64] = {"complex64", 5, 64, 8, 4},
    [TW_COMPLEX128] = {"complex128", 5, 128, 16, 8},
    [TW_FLOAT8_E4M3FN] = {"float8_e4m3fn", 10, 8, 1, 1},
    [TW_FLOAT8_E4M3FNUZ] = {"float8_e4m3fnuz", 11, 8, 1, 1},
    [TW_FLOAT8_E5M2] = {"float8_e5m2", 12, 8, 1, 1},
    [TW_FLOAT8_E5M2FNUZ] = {"float8_e5m2fnuz", 13, 8, 1, 1},
    [TW_FLOAT8_E8M0FNU] = {"float8_e8m0fnu", 14, 8, 1, 1},
    [TW_INT4] = {"int4", 0, 4, 1, 1},
    [TW_UINT4] = {"uint4", 1, 4, 1, 1},
    [TW_INT2] = {"int2", 0, 2, 1, 1},
    [TW_UINT2] = {"uint2", 1, 2, 1, 1},
    [TW_FLOAT4_E2M1FN] = {"float4_e2m1fn", 17, 4, 1, 1},
    [TW_STRING] = {"string", 0, 0, 0, 1},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

const tw_dtype_row *tw_dtype_find(int32_t dtype) {
  return dtype > 0 && dtype < ROW_COUNT ? &rows[dtype] : NULL;
}

int32_t tw_dtype_parse(const char *name) {
  for (int32_t dtype = 1; dtype < ROW_COUNT; dtype++)
    if (!strcmp(rows[dtype].name, name)) return dtype;
  return 0;
}

const char *tw_dtype_name(int32_t dtype) {
  const tw_dtype_row *row = tw_dtype_find(dtype);
  return row ? row->name : NULL;
}

tw_status tw_dtype_to_dlpack(int32_t dtype, tw_dl_dtype *result) {
  const tw_dtype_row *row = tw_dtype_find(dtype);
  if (!result) return tw_fail(TW_ERROR_ARGUMENT, "The result pointer is null.");
  if (!row || !row->bytes)
    return tw_fail(TW_ERROR_ARGUMENT, "Dtype %d is unknown or reserved.", (int64_t)dtype);
  *result = (tw_dl_dtype){row->code, row->bits, 1};
  return TW_OK;
}

int32_t tw_dtype_from_dlpack(tw_dl_dtype dtype) {
  for (int32_t code = 1; code < ROW_COUNT; code++)
    if (rows[code].bytes && rows[code].code == dtype.code && rows[code].bits == dtype.bits &&
        dtype.lanes == 1)
      return code;
  return 0;
}
