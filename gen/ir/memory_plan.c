/* memory_plan.c: questions about where values are in memory: for the pass `memory`, its trials, and
   later passes. */
#include "ir/ir.h"

struct allocation no_place(int value)
{
  return (struct allocation){.storage = value,
                             .depth = 1,
                             .in_flight = NONE,
                             .made = NONE,
                             .made_by = NONE,
                             .first = NONE,
                             .last = NONE};
}

void clear_memory_plan(struct memory_plan *plan)
{
  for (int i = 0; i < graph->nvalue; i++) plan->of[i] = no_place(i);
}

struct memory_plan *new_memory_plan(void)
{
  struct memory_plan *plan = alloc(sizeof *plan);
  plan->of = alloc((size_t)(graph->nvalue + 1) * sizeof *plan->of);
  clear_memory_plan(plan);
  return plan;
}

struct allocation allocation_of(int value)
{
  if (graph->memory) return graph->memory->of[value];
  return no_place(value);
}

int64_t arena_stride(int value)
{
  enum { ALIGNMENT = 64 };
  int64_t bytes = largest_bytes(value);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int64_t arena_bytes(void)
{
  return graph->memory ? graph->memory->arena_bytes : 0;
}

int storage_of(int value)
{
  return graph->memory ? graph->memory->of[value].storage : value;
}

int representative(const struct memory_plan *plan, int value)
{
  while (plan && plan->of[value].storage != value) value = plan->of[value].storage;
  return value;
}

int stack_representative(const struct memory_plan *plan, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  bool is_one = loop->stack != NONE && !loop->step && v->role == ACTIVATION;
  return representative(plan, is_one ? loop->stack : value);
}
