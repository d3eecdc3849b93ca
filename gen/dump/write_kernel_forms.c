/* write_kernel_forms.c: the comments of a dump about kernels. */
#include "dump/dump.h"

/* For readers, not for read.c: a comment line for each kernel and class of ranks. */
void put_kernel_forms(void)
{
  static const char *const scheme[] = {
      [NO_KERNEL] = "nothing",
      [ELEMENT_BY_ELEMENT] = "element_by_element",
      [ROW_BY_ROW] = "row_by_row",
      [RESULT_BY_RESULT] = "result_by_result",
      [RESULTS_SIDE_BY_SIDE] = "results_side_by_side",
      [RESULTS_IN_PLACE] = "results_in_place",
      [ONE_RESULT] = "one_result",
  };
  const struct kernel_forms *forms = graph->kernel_forms;
  for (int c = 0; d.after == PASS_KERNEL_FORMS && c < forms->ranks.n; c++) {
    put(&d.b, "-- kernels of rank %d, and of those with parts of the same shapes\n",
        forms->ranks.first[c]);
    for (int i = 0; i < forms->nkernel; i++) {
      const struct op *op = &graph->op[forms->op[i]];
      const struct kernel_form *f = &forms->of[c]->form[i];
      put(&d.b, "-- v%d %s", graph->op[op->body[0]].out, scheme[f->scheme]);
      put_LONG("width", f->width, 1);
      put_LONG("threads", f->threads, 0);
      put_LONG("blocks", f->blocks, 0);
      put_LONG("rows_of_blocks", f->block_rows, 1);
      put_LONG("parts", f->parts, 1);
      put_LONG("scratch", f->scratch, 0);
      put(&d.b, "\n");
    }
  }
}
