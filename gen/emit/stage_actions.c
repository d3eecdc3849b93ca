/* stage_actions.c: the actions of a pipeline in a step: the function that begins one (it sets the
   number of its micro-batch, and the beginnings of the arena's slots that its functions touch), the
   receives that are posted ahead, and the list of all actions. Where the list repeats for
   consecutive micro-batches, as in the steady state of a schedule, it becomes a loop. */
#include "emit/emit.h"

#include <string.h>

bool touches_slots(int stage, int of)
{
  return is_stage_here(of) && of <= stage && stage <= last_stage_with(of);
}

const char *begin_action_name(int stage)
{
  return stages_here() == 1 ? "begin_action" : text("begin_action_stage%d", stage);
}

/* "0, 1, 2" over lines. */
static char *numbers_text(const int64_t *number, int n)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) put(&b, "%s%lld", i ? ", " : "", (long long)number[i]);
  return wrapped(b.text, ", ", "  ");
}

/* Of several stages: which slot each micro-batch has in each stage, and where the slots begin. */
static void put_slot_tables(struct buffer *b, const struct rank_slots *slots)
{
  put(b,
      "// Where the slots of micro-batches begin. A slot goes from one stage to another.\n"
      "static const long slot_begins[] = {\n  %s};\n"
      "// By micro-batch: its slot.\n",
      numbers_text(slot_begins(slots, graph->memory->slots), slots->n + 1));
  int64_t *of = alloc((size_t)slots->microbatches * sizeof *of);
  for (int s = 0; s < graph->stages->n; s++) {
    if (!is_stage_here(s)) continue;
    for (int m = 0; m < slots->microbatches; m++) of[m] = slots->of[s][m];
    put(b, "static const int %s[] = {\n  %s};\n", slots_table(s),
        numbers_text(of, slots->microbatches));
  }
}

char *slots_text(const char *own_static)
{
  struct buffer b = {0};
  if (!graph->stages) return "";
  put(&b,
      "\n// Where the slot of the micro-batch that runs begins, counted from the first slot.\n");
  for (int s = 0; s < graph->stages->n; s++)
    if (is_stage_here(s)) put(&b, "%s long %s;\n", own_static, slot_variable(s));
  return b.text;
}

char *action_parameters(const char *type)
{
  return text(stages_here() == 1 ? "%sof, %sslot" : "%sof", type, type);
}

static void put_slot_of_action(struct buffer *b, int stage)
{
  const int64_t bytes = graph->memory->slots[stage].bytes, at = bytes_before_stage(stage);
  if (stages_here() == 1) {
    put(b, "  %s = slot * %lldL;\n", slot_variable(stage), (long long)bytes);
    return;
  }
  put(b, "  %s = slot_begins[%s[of]]", slot_variable(stage), slots_table(stage));
  if (at)
    put(b, " - %lldL; // its first value's offset\n", (long long)at);
  else
    put(b, ";\n");
}

char *begin_actions_text(void)
{
  struct buffer b = {0};
  const struct rank_slots slots = slots_here();
  if (stages_here() > 1) put_slot_tables(&b, &slots);
  put(&b,
      "%s// Begins an action of the schedule for micro-batch `of`, which has %s slot of the arena\n"
      "// from its forward to its backward. Comments name actions as PyTorch does: 0F1 is the "
      "forward\n"
      "// of stage 0 for micro-batch 1; B, a backward.\n",
      stages_here() > 1 ? "\n" : "", stages_here() > 1 ? "a" : "this");
  for (int s = 0; s < graph->stages->n; s++)
    if (is_stage_here(s)) {
      put(&b, "static void %s(%s)\n{\n  microbatch = of;\n", begin_action_name(s),
          action_parameters("int "));
      for (int i = s; i >= 0; i--)
        if (touches_slots(s, i)) put_slot_of_action(&b, i);
      put(&b, "}\n\n");
    }
  return b.text;
}

/* ---------------------------------------------------------------------- the list of a step */

/* One line of a step or some: an action, or the post of its receives. */
struct item {
  const struct action *action;
  int at; /* its place among the actions */
  bool is_post;
};

struct items {
  int n, room;
  struct item *at;
  const char *t; /* the step's number, as the target writes it */
  int **slot;    /* by stage and action, the slot of the action's micro-batch */
  int nslot;
};

static int size_of_action(const struct action *a)
{
  return sizes_of_step()->at[size_of_microbatch(sizes_of_step(), a->microbatch)];
}

static bool does_action(const struct function *f, const struct action *a)
{
  return is_phase(f) && is_of_batch(f->phase) && f->stage == a->stage &&
         does_work(a->kind, work_of_function(f));
}

bool has_posts(const struct function *f)
{
  for (int k = 0; k < f->nop; k++)
    if (is_posted(&graph->op[f->op[k]])) return true;
  return false;
}

const char *post_name(const struct function *f)
{
  return text("post_%s", function_name(f));
}

/* Whether the action at `i` uses the place that this function's receive fills in action j. Outside
   of slots that is the function's own place: a B and an I run it. */
static bool uses_place(const struct items *items, const struct actions *actions, int j, int i,
                       const struct function *f, const struct op *receive)
{
  const struct action *a = &actions->at[j], *b = &actions->at[i];
  int of = allocation_of(receive->out).in_flight;
  if (of == NONE) return does_action(f, a);
  for (int s = 0; s <= a->stage; s++) {
    const bool is_own = s == of && a->microbatch == b->microbatch;
    if (touches_slots(a->stage, s) && !is_own && items->slot[s][j] == items->slot[of][i])
      return true;
  }
  return false;
}

/* The first place among the actions from which on none uses the bytes that action `i` receives;
   NONE: it receives nothing. */
static int place_of_post(const struct items *items, const struct actions *actions, int i)
{
  int place = NONE;
  for (int n = 0; n < graph->nfunction; n++) {
    const struct function *f = &graph->function[n];
    for (int k = 0; k < f->nop && does_action(f, &actions->at[i]); k++) {
      const struct op *op = &graph->op[f->op[k]];
      if (!is_posted(op)) continue;
      int last = i;
      while (last > 0 && !uses_place(items, actions, last - 1, i, f, op)) last--;
      if (place < last) place = last;
    }
  }
  return place;
}

static void add_item(struct items *items, struct item item)
{
  GROW(items->at, items->n, items->room);
  items->at[items->n++] = item;
}

/* "2F3"; of a post "2RECV_F3". */
static const char *item_text(const struct item *item)
{
  const struct action *a = item->action;
  if (!item->is_post) return action_text(a);
  return text("%dRECV_%c%d", a->stage, a->kind == ACTION_F ? 'F' : 'B', a->microbatch);
}

/* Asserts that the place of a receive is free when it is posted, and that its own action takes it
   next. */
static void check_places(const struct items *items, const struct function *f,
                         const struct op *receive)
{
  int of = allocation_of(receive->out).in_flight, n = of == NONE ? 1 : items->nslot;
  int *posted = alloc((size_t)n * sizeof *posted); /* by slot: the micro-batch, or NONE */
  for (int i = 0; i < n; i++) posted[i] = NONE;
  for (int i = 0; i < items->n; i++) {
    const struct item *item = &items->at[i];
    if (!does_action(f, item->action)) continue;
    int *there = &posted[of == NONE ? 0 : items->slot[of][item->at]];
    int microbatch = item->action->microbatch, expected = item->is_post ? NONE : microbatch;
    if (*there != expected)
      bug("emit", "%s: micro-batch %d is received where %d is expected", item_text(item), *there,
          expected);
    *there = item->is_post ? microbatch : NONE;
  }
}

static struct items items_of(const struct actions *actions, bool forwards, const char *t)
{
  /* The schedule's slots; with only forwards, each micro-batch of one stage has the next slot. */
  const struct rank_slots slots = slots_here();
  int n = graph->stages->n, **slot = alloc((size_t)n * sizeof *slot);
  for (int s = 0; s < n; s++) {
    slot[s] = alloc((size_t)(actions->n + 1) * sizeof *slot[s]);
    for (int i = 0; i < actions->n && is_stage_here(s); i++) {
      const int m = actions->at[i].microbatch;
      slot[s][i] = forwards && slots.stages.n == 1 ? m % slots.n : slots.of[s][m];
    }
  }
  struct items items = {.t = t, .slot = slot, .nslot = slots.n};
  struct list *posts = alloc((size_t)(actions->n + 1) * sizeof *posts); /* by place */
  for (int i = 0; i < actions->n; i++) {
    int place = place_of_post(&items, actions, i);
    if (place != NONE) add(&posts[place], i);
  }
  for (int i = 0; i < actions->n; i++) {
    for (int k = 0; k < posts[i].n; k++) {
      int of = posts[i].at[k];
      add_item(&items, (struct item){&actions->at[of], of, true});
    }
    add_item(&items, (struct item){&actions->at[i], i, false});
  }
  for (int n = 0; n < graph->nfunction; n++) {
    const struct function *f = &graph->function[n];
    for (int k = 0; k < f->nop && is_phase(f) && is_of_batch(f->phase); k++)
      if (is_posted(&graph->op[f->op[k]])) check_places(&items, f, &graph->op[f->op[k]]);
  }
  return items;
}

/* Calls the functions of an action, or those that post their receives. */
static void put_work(struct buffer *b, const struct items *items, const struct item *item,
                     const char *arguments, int indent)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!does_action(f, item->action)) continue;
    if (!item->is_post)
      put(b, "%*s%s(%s);\n", indent, "", function_name(f), takes_step(f) ? items->t : "");
    else if (has_posts(f))
      put(b, "%*s%s(%s);", indent, "", post_name(f), arguments);
  }
}

/* The counter of a loop over micro-batches: `i`, unless the loop around it over batches has
   that. */
static const char *counter_of_action(void)
{
  return plan_options->accumulate > 1 ? "k" : "i";
}

/* "3, 1": the micro-batch, and its slot; or, in a loop over `i`, "i + 3, (i + 3) % 2". */
static char *arguments_of(const struct items *items, const struct item *item, bool repeated, int by)
{
  struct buffer b = {0};
  const struct action *a = item->action;
  const char *number = by == 1 ? counter_of_action() : text("%d * %s", by, counter_of_action()),
             *whole = number;
  if (a->microbatch) whole = text("%s + %d", number, a->microbatch);
  put(&b, "%s", repeated ? whole : text("%d", a->microbatch));
  const int n = items->nslot;
  if (stages_here() > 1) return b.text;
  if (!repeated)
    put(&b, ", %d", items->slot[a->stage][item->at]);
  else if (n == microbatches())
    put(&b, ", %s", whole);
  else
    put(&b, n == 1 ? ", 0" : strpbrk(whole, "+*") ? ", (%s) %% %d" : ", %s %% %d", whole, n);
  return b.text;
}

/* ----------------------------------------------------------------------------------- loops */

/* Items that repeat: `each` of them, `times`, with micro-batches that grow by `by`. */
struct repeats {
  int each, times, by;
};

enum { MOST_REPEATED = 64, LEAST_TIMES = 3 };

/* Whether an item's slot follows from its micro-batch: of several stages tables say it. */
static bool has_usual_slots(const struct items *items, const struct item *item)
{
  const struct action *a = item->action;
  return stages_here() > 1 || items->slot[a->stage][item->at] == a->microbatch % items->nslot;
}

static bool is_alike(const struct item *a, const struct item *b, int by)
{
  return a->is_post == b->is_post && a->action->kind == b->action->kind &&
         a->action->stage == b->action->stage &&
         b->action->microbatch == a->action->microbatch + by &&
         size_of_action(a->action) == size_of_action(b->action);
}

static int times_of(const struct items *items, int from, int each, int by)
{
  int n = from;
  while (n < from + each && has_usual_slots(items, &items->at[n])) n++;
  if (n < from + each) return 1;
  while (n < items->n && has_usual_slots(items, &items->at[n]) &&
         is_alike(&items->at[n - each], &items->at[n], by))
    n++;
  return (n - from) / each;
}

/* The longest repetition that starts there. */
static struct repeats repeats_from(const struct items *items, int from)
{
  struct repeats best = {1, 1, 0};
  for (int each = 1; each <= MOST_REPEATED && from + LEAST_TIMES * each <= items->n; each++) {
    const struct action *a = items->at[from].action, *b = items->at[from + each].action;
    int by = b->microbatch - a->microbatch;
    int times = by > 0 ? times_of(items, from, each, by) : 1;
    if (times >= LEAST_TIMES && each * times > best.each * best.times)
      best = (struct repeats){each, times, by};
  }
  return best;
}

/* A loop of forwards leaves its last one to a loop of forwards and backwards after it, which then
   begins with a forward. */
static struct repeats next_repeats(const struct items *items, int from)
{
  struct repeats now = repeats_from(items, from);
  int end = from + now.each * now.times;
  if (now.times == 1 || end >= items->n) return now;
  struct repeats behind = repeats_from(items, end), before = repeats_from(items, end - now.each);
  if (before.each > now.each && before.each * before.times >= behind.each * behind.times)
    now.times--;
  return now.times < LEAST_TIMES ? (struct repeats){1, 1, 0} : now;
}

static char *text_of_actions(const struct actions *actions, bool forwards, const char *t)
{
  struct buffer b = {0};
  const struct items items = items_of(actions, forwards, t);
  for (int i = 0; i < items.n;) {
    const struct repeats r = next_repeats(&items, i);
    if (r.times > 1)
      put(&b, "  for (int %s = 0; %s < %d; %s++) {\n", counter_of_action(), counter_of_action(),
          r.times, counter_of_action());
    for (int k = i; k < i + r.each; k++) {
      /* "begin_action(3, 1); // 2F3" and the calls; in a loop the comment has the first and the
       * last. */
      const struct item *item = &items.at[k];
      const struct item *last = &items.at[k + r.each * (r.times - 1)];
      const bool repeated = last != item;
      const int indent = repeated ? 4 : 2;
      const char *arguments = arguments_of(&items, item, repeated, r.by);
      const char *comment = item_text(item);
      if (repeated) comment = text("%s ... %s", comment, item_text(last));
      graph->mesh.now = size_of_action(item->action);
      if (item->is_post) {
        put_work(&b, &items, item, arguments, indent);
        put(&b, " // %s\n", comment);
      } else {
        put(&b, "%*s%s(%s); // %s\n", indent, "", begin_action_name(item->action->stage), arguments,
            comment);
        put_work(&b, &items, item, arguments, indent);
      }
      graph->mesh.now = 0;
    }
    if (r.times > 1) put(&b, "  }\n");
    i += r.each * r.times;
  }
  put(&b, "%s", awaits_all_sent_text());
  return b.text;
}

char *actions_text(void)
{
  const struct actions actions = actions_here();
  return text_of_actions(&actions, false, batch_number());
}

/* By micro-batches, and within each by stages: in this order all sends go forward. */
char *forwards_text(const char *t)
{
  struct actions actions = {0};
  for (int m = 0; m < microbatches(); m++)
    for (int s = 0; s < graph->stages->n; s++)
      if (is_stage_here(s))
        put_action(&actions, (struct action){.kind = ACTION_F, .stage = s, .microbatch = m});
  return text_of_actions(&actions, true, t);
}
