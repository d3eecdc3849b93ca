/* einop.h: DTensor's two rules for operations whose dimensions have letters. They take the layouts
   of an operation's inputs and give the layout of its output; or the layouts that the inputs should
   have instead; or the reason why there are none. They read the graph's mesh and change nothing.

   A letter is sharded over at most one dimension of the mesh, the same in every operand. An input
   that is whole there follows one that is cut; two that differ are an error. If one dimension of
   the mesh shards several letters, the letter of the larger inputs keeps it. Pending sums pass
   through a linear operation, whose inputs must then all be pending. Before any other operation
   they are reduced.

   This follows PyTorch's _common_rules.py (tests/golden/einop_rule.tsv, pointwise_rule.tsv) even
   where that is odd: "1" is a letter like others except in an output, so a cut dimension of size 1
   that is broadcast leaves a pending sum. Two oversights of
   PyTorch's rules are not followed: a pending maximum or minimum is no sum, and strided shards are
   refused.

   The compiler does not use them: its own choice (sharding/decide.c) is compared with them. */
#ifndef EINOP_H
#define EINOP_H

#include "sharding/sharding.h"
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

/* What DTensor's rules decide for an operation: it runs on its inputs' layouts, or on other
   layouts, or not. */
struct ruling {
  enum { RULE_RUNS, RULE_RESHARDS, RULE_ERROR } what;
  struct layout out;            /* RULE_RUNS */
  struct layout in[MAX_INPUTS]; /* RULE_RESHARDS: the layouts that the inputs should get */
  char error[96];               /* RULE_ERROR */
};
/* An operation as the rules see it. */
struct ruled {
  int nin;
  struct shape shape[MAX_INPUTS];
  struct layout layout[MAX_INPUTS];
  bool linear;
  const struct layout *enforce; /* pointwise_rule: of the operand written in place; or NULL */
};

enum { LETTERS = 128, UNSEEN = -2 };

/* An operation, and what its inputs have shown so far. */
struct reading {
  const struct ruled *op;
  const int *enforce;
  /* The equation, with a letter for each dimension. */
  char in[MAX_INPUTS][MAX_DIMS + 1], out[MAX_DIMS + 1];
  int map[MAX_INPUTS][MAX_DIMS]; /* by letter, from the inputs' dimensions: the mesh dimension,
                                    or NONE */
  int sharding[LETTERS];         /* the mesh dimension, NONE, or UNSEEN */
  int64_t size[LETTERS];
  int pending[MAX_MESH]; /* how many inputs are pending sums */
  /* The letters that a mesh dimension shards, as they were met, some twice; before them
     '+' for a pending sum. */
  char seen[MAX_MESH][1 + MAX_INPUTS * MAX_DIMS + 1];
  bool reshard;
  struct ruling ruling;
};

/* Returns false, and makes the ruling an error. */
__attribute__((format(printf, 2, 3))) static bool fails(struct ruling *ruling, const char *format,
                                                        ...)
{
  va_list list;
  va_start(list, format);
  ruling->what = RULE_ERROR;
  vsnprintf(ruling->error, sizeof ruling->error, format, list);
  va_end(list);
  return false;
}

static const char *mesh_name(int mesh_dim)
{
  return graph->mesh.name[mesh_dim];
}

/* ----------------------------------------------------------------------------- layouts and maps */

/* The mesh dimension that shards each of ndim dimensions, or NONE. */
static bool dim_map(struct layout layout, int ndim, int *map, struct ruling *ruling)
{
  for (int d = 0; d < ndim; d++) map[d] = NONE;
  for (int m = 0; m < graph->mesh.ndim; m++) {
    if (layout.on[m].kind != SHARD) continue;
    int d = layout.on[m].dim;
    if (d < 0 || d >= ndim)
      return fails(ruling, "dim %d is sharded over %s, of a tensor of %d dims", d, mesh_name(m),
                   ndim);
    if (layout.on[m].outer > 1)
      return fails(ruling, "dim %d is sharded over %s in strides", d, mesh_name(m));
    if (map[d] != NONE)
      return fails(ruling, "dim %d is sharded over both %s and %s", d, mesh_name(map[d]),
                   mesh_name(m));
    map[d] = m;
  }
  return true;
}

/* The reverse: sums has a bit for each mesh dimension over which a sum is pending. */
static bool from_dim_map(const int *map, int ndim, unsigned sums, struct layout *layout,
                         struct ruling *ruling)
{
  *layout = (struct layout){0};
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (sums >> m & 1) layout->on[m] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  for (int d = 0; d < ndim; d++) {
    if (map[d] == NONE) continue;
    struct placement *on = &layout->on[map[d]];
    if (on->kind == SHARD)
      return fails(ruling, "dims %d and %d of one tensor both sharded over %s", on->dim, d,
                   mesh_name(map[d]));
    if (on->kind == PARTIAL)
      return fails(ruling, "dim %d sharded over %s, where a sum is pending too", d,
                   mesh_name(map[d]));
    *on = (struct placement){.kind = SHARD, .dim = d};
  }
  return true;
}

/* --------------------------------------------------------------------------------- the equation */

/* The letters before one of these ends; NULL if there are none, or more than a tensor can have. */
static const char *read_letters(const char *from, const char *ends, char *letters)
{
  size_t n = strcspn(from, ends);
  if (n > MAX_DIMS) return NULL;
  for (size_t i = 0; i < n; i++)
    if (!isalnum((unsigned char)from[i])) return NULL;
  memcpy(letters, from, n);
  letters[n] = 0;
  return from + n;
}

static bool read_equation(struct reading *r, const char *equation)
{
  const char *at = equation;
  for (int i = 0; at && i < r->op->nin; i++) {
    if (i > 0) at = *at == ',' ? at + 1 : NULL;
    if (at) at = read_letters(at, ",-", r->in[i]);
    if (at && strlen(r->in[i]) != (size_t)r->op->shape[i].ndim) at = NULL;
  }
  if (at) at = r->op->nin > 0 && !strncmp(at, "->", 2) ? read_letters(at + 2, ",", r->out) : NULL;
  return at || fails(&r->ruling, "the equation '%s' does not fit the inputs", equation);
}

/* ------------------------------------------------------------------------ reading of the inputs */

static void note_pending_sums(struct reading *r, int input)
{
  for (int m = 0; m < graph->mesh.ndim; m++) {
    if (r->op->layout[input].on[m].kind != PARTIAL) continue;
    if (r->pending[m]++ == 0) strcpy(r->seen[m], "+");
  }
}

/* The letter is sharded over this mesh dimension in one more operand. */
static bool merge_sharding(struct reading *r, int letter, int mesh_dim)
{
  int *sharding = &r->sharding[letter];
  if (*sharding == mesh_dim) return true;
  if (*sharding != NONE && mesh_dim != NONE)
    return fails(&r->ruling, "dim %c sharded two different ways: over %s and %s", letter,
                 mesh_name(*sharding), mesh_name(mesh_dim));
  r->reshard = true;
  if (*sharding == NONE) *sharding = mesh_dim;
  return true;
}

static bool note_sharding(struct reading *r, int letter, int64_t size, int mesh_dim)
{
  bool enforced = r->enforce && r->enforce[letter] != UNSEEN;
  if (enforced || r->sharding[letter] == UNSEEN) {
    if (enforced && r->enforce[letter] != mesh_dim) r->reshard = true;
    r->sharding[letter] = enforced ? r->enforce[letter] : mesh_dim;
    r->size[letter] = size;
    return true;
  }
  if (!merge_sharding(r, letter, mesh_dim)) return false;
  if (r->size[letter] == size) return true;
  return fails(&r->ruling, "dim %c has two sizes: %lld and %lld", letter,
               (long long)r->size[letter], (long long)size);
}

/* A mesh dimension may shard only one letter. */
static void note_seen(struct reading *r, int letter)
{
  if (r->sharding[letter] == NONE) return;
  char *seen = r->seen[r->sharding[letter]], alone[] = {(char)letter, 0};
  if (*seen && !strcmp(seen, alone)) return;
  if (*seen) r->reshard = true;
  strcat(seen, alone);
}

static bool read_input(struct reading *r, int i)
{
  const struct shape *shape = &r->op->shape[i];
  note_pending_sums(r, i);
  if (!dim_map(r->op->layout[i], shape->ndim, r->map[i], &r->ruling)) return false;
  for (int d = 0; d < shape->ndim; d++) {
    int letter = r->in[i][d];
    if (!note_sharding(r, letter, shape->size[d], r->map[i][d])) return false;
    note_seen(r, letter);
  }
  return true;
}

/* ------------------------------------------------------------------ sums, and who keeps a shard */

static unsigned pending_sums(const struct reading *r)
{
  unsigned sums = 0;
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (r->pending[m]) sums |= 1u << m;
  return sums;
}

/* Linear in sums only: a pending maximum or minimum passes through no operation. */
static bool only_sums(const struct ruled *op)
{
  for (int i = 0; i < op->nin; i++)
    for (int m = 0; m < graph->mesh.ndim; m++)
      if (op->layout[i].on[m].kind == PARTIAL && op->layout[i].on[m].reduction != SUM) return false;
  return true;
}

/* The cost of gathering the inputs that this mesh dimension cuts along the letter. */
static int64_t cost(const struct reading *r, char letter, int mesh_dim)
{
  static const int origin[MAX_MESH];
  int64_t sum = 0;
  for (int i = 0; i < r->op->nin; i++) {
    const char *at = strchr(r->in[i], letter);
    if (!at || r->map[i][at - r->in[i]] != mesh_dim) continue;
    struct part part = local_part(&graph->mesh, r->op->shape[i], r->op->layout[i], origin);
    sum += elements(part.shape) * graph->mesh.size[mesh_dim];
  }
  return sum;
}

/* If a mesh dimension shards several letters, the costliest keeps it, the first of equals. */
static void keep_costliest(struct reading *r, int mesh_dim)
{
  const char *seen = r->seen[mesh_dim];
  if (strlen(seen) < 2) return;
  char kept = *seen;
  for (const char *c = seen + 1; *c; c++)
    if (cost(r, *c, mesh_dim) > cost(r, kept, mesh_dim)) kept = *c;
  for (const char *c = seen; *c; c++)
    if (*c != kept) r->sharding[(int)*c] = NONE;
}

/* ----------------------------------------------------------------------------------- the ruling */

static struct ruling suggest(struct reading *r, unsigned sums)
{
  r->ruling.what = RULE_RESHARDS;
  for (int i = 0; i < r->op->nin; i++) {
    int map[MAX_DIMS], ndim = r->op->shape[i].ndim;
    for (int d = 0; d < ndim; d++) map[d] = r->sharding[(int)r->in[i][d]];
    if (!from_dim_map(map, ndim, sums, &r->ruling.in[i], &r->ruling)) break;
  }
  return r->ruling;
}

/* All inputs fit. A sharded letter that the output lacks leaves a pending sum. */
static struct ruling conclude(struct reading *r, unsigned sums)
{
  int map[MAX_DIMS], ndim = 0;
  for (int letter = 1; letter < LETTERS; letter++)
    if (r->sharding[letter] >= 0 && !strchr(r->out, letter)) sums |= 1u << r->sharding[letter];
  for (const char *c = r->out; *c; c++) {
    int sharding = *c == '1' ? NONE : r->sharding[(int)*c];
    if (sharding == UNSEEN) {
      fails(&r->ruling, "dim %c of the output is in no input", *c);
      return r->ruling;
    }
    map[ndim++] = sharding;
  }
  r->ruling.what = RULE_RUNS;
  from_dim_map(map, ndim, sums, &r->ruling.out, &r->ruling);
  return r->ruling;
}

/* enforce: by letter the mesh dimension that must shard it, NONE for none, -2 for no demand; or
   NULL. */
static struct ruling einop_rule(const char *equation, const struct ruled *op, const int *enforce)
{
  struct reading r = {.op = op, .enforce = enforce};
  for (int i = 0; i < LETTERS; i++) r.sharding[i] = UNSEEN;
  if (!read_equation(&r, equation)) return r.ruling;
  for (int i = 0; i < op->nin; i++)
    if (!read_input(&r, i)) return r.ruling;
  unsigned sums = pending_sums(&r);
  if (sums && !(op->linear && only_sums(op))) return suggest(&r, 0);
  for (int m = 0; m < graph->mesh.ndim; m++) {
    if (r.pending[m] && r.pending[m] != op->nin) r.reshard = true;
    keep_costliest(&r, m);
  }
  return r.reshard ? suggest(&r, sums) : conclude(&r, sums);
}

/* ------------------------------------------------------------------------------- pointwise_rule */

/* The letter of the output's dimension k; "1" if all of several inputs have size 1. */
static char output_letter(const struct ruled *op, int ndim, int k)
{
  for (int i = 0; i < op->nin; i++) {
    int d = k - (ndim - op->shape[i].ndim);
    if (op->nin == 1 || (d >= 0 && op->shape[i].size[d] != 1)) return (char)('a' + k);
  }
  return '1';
}

/* "ab,1b->ab": aligned at the last dimension, with "1" for a broadcast dimension. */
static void write_equation(const struct ruled *op, int ndim, char *to)
{
  for (int i = 0; i < op->nin; i++) {
    const struct shape *shape = &op->shape[i];
    if (i > 0) *to++ = ',';
    for (int d = 0; d < shape->ndim; d++)
      *to++ = (char)(op->nin > 1 && shape->size[d] == 1 ? '1' : 'a' + ndim - shape->ndim + d);
  }
  *to++ = '-';
  *to++ = '>';
  for (int k = 0; k < ndim; k++) *to++ = output_letter(op, ndim, k);
  *to = 0;
}

static struct ruling pointwise_rule(const struct ruled *op)
{
  char equation[MAX_INPUTS * (MAX_DIMS + 1) + MAX_DIMS + 3];
  int ndim = 0, map[MAX_DIMS], enforce[LETTERS];
  for (int i = 0; i < op->nin; i++)
    if (op->shape[i].ndim > ndim) ndim = op->shape[i].ndim;
  write_equation(op, ndim, equation);
  if (!op->enforce) return einop_rule(equation, op, NULL);
  struct ruling ruling = {0};
  if (!dim_map(*op->enforce, ndim, map, &ruling)) return ruling;
  for (int i = 0; i < LETTERS; i++) enforce[i] = UNSEEN;
  const char *out = strchr(equation, '>') + 1;
  for (int k = 0; k < ndim; k++) enforce[(int)out[k]] = map[k];
  return einop_rule(equation, op, enforce);
}

#endif
