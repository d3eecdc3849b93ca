// SPDX-License-Identifier: MIT
// Products by oneDNN, if it is installed: for programs that multiply bfloat16, or large matrices of
// float32.
//
// oneDNN computes those of bfloat16 if the processor has bfloat16 instructions (AVX-512 BF16).
// Where it has a matrix unit, too, cpu/kernels/amx_bf16.h is faster, and leaves the small products
// to oneDNN. On other processors the parts of cpu/kernels/bf16.h are faster. It computes those of
// float32 if the processor has AVX-512. TPGEN_ONEDNN=1 in the environment selects oneDNN wherever
// it has optimised code (for bfloat16 from AVX-512 on), TPGEN_ONEDNN=0 never. Primitives for
// bfloat16 are created at the first product of some sizes, and kept, but no more than MOST: rows of
// experts have other sizes in every step. oneDNN's threads are OpenMP's, like all of the program's.
#include <dnnl.h>
#include <dnnl_debug.h>
#include <stdlib.h>
#include <string.h>
#include "base/program.h"
#include "cpu/kernels/math.h"

enum { A, B, C, MATRICES };

// The key of a method. Sizes and strides: batch, row, column.
struct kind {
  int64_t size[MATRICES][3], stride[MATRICES][3];
  int64_t wide, add; // is c float32? is the product added to it?
};

// How oneDNN computes these; `primitive` is NULL if it has no fast code for them.
struct method {
  struct kind kind;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[MATRICES];
  struct method *next;
};

enum { SLOTS = 512, MOST = 256 };

// A library has them for each thread: a method holds the addresses of the product in work.
static OF_MODEL dnnl_engine_t engine;
static OF_MODEL dnnl_stream_t stream;
static OF_MODEL struct method *known[SLOTS];
static OF_MODEL int nknown;
static OF_MODEL enum { UNKNOWN, USED, UNUSED } use;

// ---- where its versions 2 and 3 differ ----------------------------------------------------------

#if DNNL_VERSION_MAJOR >= 3
static bool describe(dnnl_memory_desc_t *d, int n, const dnnl_dims_t size, const dnnl_dims_t stride,
                     dnnl_data_type_t type)
{
  return dnnl_memory_desc_create_with_strides(d, n, size, type, stride) == dnnl_success;
}

static bool make_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *d)
{
  return dnnl_memory_create(memory, *d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static void add_to_result(dnnl_post_ops_t after)
{
  dnnl_post_ops_append_sum(after, 1, 0, dnnl_data_type_undef);
}

static bool plan(dnnl_primitive_desc_t *plan, const dnnl_memory_desc_t d[MATRICES],
                 const_dnnl_primitive_attr_t how)
{
  return dnnl_matmul_primitive_desc_create(plan, engine, d[A], d[B], NULL, d[C], how) ==
         dnnl_success;
}

static void forget(dnnl_memory_desc_t *d)
{
  dnnl_memory_desc_destroy(*d);
}
#else
static bool describe(dnnl_memory_desc_t *d, int n, const dnnl_dims_t size, const dnnl_dims_t stride,
                     dnnl_data_type_t type)
{
  return dnnl_memory_desc_init_by_strides(d, n, size, type, stride) == dnnl_success;
}

static bool make_memory(dnnl_memory_t *memory, const dnnl_memory_desc_t *d)
{
  return dnnl_memory_create(memory, d, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

static void add_to_result(dnnl_post_ops_t after)
{
  dnnl_post_ops_append_sum(after, 1);
}

static bool plan(dnnl_primitive_desc_t *plan, const dnnl_memory_desc_t d[MATRICES],
                 const_dnnl_primitive_attr_t how)
{
  dnnl_matmul_desc_t product;
  return dnnl_matmul_desc_init(&product, &d[A], &d[B], NULL, &d[C]) == dnnl_success &&
         dnnl_primitive_desc_create(plan, &product, how, engine, NULL) == dnnl_success;
}

static void forget(dnnl_memory_desc_t *d)
{
  (void)d;
}
#endif

// ---- a method for each kind ---------------------------------------------------------------------

// oneDNN's reference code takes any strides, but is slow.
static bool is_quick(dnnl_primitive_desc_t plan)
{
  const char *name = "";
  dnnl_primitive_desc_query(plan, dnnl_query_impl_info_str, 0, &name);
  return !strstr(name, "ref");
}

static void make_primitive(struct method *m, const dnnl_memory_desc_t d[MATRICES])
{
  dnnl_primitive_desc_t planned = NULL;
  dnnl_primitive_attr_t how = NULL;
  dnnl_post_ops_t after = NULL;
  if (m->kind.add && dnnl_primitive_attr_create(&how) == dnnl_success &&
      dnnl_post_ops_create(&after) == dnnl_success) {
    add_to_result(after);
    dnnl_primitive_attr_set_post_ops(how, after);
  }
  if ((after || !m->kind.add) && plan(&planned, d, how) && is_quick(planned) &&
      dnnl_primitive_create(&m->primitive, planned) != dnnl_success)
    m->primitive = NULL;
  dnnl_primitive_desc_destroy(planned);
  dnnl_post_ops_destroy(after);
  dnnl_primitive_attr_destroy(how);
}

// A single product has rows and columns only.
static bool describe_matrix(dnnl_memory_desc_t *d, const struct kind *kind, int n)
{
  const int first = kind->size[C][0] == 1, ndim = 3 - first;
  dnnl_dims_t size, stride;
  memcpy(size, kind->size[n] + first, (size_t)ndim * sizeof *size);
  memcpy(stride, kind->stride[n] + first, (size_t)ndim * sizeof *stride);
  return describe(d, ndim, size, stride, n == C && kind->wide ? dnnl_f32 : dnnl_bf16);
}

static void make_method(struct method *m)
{
  dnnl_memory_desc_t d[MATRICES];
  int n = 0;
  while (n < MATRICES && describe_matrix(&d[n], &m->kind, n)) n++;
  if (n == MATRICES && make_memory(&m->memory[A], &d[A]) && make_memory(&m->memory[B], &d[B]) &&
      make_memory(&m->memory[C], &d[C]))
    make_primitive(m, d);
  while (n-- > 0) forget(&d[n]);
}

static void forget_methods(void)
{
  for (int i = 0; i < SLOTS; i++)
    while (known[i]) {
      struct method *m = known[i];
      known[i] = m->next;
      for (int n = 0; n < MATRICES; n++) dnnl_memory_destroy(m->memory[n]);
      dnnl_primitive_destroy(m->primitive);
      free(m);
    }
  nknown = 0;
}

// NULL if there is none.
static const struct method *method_for(struct kind kind)
{
  uint64_t hash = 0;
  const int64_t *of = (const int64_t *)(const void *)&kind;
  for (size_t i = 0; i < sizeof kind / sizeof *of; i++)
    hash = ((hash ^ (uint64_t)of[i]) * UINT64_C(0x9e3779b97f4a7c15)) ^ hash >> 29;
  struct method **slot = &known[hash % SLOTS], *m = *slot;
  while (m && memcmp(&m->kind, &kind, sizeof kind) != 0) m = m->next;
  if (!m && nknown == MOST) forget_methods();
  if (!m && (m = calloc(1, sizeof *m))) {
    nknown++;
    m->kind = kind;
    make_method(m);
    m->next = *slot;
    *slot = m;
  }
  return m && m->primitive ? m : NULL;
}

// ---- a product of bfloat16 ----------------------------------------------------------------------

// Threads may call it at the same time; all find the same answer.
bool asked_for_onednn(void)
{
  enum { IS = 1, IS_NOT };
  static _Atomic int answer; // 0: not known yet
  const char *asked = answer ? NULL : getenv("TPGEN_ONEDNN");
  if (!answer) answer = asked && *asked && strcmp(asked, "0") != 0 ? IS : IS_NOT;
  return answer == IS;
}

// As the environment says; else whether the processor has these instructions.
static bool has_instructions(unsigned instructions)
{
  const char *asked = getenv("TPGEN_ONEDNN");
  if (asked && *asked) return asked_for_onednn();
  return ((unsigned)dnnl_get_effective_cpu_isa() & instructions) == instructions;
}

static bool is_used(void)
{
  if (use != UNKNOWN) return use == USED;
#ifndef TPGEN_LIBRARY
  dnnl_set_primitive_cache_capacity(0); // it would keep what is forgotten
#endif
  use = has_instructions(dnnl_cpu_isa_avx512_core_bf16) &&
                dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
                dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success
            ? USED
            : UNUSED;
  return use == USED;
}

// Frees what this thread has.
void forget_onednn(void)
{
  forget_methods();
  dnnl_stream_destroy(stream);
  dnnl_engine_destroy(engine);
  stream = NULL;
  engine = NULL;
  use = UNKNOWN;
}

// `batch` of its products at once. A matrix that all of them share is stored once.
static struct kind kind_of(const struct bf16_product *p, int batch)
{
  const bool ta = p->a_is == 't', tb = p->b_is == 't', one = batch == 1;
  return (struct kind){
      .size = {{p->step_a ? batch : 1, p->m, p->k},
               {p->step_b ? batch : 1, p->k, p->n},
               {batch, p->m, p->n}},
      .stride = {{one ? 0 : p->step_a, ta ? 1 : p->lda, ta ? p->lda : 1},
                 {one ? 0 : p->step_b, tb ? 1 : p->ldb, tb ? p->ldb : 1},
                 {one ? 0 : p->step_c, p->ldc, 1}},
      .wide = p->wide != NULL,
      .add = p->add,
  };
}

// Product number i, and the next ones that the method computes with it.
static void execute(const struct method *m, const struct bf16_product *p, int i)
{
  void *const at[] = {(void *)(uintptr_t)(p->a + i * p->step_a),
                      (void *)(uintptr_t)(p->b + i * p->step_b),
                      p->wide ? (void *)(p->wide + i * p->step_c) : p->c + i * p->step_c};
  const dnnl_exec_arg_t args[] = {
      {DNNL_ARG_SRC, m->memory[A]}, {DNNL_ARG_WEIGHTS, m->memory[B]}, {DNNL_ARG_DST, m->memory[C]}};
  dnnl_status_t status = dnnl_success;
  for (int n = 0; n < MATRICES && status == dnnl_success; n++)
    status = dnnl_memory_set_data_handle(m->memory[n], at[n]);
  if (status == dnnl_success) status = dnnl_primitive_execute(m->primitive, stream, MATRICES, args);
  if (status == dnnl_success) status = dnnl_stream_wait(stream);
  if (status != dnnl_success)
    fail_call(__FILE__, __LINE__, "dnnl_primitive_execute", dnnl_status2str(status));
}

bool multiply_by_onednn(const struct bf16_product *p)
{
  if (p->m <= 0 || p->n <= 0 || p->k <= 0 || p->batch <= 0 || !is_used()) return false;
  int at_once = p->batch;
  const struct method *m = method_for(kind_of(p, at_once));
  if (!m && at_once > 1) m = method_for(kind_of(p, at_once = 1));
  for (int i = 0; m && i < p->batch; i += at_once) execute(m, p, i);
  return m != NULL;
}

// ---- a product of float32 -----------------------------------------------------------------------

// Threads may call it at the same time; all find the same answer.
static bool multiplies_floats(void)
{
  enum { DOES = 1, DOES_NOT };
  static _Atomic int answer; // 0: not known yet
  if (!answer) answer = has_instructions(dnnl_cpu_isa_avx512_core) ? DOES : DOES_NOT;
  return answer == DOES;
}

// BLAS is faster for small matrices; and for those that oneDNN reads by columns whose elements are
// so many whole pages apart that a cache keeps few of them.
static bool is_quicker(char a_is, int lda, int m, int n, int k)
{
  enum { LEAST = 1 << 20, APART = 2048 };
  return (double)m * n * k >= LEAST && !(a_is == 't' && lda % APART == 0);
}

// The number of the n that are computed at a time: at most `most`, in parts of about the same size.
static int at_a_time(int n, int most)
{
  enum { UNIT = 32 };
  return ((n - 1) / ((n - 1) / most + 1) / UNIT + 1) * UNIT;
}

// With more terms at a time oneDNN is slow, and with more columns it makes large copies.
bool multiply_floats_by_onednn(char a_is, char b_is, float *c, int ldc, const float *a, int lda,
                               const float *b, int ldb, int m, int n, int k, bool add)
{
  enum { TERMS = 512, COLUMNS = 2048 };
  if (!is_quicker(a_is, lda, m, n, k) || !multiplies_floats()) return false;
  const int terms = at_a_time(k, TERMS), columns = at_a_time(n, COLUMNS);
  for (int j = 0; j < n; j += columns)
    for (int done = 0; done < k; done += terms) {
      const int some = n - j < columns ? n - j : columns,
                part = k - done < terms ? k - done : terms;
      const float *from_a = a + (a_is == 't' ? (long)done * lda : done);
      const float *from_b = b + (b_is == 't' ? (long)j * ldb + done : (long)done * ldb + j);
      const float keep = add || done ? 1 : 0;
      // This may be one of OpenMP's threads, which cannot report an error: BLAS has none.
      if (dnnl_sgemm(a_is, b_is, m, some, part, 1, from_a, lda, from_b, ldb, keep, c + j, ldc) !=
          dnnl_success)
        cblas_sgemm(CblasRowMajor, a_is == 't' ? CblasTrans : CblasNoTrans,
                    b_is == 't' ? CblasTrans : CblasNoTrans, m, some, part, 1, from_a, lda, from_b,
                    ldb, keep, c + j, ldc);
    }
  return true;
}
