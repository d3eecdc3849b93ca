/* figures.c: the figures of a finished program by which a search compares plans; and those of the
   model, of a program of one rank, from which it estimates other plans.

   Takes   the finished program; of a pipeline, the figures of its stages.
   Leaves  it unchanged. */
#include "report/report.h"

#include <ctype.h>
#include <string.h>

struct step_figures step_figures(void)
{
  if (graph->stages) return pipeline_figures();
  const struct simulated *s = simulated();
  return (struct step_figures){.seconds = s->step,
                               .exposed = s->waiting,
                               .tokens = step_tokens(),
                               .mfu = step_mfu(),
                               .bytes = memory_of_rank()};
}

/* The module of a list, "layers.0", above this one or itself; or NONE. Of lists within lists the
   innermost. */
static int figures_layer_of(int module)
{
  while (module != NONE && !isdigit((unsigned char)*graph->module[module].name))
    module = graph->module[module].parent;
  return module;
}

/* What a value is a cast, a move or a view of; NONE: it is made of more, or given. */
static int source_of(int value)
{
  const int op = graph->value[value].op;
  return op == NONE || graph->op[op].nin != 1 ? NONE : graph->op[op].in[0];
}

static double bytes_of_value(const struct value *v)
{
  return (double)elements(v->shape) * (double)type_bytes(v->type);
}

/* The largest input of a layer: what goes from one layer to the next. */
static double largest_input(void)
{
  double most = 0;
  for (int i = 0; i < graph->ncall; i++) {
    const struct call *c = &graph->call[i];
    if (figures_layer_of(c->module) != c->module) continue;
    for (int k = 0; k < c->nin; k++) {
      const struct value *v = &graph->value[c->in[k]];
      const double bytes = is_floating(v->type) ? bytes_of_value(v) : 0;
      if (bytes > most) most = bytes;
    }
  }
  return most;
}

struct model_figures model_figures(void)
{
  struct model_figures f = {.input = largest_input(), .flops = step_flops()};
  bool *is_of_experts = alloc((size_t)(graph->nvalue + 1) * sizeof *is_of_experts);
  for (int i = 0; i < graph->nop; i++) {
    if (graph->op[i].kind == OP_dispatch)
      f.places = (double)graph->value[graph->op[i].in[1]].shape.size[2];
    int from = graph->op[i].kind == OP_grouped_linear ? graph->op[i].in[1] : NONE;
    for (; from != NONE; from = source_of(from)) is_of_experts[from] = true;
  }
  int *has = alloc((size_t)(graph->nmodule + 1) * sizeof *has), widest = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->init.kind == INIT_NESTED) continue;
    const double n = (double)numbers_in(v->type, v->shape);
    f.parameters += n;
    f.compute_bytes += n * (double)type_bytes(v->used_as);
    f.gradient_bytes += n * (double)type_bytes(v->reduced_as);
    if (is_of_experts[i]) f.experts += n;
    const int layer = figures_layer_of(v->module);
    if (layer == NONE) continue;
    f.in_layers += n;
    has[layer] = 1;
  }
  for (int i = 0; i < graph->nmodule; i++) {
    int n = 0;
    for (int k = i + 1; k < graph->nmodule; k++) n += graph->module[k].parent == i && has[k];
    if (n > widest) widest = n;
  }
  f.layers = widest;
  const int64_t *held = memory_by_role();
  f.parameter_memory = (double)held[PARAMETER];
  f.gradient_memory = (double)(held[GRADIENT] + held[SUMS]);
  f.state_memory = (double)held[STATE];
  f.activations = (double)arena_bytes();
  const struct simulated *s = simulated();
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *of = &graph->function[i];
    if (!is_phase(of) || of->phase == CONSTANTS) continue;
    *(is_of_batch(of->phase) ? &f.batch_seconds : &f.update_seconds) += s->took_all[i] * 1e-12;
  }
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    const enum phase phase = graph->op[r->op].phase;
    if (r->module == NONE && r->stream == NONE && is_of_batch(phase))
      f.outside_seconds += (double)(r->end - r->begin) * 1e-12 * (double)runs_of_phase(phase);
  }
  return f;
}
