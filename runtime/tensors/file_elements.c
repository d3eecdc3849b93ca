// SPDX-License-Identifier: MIT
// Conversions of file elements: 16 bits to floats, doubles to floats, integers to each other.
#include "tensors/file_elements.h"

#include <string.h>
#include "base/elements.h"
#include "formats/packed.h"
#include "tensors/integer_inputs.h"

// ---- types -------------------------------------------------------------------------------------

enum type elements_type(const struct tensor *t)
{
  const bool stored = t->role == PARAMETER && (t->type == BF16 || table_block(t->type));
  return stored ? F32 : t->type;
}

// Whether it has 16 bits in the file and is float32 in the program: a lossless conversion.
static bool widens(const struct tensor *t, const char *dtype)
{
  return elements_type(t) == F32 && (strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0);
}

// NumPy's default floats are doubles, and so are the weights of some exported models.
static bool narrows(const struct tensor *t, const char *dtype)
{
  return elements_type(t) == F32 && (t->role == BATCH || t->role == PARAMETER) &&
         strcmp(dtype, "F64") == 0;
}

bool elements_are_blocks(const struct tensor *t, const struct entry *e)
{
  return table_block(t->type) && e->ndim == (size_t)t->ndim && strcmp(e->dtype, "U8") == 0;
}

bool elements_take(const struct tensor *t, const char *dtype)
{
  return strcmp(dtype, table_type(elements_type(t)).name) == 0 || widens(t, dtype) ||
         narrows(t, dtype) || numbers_take(t, dtype);
}

static void shape_text(size_t ndim, const long *shape, char *to, size_t size)
{
  size_t used = (size_t)snprintf(to, size, "[");
  for (size_t d = 0; d < ndim && used < size; d++)
    used += (size_t)snprintf(to + used, size - used, "%s%ld", d ? ", " : "", shape[d]);
  if (used < size) snprintf(to + used, size - used, "]");
}

bool elements_misfit(const struct kept *kept, const struct tensor *t, const struct slice *slice,
                     struct failure *why)
{
  const struct entry *e = kept->entry;
  char there[200], here[200];
  shape_text(e->ndim, e->shape, there, sizeof there);
  shape_text(slice->ndim, slice->of, here, sizeof here);
  return failed(why, "%s: %s is %s %s in the file, but %s %s in the program", kept->file->path,
                e->name, e->dtype, there, table_type(elements_type(t)).name, here);
}

size_t elements_staged(const struct kept *kept, const struct tensor *t)
{
  size_t here = table_type(elements_type(t)).bytes;
  size_t there = kept ? safetensors_bits(kept->entry->dtype) / 8 : 0;
  return here > there ? here : there;
}

// ---- reading -----------------------------------------------------------------------------------

// IEEE binary16: a sign, 5 bits of exponent, 10 of fraction.
static float half_to_float(uint16_t x)
{
  uint32_t exponent = x >> 10 & 31, fraction = x & 1023, bits = fraction << 13;
  float size;
  if (exponent == 0) return (x & 0x8000 ? -0x1p-24f : 0x1p-24f) * (float)fraction;
  bits |= exponent == 31 ? 0x7f800000 : (exponent + 112) << 23;
  memcpy(&size, &bits, sizeof size);
  return x & 0x8000 ? -size : size;
}

// The same for several tensors that are one: the slice's elements of each.
static bool read_stack(const struct kept *from, const struct slice *slice, size_t first,
                       size_t count, void *to, struct failure *why)
{
  const struct slice each = {slice->ndim - 1, slice->of + 1, slice->here + 1, slice->first + 1};
  const size_t size = slice_elements(&each), bytes = safetensors_bits(from->entry->dtype) / 8;
  for (size_t done = 0, n; done < count; done += n) {
    const size_t at = first + done, rest = size - at % size;
    const struct kept *k = from->stack[(size_t)slice->first[0] + at / size];
    void *place = (char *)to + done * bytes;
    n = rest < count - done ? rest : count - done;
    if (!(k->packed ? packed_read(k->packed, &each, at % size, n, place, why)
                    : safetensors_read(k->file, k->entry, &each, at % size, n, place, why)))
      return false;
  }
  return true;
}

static bool read_as_is(const struct kept *from, const struct slice *slice, size_t first,
                       size_t count, void *to, struct checksum *sum, struct failure *why)
{
  if (from->stack) return read_stack(from, slice, first, count, to, why);
  if (from->packed) return packed_read(from->packed, slice, first, count, to, why);
  if (!safetensors_read(from->file, from->entry, slice, first, count, to, why)) return false;
  if (sum) slice_checksum(sum, slice, safetensors_bits(from->entry->dtype) / 8, first, count, to);
  return true;
}

// Converts elements of 16 bits to floats: reads them into the end of the buffer.
static bool read_widened(const struct kept *from, const struct slice *slice, size_t first,
                         size_t count, void *to, struct checksum *sum, struct failure *why)
{
  bool half = strcmp(from->entry->dtype, "F16") == 0;
  char *narrow = (char *)to + count * (sizeof(float) - sizeof(uint16_t));
  if (!read_as_is(from, slice, first, count, narrow, sum, why)) return false;
  for (size_t i = 0; i < count; i++) {
    uint16_t x;
    memcpy(&x, narrow + i * sizeof x, sizeof x);
    ((float *)to)[i] = half ? half_to_float(x) : bf16_to_float(x);
  }
  return true;
}

static bool read_narrowed(const struct kept *from, const struct slice *slice, size_t first,
                          size_t count, void *to, struct checksum *sum, struct failure *why)
{
  if (!read_as_is(from, slice, first, count, to, sum, why)) return false;
  for (size_t i = 0; i < count; i++) {
    double x;
    memcpy(&x, (char *)to + i * sizeof x, sizeof x);
    ((float *)to)[i] = (float)x;
  }
  return true;
}

bool elements_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                   size_t from, size_t count, void *to, struct checksum *sum, struct failure *why)
{
  const struct tensor *t = &program->tensors[m->row];
  const char *dtype = kept->entry->dtype;
  if (widens(t, dtype)) return read_widened(kept, slice, from, count, to, sum, why);
  if (narrows(t, dtype)) return read_narrowed(kept, slice, from, count, to, sum, why);
  if (numbers_take(t, dtype)) return numbers_read(kept, m, slice, from, count, to, why);
  return read_as_is(kept, slice, from, count, to, sum, why);
}
