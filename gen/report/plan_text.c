/* plan_text.c: plan.txt for people, the head of a step file, and --explain. */
#include "report/report.h"

#include <string.h>

/* --------------------------------------------------------------------------------------- counts */

struct totals {
  int collectives;
  int64_t bytes;
};

static void plan_text_add_up(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct totals *t = to;
  if (!is_collective(op->kind)) return;
  t->collectives += times;
  t->bytes = plus_times(t->bytes, times, bytes_brought(op));
}

static struct totals totals(void)
{
  struct totals t = {0};
  each_op(plan_text_add_up, &t);
  return t;
}

static char *mesh_text(void)
{
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(&b, "%s%s=%d", d ? " " : "", printable(graph->mesh.name[d]), graph->mesh.size[d]);
  return b.text;
}

char *summary_text(int rank)
{
  struct totals t = totals();
  return text("//   mesh         %s\n"
              "//   parameters   %s elements of %s on each of these ranks\n"
              "//   a step       %d collective%s, %s bytes\n",
              mesh_text(), grouped(held_elements(PARAMETER, rank)),
              grouped(held_elements(PARAMETER, NONE)), t.collectives, t.collectives == 1 ? "" : "s",
              grouped(t.bytes));
}

/* ------------------------------------------------------------------------------------- plan.txt */

/* If not everything is float32. */
static void put_precision(struct buffer *b)
{
  const struct value *mixed = NULL;
  int of = 0, all = 0, stored[F64 + 1] = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->init.kind == INIT_NESTED) continue;
    all++;
    stored[v->type]++;
    if (v->type != F32 || v->used_as == v->type) continue;
    mixed = v;
    of++;
  }
  for (enum type t = F32 + 1; t <= F64; t++)
    if (stored[t])
      put(b, "precision    %d of %d parameters are stored as %s and used as f32\n", stored[t], all,
          type_name(t));
  if (mixed)
    put(b,
        "precision    %s%d parameters of %s are used as %s, their gradients are communicated as "
        "%s\n",
        of < all ? text("%d of ", of) : "", all, type_name(mixed->type), type_name(mixed->used_as),
        type_name(mixed->reduced_as));
  if (plan_options->tf32) put(b, "precision    products of f32 may round their operands to TF32\n");
}

/* The place without the plan's path, if it is in the plan: ":14". */
static const char *without_plan(const char *place)
{
  const char *plan = plan_shown();
  size_t n = strlen(plan);
  return !strncmp(place, plan, n) && place[n] == ':' ? place + n : place;
}

char *asked_by(int value)
{
  const struct value *v = &graph->value[value];
  const struct style *s = v->style == NONE ? NULL : &graph->style[v->style];
  char *by = s ? text("%s %s", place_shown(s->line), s->name) : place_shown(v->line);
  if (!is_kept_cut(value)) return by;
  const struct unit *unit = &graph->unit[v->unit];
  return text("%s, %s %s", by, without_plan(place_shown(unit->line)), unit->who);
}

static bool *trained; /* by value, of a parameter: an update writes it */

static int unit_line(int parameter)
{
  int unit = graph->value[parameter].unit;
  return unit == NONE ? 0 : graph->unit[unit].line;
}

/* Whether the parameter's row would equal that of the stack. */
static bool has_equal_row(const struct stack *f, int value)
{
  int first = f->member.at[0], a = graph->value[first].style, b = graph->value[value].style;
  if (!same_tensor(first, value) || trained[first] != trained[value]) return false;
  /* The ranks at a place of a pipeline have only the parameters of their stages. */
  if (!same_shape(local_shape(first, 0), local_shape(value, 0))) return false;
  if (unit_line(first) != unit_line(value)) return false;
  if (a == NONE || b == NONE) return a == b && graph->value[first].line == graph->value[value].line;
  return graph->style[a].line == graph->style[b].line &&
         !strcmp(graph->style[a].name, graph->style[b].name);
}

struct stacks find_parameters(void)
{
  int n = 0, *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  trained = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == GRADIENT) trained[graph->value[i].of] = true;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER) list[n++] = i;
  return find_stacks(n, list, has_equal_row, true);
}

/* A row of a table; its last column is on a line of its own if the row would be too wide. */
static void put_row(struct buffer *b, const struct buffer *row, const char *last)
{
  enum { WIDEST = 120 };
  int length = (int)row->length;
  bool fits = row->length + strlen(last) <= WIDEST;
  while (!fits && length && row->text[length - 1] == ' ') length--;
  put(b, "%.*s%s%s\n", length, row->text, fits ? "" : "\n          ", last);
}

/* "h.0-11.c_attn.weight", or of a part of a tensor in files "h.0-11.c_attn.weight[:, 64:128]". */
static char *parameter_text(const struct stack *f)
{
  const struct value *v = &graph->value[f->member.at[0]];
  struct buffer b = {0};
  put(&b, "%s", printable(stack_text(f)));
  if (!v->file_size) return b.text;
  for (int d = 0; d < v->file_dim; d++) put(&b, d ? ", :" : "[:");
  put(&b, v->file_dim ? ", %lld:%lld]" : "[%lld:%lld]", (long long)v->file_first,
      (long long)(v->file_first + v->shape.size[v->file_dim]));
  return b.text;
}

static void put_parameters(struct buffer *b)
{
  struct stacks parameters = find_parameters();
  int width = 26;
  for (int i = 0; i < parameters.n; i++) {
    int length = (int)strlen(parameter_text(&parameters.at[i]));
    if (width < length) width = length;
  }
  struct buffer head = {0};
  put(&head, "%-*s %-14s %-14s ", width + 2, "parameters", "here", "of");
  for (int d = 0; d < graph->mesh.ndim; d++) put(&head, "%-7s ", printable(graph->mesh.name[d]));
  put(b, "\n");
  put_row(b, &head, "requested by, line of the plan");
  for (int i = 0; i < parameters.n; i++) {
    int first = parameters.at[i].member.at[0];
    const struct value *v = &graph->value[first];
    struct buffer row = {0};
    put(&row, "  %-*s %-14s %-14s ", width, parameter_text(&parameters.at[i]),
        shape_text(local_shape(first, 0)), shape_text(v->shape));
    for (int d = 0; d < graph->mesh.ndim; d++) put(&row, "%-7s ", placement_over(v->layout, d));
    bool lost = graph->loss != NONE && !trained[first];
    put_row(b, &row,
            text("%s%s%s", without_plan(asked_by(first)),
                 v->frozen ? "; frozen"
                 : lost    ? "; not trained: the loss does not depend on it"
                           : "",
                 v->type == F32 ? "" : text("; stored as %s", type_name(v->type))));
  }
  put(b, "  %s of %s elements here\n", grouped(held_elements(PARAMETER, 0)),
      grouped(held_elements(PARAMETER, NONE)));
}

static void plan_text_put_bytes(struct buffer *b, struct max_rank_volume most, int64_t bound)
{
  put(b, " %15s %15s", grouped(most.sent), grouped(most.received));
  if (bound != NONE) put(b, " %15s", grouped(bound));
}

static void put_move(struct buffer *b, const struct op *op)
{
  struct buffer row = {0};
  put(&row, "    %s", kind_of(op));
  if (!*step_layouts(op)) {
    put_row(b, &row, "");
    return;
  }
  put(&row, "%*s %-10s", 18 - (int)strlen(kind_of(op)), "", over_text(op));
  if (is_collective(op->kind))
    plan_text_put_bytes(&row, max_volume_of(op), NONE), put(&row, "%16s", "");
  else
    put(&row, "%48s", "");
  put(&row, "   ");
  put_row(b, &row, step_layouts(op));
}

/* The only step that is no packing; NULL if there are several. */
static const struct op *only_step(const struct chain *c)
{
  const struct op *only = NULL;
  for (int i = 0; i < c->nstep; i++) {
    const struct op *op = &graph->op[c->step[i]];
    if (!*step_layouts(op)) continue;
    if (only) return NULL;
    only = op;
  }
  return only;
}

static const char *packing_text(const struct chain *c)
{
  bool before = !*step_layouts(first_step(c)), after = !*step_layouts(last_step(c));
  if (before && after) return ", packed before and unpacked after";
  return before ? ", packed before" : after ? ", unpacked after" : "";
}

static void put_chain(struct buffer *b, const struct chain *c)
{
  const struct op *op = first_step(c), *only = only_step(c);
  const struct value *v = moved_value(c);
  if (only)
    put(b, "  %-8s %-15s %-6s", phase_name[op->phase], kind_of(only), over_text(only));
  else
    put(b, "  %-8s %-22s", phase_name[op->phase], text("%d steps", count_steps(c)));
  plan_text_put_bytes(b, max_volume_of_ops(c->nstep, c->step, NULL), bound_of(c));
  put(b, "%s", c->times > 1 ? text("   %d times\n", c->times) : "\n");
  struct buffer what = {0};
  put(&what, "      ");
  if (op->nbody)
    put(&what, "%s: %s: %s%s", reduced_text(op), step_layouts(op), printable(op->why),
        op->packed && !lies_in_buffer(op) ? ", packed before and unpacked after" : "");
  else
    put(&what, "%s %s%s: %s -> %s: %s, %s", printable(value_name((int)(v - graph->value))),
        type_name(v->type), shape_text(v->shape), layout_text(layout_before(c)),
        layout_text(layout_reached(c)), printable(op->why), place_shown(op->line));
  if (only) put(&what, "%s", packing_text(c));
  if (!only && seconds_of(c) > 0) put(&what, ", %s by the model", seconds_text(seconds_of(c)));
  put(b, "%s\n", wrapped(what.text, " ", "          "));
  for (int i = 0; i < c->nstep && !only; i++) put_move(b, &graph->op[c->step[i]]);
}

static bool has_equal_cache(const struct stack *f, int value)
{
  const int first = f->member.at[0];
  return same_tensor(first, value) && same_shape(local_shape(first, 0), local_shape(value, 0));
}

struct stacks find_caches(void)
{
  int n = 0, *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == CACHE) list[n++] = i;
  return find_stacks(n, list, has_equal_cache, true);
}

int64_t bytes_of_caches(const struct stack *f)
{
  const int first = f->member.at[0];
  return elements(local_shape(first, 0)) * type_bytes(graph->value[first].type) * f->member.n;
}

static void put_caches(struct buffer *b)
{
  const struct stacks caches = find_caches();
  if (!caches.n) return;
  int width = 26;
  for (int i = 0; i < caches.n; i++) {
    const int length = (int)strlen(printable(stack_text(&caches.at[i])));
    if (width < length) width = length;
  }
  put(b, "\n%-*s %-16s %-16s %-4s %15s   %s\n", width + 2, "caches", "here", "of", "as", "bytes",
      "what they keep");
  if (plan_options->generate.why)
    put(b, "  %s\n", wrapped(plan_options->generate.why, " ", "    "));
  for (int i = 0; i < caches.n; i++) {
    const int first = caches.at[i].member.at[0];
    const struct value *v = &graph->value[first];
    put(b, "  %-*s %-16s %-16s %-4s %15s\n", width, printable(stack_text(&caches.at[i])),
        shape_text(local_shape(first, 0)), shape_text(v->shape), type_name(v->type),
        grouped(bytes_of_caches(&caches.at[i])));
    if (v->why) put(b, "      %s\n", wrapped(printable(v->why), " ", "        "));
  }
}

/* The values that are computed before the first step, and kept. */
static void put_constants(struct buffer *b)
{
  struct list kept = kept_constants();
  int64_t bytes = 0;
  struct buffer names = {0};
  for (int k = 0; k < kept.n; k++) {
    bytes += largest_bytes(kept.at[k]);
    put(&names, "%s%s", k ? ", " : "", printable(value_name(shown_value(kept.at[k]))));
  }
  if (!kept.n) return;
  put(b, "\nconstants    computed once, before the first step; %s bytes\n", grouped(bytes));
  put(b, "  %s\n", wrapped(names.text, ", ", "  "));
}

/* All collectives of a step of the program. */
struct issued {
  struct list op, times;
};

static void add_issued(void *to, int id, int times)
{
  struct issued *all = to;
  add(&all->op, id);
  add(&all->times, times);
}

static void put_chains(struct buffer *b)
{
  struct totals t = totals();
  struct issued all = {0};
  int n;
  const struct chain *chain = find_chains(&n);
  put(b, "\n%-33s %15s %15s %15s\n", "redistributions of a step", "sent", "received",
      "lower bound");
  for (int i = 0; i < n; i++) put_chain(b, &chain[i]);
  each_op(add_issued, &all);
  struct max_rank_volume most = max_volume_of_ops(all.op.n, all.op.at, all.times.at);
  put(b, "  %d collective%s of %s bytes\n  the busiest rank sends %s bytes and receives %s\n",
      t.collectives, t.collectives == 1 ? "" : "s", grouped(t.bytes), grouped(most.sent),
      grouped(most.received));
  if (n)
    put(b, "  sent, received: bytes, the maximum over ranks; lower bound: what some rank must "
           "receive, "
           "for one value;\n  bytes of a collective: what a rank hands to it\n");
}

static void put_memory(struct buffer *b)
{
  const int64_t *held = memory_by_role();
  put(b, "\nmemory of a rank\n");
  for (int i = 0; i < MEMORY_PARTS; i++) {
    int64_t bytes = held[memory_part[i].role];
    const char *shares = "";
    if (memory_part[i].role == PARAMETER && frozen_bytes())
      shares = text("   %s trained, %s frozen", grouped(bytes - frozen_bytes()),
                    grouped(frozen_bytes()));
    if (bytes) put(b, "  %-12s %16s B%s\n", memory_part[i].name, grouped(bytes), shares);
  }
  put(b, "  %-12s %16s B   %.3f times the lower bound, the most that lives at once\n",
      "activations", grouped(arena_bytes()),
      graph->memory->live_bytes ? (double)arena_bytes() / (double)graph->memory->live_bytes : 1.0);
  if (parts_bytes())
    put(b, "  %-12s %16s B   of the sums in kernels\n", "partial sums", grouped(parts_bytes()));
  if (product_workspace())
    put(b, "  %-12s %16s B   of matrix products\n", "workspace", grouped(product_workspace()));
  put(b, "  %-12s %16s B\n", "in all", grouped(memory_of_rank()));
  if (target->libraries)
    put(b, "  %-12s %16s B   %s %s\n", "libraries", grouped(library_reserve()),
        is_measured() ? "as measured, for" : "an allowance for", target->libraries);
  if (graph->mesh.memory)
    put(b, "  %-12s %16s B   of a rank, %s\n", "limit", grouped(graph->mesh.memory),
        place_shown(graph->mesh.line));
}

void put_plan_head(struct buffer *b)
{
  put(b, "tpgen %s   %s (%s)   target %s\n\nmesh         %s: %d rank%s\n", TPGEN_VERSION,
      plan_shown(), plan_options->hash, target->name, mesh_text(), world_size(),
      world_size() == 1 ? "" : "s");
  for (int i = 1; i <= plan_files(); i++)
    put(b, "%s%s\n", i > 1 ? "             " : "with         ", file_shown(i * LINES_OF_FILE));
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (idle_text(d)) put(b, "             %s\n", idle_text(d));
  put_precision(b);
  if (plan_options->reductions)
    put(b, "gradients    %s\n", wrapped(plan_options->reductions, " ", "             "));
}

void report_text(struct buffer *b)
{
  put_plan_head(b);
  put_parameters(b);
  put_optimizers_of_plan(b);
  put_chains(b);
  put_pipeline(b);
  put_communication(b);
  if (graph->recomputation)
    put(b, "\nmade again   %s\n", wrapped(graph->recomputation, " ", "             "));
  put_async_tp(b);
  put_step(b);
  if (collectives_overlap()) put_streams(b);
  put_constants(b);
  put_caches(b);
  put_memory(b);
  put_rows_by_expert(b);
  if (graph->nended)
    put(b, "\nended early\n"
           "  searches that reached their bound: the program is right, and there may be a quicker "
           "one\n");
  for (int i = 0; i < graph->nended; i++) {
    const struct early_end *e = &graph->ended[i];
    put(b, "  %-16s %s: after %s %s\n", e->where, e->what, grouped(e->most), e->unit);
  }
  put_order(b);
}
