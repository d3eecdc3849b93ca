/* types.c: sizes and names of types and shapes. */
#include "ir/ir.h"

int64_t elements(struct shape s)
{
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++) n *= s.size[i];
  return n;
}

int64_t type_bytes(enum type t)
{
  static const int64_t bytes[] = {[F32] = 4, [BF16] = 2, [I32] = 4,  [I64] = 8,  [BOOL] = 1,
                                  [I8] = 1,  [NF4] = 1,  [E4M3] = 1, [E5M2] = 1, [F64] = 8};
  return bytes[t];
}

const char *type_name(enum type t)
{
  static const char *const name[] = {
      [F32] = "f32", [BF16] = "bf16", [I32] = "i32",   [I64] = "i64",   [BOOL] = "bool",
      [I8] = "i8",   [NF4] = "nf4",   [E4M3] = "e4m3", [E5M2] = "e5m2", [F64] = "f64"};
  return name[t];
}

struct block blocks_of(enum type type)
{
  static const struct block blocks[F64 + 1] = {[I8] = {32, 34}, [NF4] = {64, 33}};
  return blocks[type];
}

int64_t numbers_in(enum type type, struct shape s)
{
  const struct block block = blocks_of(type);
  return block.numbers ? elements(s) / block.bytes * block.numbers : elements(s);
}
