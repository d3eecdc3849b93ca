/* gemm_table.c: the table of matrix products in a CUDA program, which the runtime prepares before
   the first step (runtime/cuda/kernels/products.cu). Products that differ only in their operands
   share a row, named by its form and sizes: nt_256x64x128. */
#include "emit/emit.h"

#include <string.h>

struct row {
  const char *name, *fields;
};

static struct row *row;
static int nrow, row_room;

void forget_products(void)
{
  nrow = 0;
}

const char *add_product(const char *preferred, const char *fields)
{
  for (int again = 1;; again++) {
    const char *name = again == 1 ? preferred : text("%s_%d", preferred, again);
    int i = 0;
    while (i < nrow && strcmp(row[i].name, name)) i++;
    if (i < nrow && !strcmp(row[i].fields, fields)) return name;
    if (i < nrow) continue;
    GROW(row, nrow, row_room);
    row[nrow++] = (struct row){name, fields};
    return name;
  }
}

char *product_table(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!nrow) return b.text;
  put(&b, "\n// The matrix products c[m, n] = a[m, k] b[k, n]. 't': this operand is stored "
          "transposed.\n"
          "static struct {\n");
  for (int i = 0; i < nrow; i++)
    put(&b, "%s\n",
        wrapped(text("  struct product %s = {%s};", row[i].name, row[i].fields), ", ", "      "));
  put(&b, "} product;\n");
  return b.text;
}

char *product_list(void)
{
  long long copies = (long long)product_copies();
  const char *less = copies ? text(" - %lld", copies) : "";
  const char *room = copies ? text("    .copies_bytes = %lld,\n", copies) : "";
  return copy_text(nrow ? text("    .list = (struct product *)&product,\n"
                               "    .count = sizeof product / sizeof(struct product),\n"
                               "    .workspace = offsetof(struct memory, workspace),\n"
                               "    .workspace_bytes = sizeof m->workspace%s,\n%s",
                               less, room)
                        : "    .list = NULL,\n"
                          "    .count = 0,\n"
                          "    .workspace = 0,\n"
                          "    .workspace_bytes = 0,\n");
}
