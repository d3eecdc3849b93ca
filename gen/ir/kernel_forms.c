/* kernel_forms.c: questions about the forms of kernels: of the pass `kernel_forms`, and of later
   passes; classes of ranks. */
#include "ir/ir.h"

#include <string.h>

/* ----------------------------------------------------------------------------- classes of ranks */

/* The shapes and layouts that occur here, each once: what has equal parts on a rank has equal parts
   there. */
static struct list distinct_values(void)
{
  struct memo memo = {0};
  struct query q = {0};
  struct list distinct = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    if (graph->value[i].on_other_stages) continue; /* no rank here has a part */
    begin_query(&q);
    ask_value(&q, &graph->value[i]);
    ask_layout(&q, &graph->value[i].layout);
    if (number_of_query(&memo, &q) == distinct.n) add(&distinct, i);
  }
  return distinct;
}

/* The members of an exchange of rows know each other's room, which depends on the places of all. */
static uint64_t hash_part(uint64_t h, int value, int rank)
{
  struct shape here = local_shape(value, rank);
  h = hash_bytes(h, here.size, (size_t)here.ndim * sizeof *here.size);
  if (graph->value[value].counts == NONE) return h;
  int64_t places = places_here(value, rank, shape_of_part(value, rank));
  return hash_bytes(h, &places, sizeof places);
}

struct rank_classes find_rank_classes(int first, int last)
{
  int world = world_size();
  struct list distinct = distinct_values();
  struct rank_classes c = {.of = alloc((size_t)world * sizeof *c.of),
                           .first = alloc((size_t)world * sizeof *c.first),
                           .sizes = microbatch_sizes()};
  uint64_t *seen = alloc((size_t)world * sizeof *seen);
  for (int r = 0; r < world; r++) {
    c.of[r] = NONE;
    if (r && (r < first || r > last)) continue;
    const struct list *sizes = &c.sizes;
    uint64_t h = HASH_START;
    for (int size = NONE; next_size(sizes, &size);)
      for (int i = 0; i < distinct.n; i++) h = hash_part(h, distinct.at[i], r);
    uint64_t mine = h;
    int class = 0;
    while (class < c.n && seen[class] != mine) class ++;
    if (class == c.n) c.first[c.n++] = r;
    seen[class] = mine;
    c.of[r] = class;
  }
  return c;
}

/* ---------------------------------------------------------------------------------------- forms */

static int class_of(int rank)
{
  const struct kernel_forms *f = graph->kernel_forms;
  int class = f && rank >= 0 && rank < world_size() ? f->ranks.of[rank] : NONE;
  if (class == NONE) bug("kernel_forms", "nothing is decided for rank %d", rank);
  return class;
}

const struct list *sizes_of_step(void)
{
  return &graph->kernel_forms->ranks.sizes;
}

static const struct class_forms *forms_on(int rank)
{
  const struct kernel_forms *f = graph->kernel_forms;
  return &f->of[class_of(rank)][size_of_microbatch(sizes_of_step(), graph->mesh.now)];
}

const struct kernel_form *kernel_form(const struct op *op, int rank)
{
  const struct kernel_forms *f = graph->kernel_forms;
  const struct class_forms *of = forms_on(rank);
  ptrdiff_t id = op - graph->op;
  if (id < 0 || id >= f->nop || f->number[id] == NONE)
    bug("kernel_forms", "operation %td has no form", id);
  return &of->form[f->number[id]];
}

int64_t kernel_scratch(int rank)
{
  const struct kernel_forms *f = graph->kernel_forms;
  int64_t most = 0;
  for (int k = 0; f && k < f->ranks.sizes.n; k++)
    if (most < f->of[class_of(rank)][k].scratch) most = f->of[class_of(rank)][k].scratch;
  return most;
}

int64_t alignment_of(int value, int rank)
{
  const unsigned char *known =
      graph->kernel_forms && rank != NONE ? forms_on(rank)->alignment : NULL;
  return known ? known[value] : MOST_ALIGNED;
}
