// SPDX-License-Identifier: MIT
// A library's inputs and outputs: between the caller's whole tensors and the parts of the ranks.
#include "library/library.h"

#include <string.h>
#include "base/target.h"
#include "checkpoint/across_ranks.h"
#include "tensors/integer_inputs.h"

static const struct member *nth(const struct library *m, enum role role, int i)
{
  for (size_t k = 0; k < m->members.count; k++) {
    const struct member *member = &m->members.all[k];
    const struct tensor *t = &program->tensors[member->row];
    if (t->role == role && t->init.how != PRESENT && i-- == 0) return member;
  }
  return NULL;
}

const struct member *library_input(const struct library *m, int i)
{
  return nth(m, BATCH, i);
}

const struct member *library_output(const struct library *m, int i)
{
  return nth(m, OUTPUT, i);
}

// The slice's own elements from .. from + count - 1 of a whole tensor in memory.
static void copy_elements(const struct slice *slice, size_t size, size_t from, size_t count,
                          const char *whole, char *to)
{
  while (count > 0) {
    const struct run run = slice_run(slice, from, count);
    memcpy(to, whole + run.first * size, run.count * size);
    to += run.count * size;
    from += run.count;
    count -= run.count;
  }
}

// Calls `with` for this rank's part, piece by piece: from the whole, or with NULL from memory.
static bool each_piece(struct library *m, const struct member *input, const void *whole,
                       bool (*with)(const struct member *input, const struct slice *slice,
                                    size_t from, size_t count, void *elements, struct failure *why),
                       struct failure *why)
{
  const struct slice slice = table_slice(input->row);
  const size_t size = table_type(program->tensors[input->row].type).bytes;
  const size_t all = slice_elements(&slice), most = STAGED_BYTES / size;
  for (size_t from = 0; from < all; from += most) {
    const size_t count = all - from < most ? all - from : most;
    if (whole)
      copy_elements(&slice, size, from, count, whole, m->stage);
    else
      target_get(m->stage, table_memory(input) + from * size, count * size);
    if (!with(input, &slice, from, count, m->stage, why)) return false;
  }
  return true;
}

static bool put_piece(const struct member *input, const struct slice *slice, size_t from,
                      size_t count, void *elements, struct failure *why)
{
  const size_t size = table_type(program->tensors[input->row].type).bytes;
  (void)slice, (void)why;
  target_put(table_memory(input) + from * size, elements, count * size);
  return true;
}

static bool check_piece(const struct member *input, const struct slice *slice, size_t from,
                        size_t count, void *elements, struct failure *why)
{
  static char path[] = "the caller's data";
  static const struct safetensors file = {.path = path};
  return numbers_hold(&(struct kept){.file = &file}, input, slice, 0, from, count, elements, why);
}

void library_put(struct library *m, const struct member *input, const void *whole)
{
  each_piece(m, input, whole, put_piece, NULL);
}

bool library_inputs_hold(struct library *m, const void *const *whole, long batches)
{
  struct failure why = {""};
  bool any = false, ok = true;
  const struct member *input;
  long n = 0;
  while (library_input(m, (int)n)) n++;
  for (int i = 0; (input = library_input(m, i)); i++) {
    if (!numbers_are(&program->tensors[input->row])) continue;
    any = true;
    for (long b = 0; ok && b < (whole ? batches : 1); b++)
      ok = each_piece(m, input, whole ? whole[b * n + i] : NULL, check_piece, &why);
  }
  return !any || all_ranks_ok(ok, &why);
}

// One of the ranks with the same part contributes it, and the others contribute zeros.
void library_gather(struct library *m, const struct member *output, void *whole)
{
  enum { AT_ONCE = 1 << 28 };
  const struct tensor *t = &program->tensors[output->row];
  const struct slice slice = table_slice(output->row);
  const size_t size = table_type(t->type).bytes, all = slice_elements(&slice);
  size_t bytes = size;
  for (int d = 0; d < t->ndim; d++) bytes *= (size_t)t->of[d];
  memset(whole, 0, bytes);
  for (size_t from = 0; from < all && rank->parts[output->row].saves;) {
    const struct run run = slice_run(&slice, from, all - from);
    target_get((char *)whole + run.first * size, table_memory(output) + from * size,
               run.count * size);
    from += run.count;
  }
  for (size_t done = 0; done < bytes && program->world > 1; done += AT_ONCE) {
    const int some = bytes - done < AT_ONCE ? (int)(bytes - done) : AT_ONCE;
    int error;
    WAITING("MPI_Allreduce", error = MPI_Allreduce(MPI_IN_PLACE, (char *)whole + done, some,
                                                   MPI_BYTE, MPI_BOR, m->everyone));
    if (error != MPI_SUCCESS) fail_call(__FILE__, __LINE__, "MPI_Allreduce", NULL);
  }
}
