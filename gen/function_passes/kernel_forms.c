/* kernel_forms.c: the pass `kernel_forms`: the form of every fused operation's kernel.

   Takes   functions in their final order, each value marked if it is stored.
   Leaves  graph->kernel_forms: for each class of ranks whose parts have the same shapes, and each
           fused operation, the scheme of its kernel, the width of its vectors, its threads and
           blocks, and its scratch (target/form.c); and where the target has vectors the alignment
           of every value, which determines their width.

   It runs before the pass `memory`, which adds up the scratch. Alignments need no offsets in the
   arena: storages begin at multiples of 64 bytes there. A dump has the forms in comments; a program
   read from a dump gets them anew. */
#include "function_passes/function_passes.h"

static void decide_forms(struct class_forms *of, int rank)
{
  const struct kernel_forms *forms = graph->kernel_forms;
  of->form = alloc((size_t)(forms->nkernel + 1) * sizeof *of->form);
  for (int i = 0; i < forms->nkernel; i++) {
    of->form[i] = form_of(&graph->op[forms->op[i]], rank);
    if (of->scratch < of->form[i].scratch) of->scratch = of->form[i].scratch;
  }
}

void kernel_forms(void)
{
  struct kernel_forms *forms = graph->kernel_forms = alloc(sizeof *forms);
  bool vectors = target->widest_vector > 1;
  const struct memory_plan *plan = graph->memory ? graph->memory
                                   : vectors     ? find_shared_bytes()
                                                 : NULL;
  forms->ranks = find_rank_classes(options.first_rank, options.last_rank);
  forms->of = alloc((size_t)forms->ranks.n * sizeof *forms->of);
  /* The fused operations that functions run. */
  struct list fused = {0};
  forms->nop = graph->nop;
  forms->number = alloc((size_t)(graph->nop + 1) * sizeof *forms->number);
  for (int i = 0; i < graph->nop; i++) forms->number[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      int id = graph->function[i].op[k];
      if (graph->op[id].kind != OP_fused) continue;
      forms->number[id] = fused.n;
      add(&fused, id);
    }
  forms->op = fused.at;
  forms->nkernel = fused.n;
  for (int c = 0; c < forms->ranks.n; c++) {
    const struct list *sizes = &forms->ranks.sizes;
    forms->of[c] = alloc((size_t)sizes->n * sizeof *forms->of[c]);
    for (int size = NONE; next_size(sizes, &size);) {
      struct class_forms *made = &forms->of[c][size];
      if (vectors) made->alignment = find_alignments(plan, forms->ranks.first[c]);
      decide_forms(made, forms->ranks.first[c]);
    }
  }
}
