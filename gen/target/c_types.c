/* c_types.c: the C types of elements and counters. */
#include "target/target.h"

const char *c_type(enum type t)
{
  static const char *const name[] = {
      [F32] = "float",          [BF16] = "bf16",      [I32] = "int",           [I64] = "long",
      [BOOL] = "unsigned char", [I8] = "signed char", [NF4] = "unsigned char", [E4M3] = "e4m3",
      [E5M2] = "e5m2",          [F64] = "double"};
  return name[t];
}

const char *counter_type(int64_t n)
{
  return n < INT32_MAX ? "int" : "long";
}
