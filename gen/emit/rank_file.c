/* rank_file.c: rank<N>.c: the constants of one rank. */
#include "emit/emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char *members_text(int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  int *member = alloc((size_t)world_size() * sizeof *member);
  for (int g = 0; g < graph->ngroup; g++) {
    struct buffer list = {0};
    put(&list, "static const int %s[] = {", group_name(g));
    int n = group_members(g, rank, member);
    for (int i = 0; i < n; i++) put(&list, "%d, ", member[i]);
    put(&list, "-1};");
    put(&b, "%s\n", wrapped(list.text, ", ", "    "));
  }
  put(&b, "static const int *const members[] = {");
  for (int g = 0; g < graph->ngroup; g++) put(&b, "%s, ", group_name(g));
  put(&b, "NULL};");
  return b.text;
}

/* Whether the rank saves its part: the first rank that holds this part does. A state that is the
   same for all parts of a parameter is saved with the first one. */
static bool saves(int value, int rank)
{
  int coordinate[MAX_MESH];
  const struct value *v = &graph->value[value];
  if (v->role == STATE && v->of != NONE && !v->file_size && graph->value[v->of].file_first)
    return false;
  coordinate_of(rank, coordinate);
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (v->layout.on[d].kind != SHARD && coordinate[d] && !is_over_stages(d)) return false;
  return elements(local_shape(value, rank)) > 0;
}

char *rank_text(int rank, const char *step, const struct stacks *tensors, const char *const *shown,
                const int *states)
{
  struct buffer parts = {0}, coordinates = {0}, names = {0}, macro = {0};
  int coordinate[MAX_MESH], kinds = 0;
  coordinate_of(rank, coordinate);
  for (int i = 0, rows; i < tensors->n; i += rows) {
    for (rows = 0; i + rows < tensors->n; rows++)
      if (!graph->value[tensors->at[i + rows].member.at[0]].on_other_stages) break;
    if (rows) {
      /* This many rows for tensors of other stages, by the macros of program.h. */
      int n = rows;
      const char *first = shown[i];
      const char *last = shown[i + rows - 1];
      enum { MOST = 1024 };
      const char *to = n > 1 ? text(" to %s", last) : "";
      put(&parts, "%s\n   ",
          wrapped(text("    // %s%s: of other stages", first, to), " ", "    // "));
      for (int some = MOST; n; n -= some) {
        while (some > n) some /= 2;
        put(&parts, " ELSEWHERE_%d", some);
      }
      put(&parts, "\n");
      continue;
    }
    int value = tensors->at[i].member.at[0];
    struct shape at = file_start(value, coordinate);
    if (!at.ndim) at = (struct shape){.ndim = 1};
    const char *row = text("{%s}, %s", sizes_text(at), saves(value, rank) ? "true" : "false");
    /* "layers.*.wq" of "optim.exp_avg.layers.*.wq": the states of a parameter are one row. */
    const char *name = states[i] ? strchr(strchr(shown[i], '.') + 1, '.') + 1 : shown[i];
    put(&parts, "    %-22s // %s\n", text(states[i] ? "STATES(%s)" : "{%s},", row), name);
    if (states[i]) kinds = states[i];
    rows = states[i] ? states[i] : 1;
  }
  if (!tensors->n) put(&parts, "    {{0}, false},\n");
  put_text(&macro, "", 0);
  if (kinds)
    put(&macro, "// The optimizer's states of a parameter have parts like its own.\n"
                "#define STATES(...) ");
  for (int k = 0; k < kinds; k++)
    put(&macro, "%s{__VA_ARGS__},%s", k ? " " : "", k + 1 < kinds ? "" : "\n");
  for (int d = 0; d < graph->mesh.ndim; d++) {
    put(&coordinates, "%s%d", d ? ", " : "", coordinate[d]);
    put(&names, "%s%s", d ? ", " : "", printable(graph->mesh.name[d]));
  }
  return fill(embedded_template("rank.c"), "version", TPGEN_VERSION, "plan", plan_shown(), "hash",
              plan_options->hash, "rank", text("%d", rank), "step_name", step, "declaration",
              fill(target_syntax()->declares, "struct", "rank", "name", "this_rank", NULL), "step",
              text("%s.%s", step, target->source), "coordinate", coordinates.text, "mesh",
              names.text, "members", members_text(rank), "states", macro.text, "parts", parts.text,
              "exchanges", exchanges_text(rank), "exchange", graph->nexchange ? "exchange" : "NULL",
              NULL);
}
