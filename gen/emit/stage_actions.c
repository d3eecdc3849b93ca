/* stage_actions.c: what begins an action of a pipeline: the number of its micro-batch, and where
   the slots of the arena begin that its functions touch. */
#include "emit/emit.h"

bool touches_slots(int stage, int of)
{
  return is_stage_here(of) && of <= stage && stage <= last_stage_with(of);
}

const char *begin_action_name(int stage)
{
  return stages_here() == 1 ? "begin_action" : text("begin_action_stage%d", stage);
}

char *slots_text(const char *own_static)
{
  struct buffer b = {0};
  if (!graph->stages) return "";
  put(&b, "\n// Where the slot of the micro-batch that runs begins, behind the first one.\n");
  for (int s = 0; s < graph->stages->n; s++)
    if (is_stage_here(s)) put(&b, "%s long %s;\n", own_static, slot_variable(s));
  return b.text;
}

static void put_begin_action(struct buffer *b, int stage)
{
  bool one = stages_here() == 1;
  struct buffer body = {0};
  put(b, "static void %s(int of", begin_action_name(stage));
  for (int s = stage; s >= 0; s--) {
    if (!touches_slots(stage, s)) continue;
    const char *slot = one ? "slot" : text("slot_stage%d", s);
    put(b, ", int %s", slot);
    put(&body, "  %s = %s * %lldL;\n", slot_variable(s), slot,
        (long long)graph->memory->slots[s].bytes);
  }
  put(b, ")\n{\n  microbatch = of;\n%s}\n\n", body.text);
}

char *begin_actions_text(void)
{
  struct buffer b = {0};
  put(&b,
      "// Begins an action of the schedule for a micro-batch, which has that slot of the arena\n"
      "// from its forward to its backward.\n");
  for (int s = 0; s < graph->stages->n; s++)
    if (is_stage_here(s)) put_begin_action(&b, s);
  return b.text;
}
