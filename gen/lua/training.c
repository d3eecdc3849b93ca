/* training.c: the functions with which our Lua files set the use of a model that has been run: its
   loss or its outputs, and its training. */
#include "lua/lua.h"

#include <fnmatch.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* The value, or a copy if it is an input, a parameter, the loss, or an output already. */
static int own_value(int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == ACTIVATION && !v->is_output && value != graph->loss) return value;
  struct op copy = {.kind = OP_scale, .nin = 1, .in = {value}, .scalar = 1};
  if (!is_floating(v->type))
    copy = (struct op){.kind = OP_cast, .nin = 1, .in = {value}, .type = v->type};
  return append_here(copy);
}

static bool depends_on_parameter(int value, bool of_frozen)
{
  bool *depends = alloc((size_t)graph->nvalue * sizeof *depends);
  for (int i = 0; i < graph->nvalue; i++)
    depends[i] = graph->value[i].role == PARAMETER && (of_frozen || !graph->value[i].frozen);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    bool any = false;
    for (int k = 0; k < op->nin; k++) any |= depends[op->in[k]];
    for (int k = 0; k < op->nout; k++) depends[op->out + k] = any;
  }
  return depends[value];
}

static int set_loss(lua_State *L)
{
  int loss = argument_value(L, 1);
  struct value v = graph->value[loss];
  if (v.shape.ndim != 0)
    plan_error(v.line,
               "the loss must be a single number, not a tensor of shape %s: end it with "
               ":mean(), :sum() or :var()",
               shape_text(v.shape));
  if (!is_floating(v.type))
    plan_error(v.line, "the loss must be floating, not whole numbers: cast it with :to('float32')");
  if (v.type != F32)
    plan_error(v.line, "the loss must be float32, not bfloat16: cast it with :to('float32')");
  if (!depends_on_parameter(loss, true))
    plan_error(v.line, "the loss depends on no parameter of the model: there is nothing to train");
  if (!depends_on_parameter(loss, false))
    plan_error(v.line, "all parameters that the loss depends on are frozen: there is nothing to "
                       "train");
  graph->loss = own_value(loss);
  graph->value[graph->loss].name = "loss";
  return 0;
}

/* set_output(name, tensor) */
static int set_output(lua_State *L)
{
  const char *name = check_name(L, 1, "an output's name");
  int value = own_value(argument_value(L, 2));
  graph->value[value].is_output = true;
  graph->value[value].name = copy_text(name);
  return 0;
}

/* labels_output(): the name of the output that is the number of labels that count. */
static int labels_output_name(lua_State *L)
{
  lua_pushstring(L, LABELS_OUTPUT);
  return 1;
}

/* collectives(): their names. */
static int collectives(lua_State *L)
{
  lua_newtable(L);
  for (int k = 0; k < OP_COUNT; k++) {
    if (!is_collective((enum op_kind)k)) continue;
    lua_pushstring(L, op_row[k].name);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  return 1;
}

/* set_expected({[collective] = at most}): the names are those of the table of operators. */
static int set_expected(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  plan_options->expected.given = true;
  plan_options->expected.line = sandbox->line;
  for (int k = 0; k < OP_COUNT; k++) {
    lua_getfield(L, 1, op_row[k].name);
    if (is_collective((enum op_kind)k))
      plan_options->expected.most[k] = (int)luaL_optinteger(L, -1, 0);
    lua_pop(L, 1);
  }
  return 0;
}

/* begin(steps, seed, by the greedy planner): from here on modules may be called. */
static int begin_program(lua_State *L)
{
  plan_options->steps = (int)luaL_checkinteger(L, 1);
  plan_options->seed = (uint64_t)luaL_checkinteger(L, 2);
  plan_options->greedy = lua_toboolean(L, 3);
  plan_options->train_line = sandbox->line;
  recording.on = true;
  return 0;
}

/* Removes the joins that no operation reads: a plan takes the parts of a projection in parts, not
   the whole. A join of joins comes after them. */
static void drop_unread_joins(void)
{
  int *readers = count_readers(), left = graph->norder;
  bool *dropped = alloc((size_t)(graph->norder + 1) * sizeof *dropped);
  for (int i = graph->norder - 1; i >= 0; i--) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->kind != OP_cat || readers[op->out]) continue;
    if (graph->value[op->out].is_output || graph->loss == op->out) continue;
    for (int k = 0; k < op->nin; k++) readers[op->in[k]]--;
    dropped[i] = true;
    left--;
  }
  if (left == graph->norder) return;
  int *place = alloc((size_t)(graph->norder + 1) * sizeof *place), n = 0;
  for (int i = 0; i < graph->norder; i++) {
    place[i] = n;
    if (!dropped[i]) graph->order[n++] = graph->order[i];
  }
  place[graph->norder] = n;
  graph->norder = n;
  for (int i = 0; i < graph->ncall; i++) {
    struct call *c = &graph->call[i];
    c->first = place[c->first];
    c->last = place[c->last];
  }
}

static int end(lua_State *L)
{
  (void)L;
  recording.on = false;
  drop_unread_joins();
  return 0;
}

static double number_field(lua_State *L, const char *name)
{
  lua_getfield(L, 1, name);
  double n = luaL_optnumber(L, -1, 0);
  lua_pop(L, 1);
  return n;
}

/* set_tf32(whether products may round their operands to TF32) */
static int set_tf32(lua_State *L)
{
  plan_options->tf32 = lua_toboolean(L, 1);
  return 0;
}

/* set_checkpoint(whether modules of lists are recomputed from their inputs, and from their
   products, the bytes within which the program is to fit: 0 for none, -1 for those that a rank has)
 */
static int set_checkpoint(lua_State *L)
{
  plan_options->checkpoint = lua_toboolean(L, 1);
  plan_options->selective = lua_toboolean(L, 2);
  plan_options->within = luaL_checkinteger(L, 3);
  return 0;
}

/* set_training{clip=, norm=, of_largest=, accumulate=, reduce_each=}: all are numbers; 0 for none.
   reduce_each: -1 for no. */
static int set_training(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  plan_options->clip = number_field(L, "clip");
  plan_options->wants_norm = number_field(L, "norm") != 0;
  plan_options->norm_of_largest = number_field(L, "of_largest") != 0;
  plan_options->accumulate = (int)number_field(L, "accumulate");
  plan_options->reduce_each_batch = number_field(L, "reduce_each") > 0;
  for (int u = 0; u < graph->nunit; u++)
    graph->unit[u].sums_whole = number_field(L, "reduce_each") < 0 && !graph->unit[u].reduces_each;
  return 0;
}

/* read_schedule(path): the text of a file with a schedule; its numbers of ranks, stages and
   micro-batches. Nothing, if it is a schedule's name. */
static int read_schedule(lua_State *L)
{
  size_t length;
  const char *path = luaL_checklstring(L, 1, &length), *why;
  if (strlen(path) != length || !is_csv(path)) return 0;
  const char *csv = requested_text(BY_PIPELINE, path, &length);
  const struct pipeline *p = schedule_of_csv(path, csv, &why);
  if (!p) plan_fails("pipeline: the schedule %s", printable(why));
  lua_pushlstring(L, csv, length);
  lua_pushinteger(L, p->ranks);
  lua_pushinteger(L, p->stages);
  lua_pushinteger(L, p->microbatches);
  return 4;
}

static int read_stages_implied(lua_State *L)
{
  lua_pushinteger(L, stages_implied(luaL_checkstring(L, 1)));
  return 1;
}

/* set_pipeline(mesh dimension, schedule, stages, line, the text of the schedule's file, modules,
   given): the modules with which stages 1, 2, ... begin if they are given, else those with which
   one may. */
static int set_pipeline(lua_State *L)
{
  struct pipeline_stages *s = graph->stages = alloc(sizeof *s);
  *s = (struct pipeline_stages){.n = (int)luaL_checkinteger(L, 3),
                                .mesh_dim = (int)luaL_checkinteger(L, 1),
                                .line = (int)luaL_checkinteger(L, 4),
                                .here = NONE,
                                .schedule = copy_text(luaL_checkstring(L, 2))};
  const char *csv = luaL_optstring(L, 5, NULL);
  if (csv) s->csv = copy_text(csv);
  s->first_module = alloc((size_t)s->n * sizeof *s->first_module);
  s->coordinate = alloc((size_t)s->n * sizeof *s->coordinate);
  s->is_split = alloc((size_t)s->n);
  /* The numbers of the modules in the list at that place of the stack. */
  int *n = &s->nmay_begin;
  luaL_checktype(L, 6, LUA_TTABLE);
  *n = (int)lua_rawlen(L, 6);
  int *module = alloc((size_t)(*n + 1) * sizeof *module);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, 6, i + 1);
    module[i] = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  s->may_begin = module;
  if (!lua_toboolean(L, 7)) return 0;
  for (int i = 1; i < s->n; i++) s->first_module[i] = s->may_begin[i - 1];
  s->nmay_begin = 0;
  return 0;
}

/* set_data{shuffle = a seed or nil, last = 0: not given, 1: smaller, 2: dropped} */
static int set_data(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  plan_options->shuffles = lua_getfield(L, 1, "shuffle") != LUA_TNIL;
  plan_options->shuffle = (uint64_t)luaL_optinteger(L, -1, 0);
  lua_pop(L, 1);
  plan_options->last_batch = (enum last_batch)number_field(L, "last");
  return 0;
}

/* set_validation(file or nil, every, steps) */
static int set_validation(lua_State *L)
{
  const char *file = luaL_optstring(L, 1, NULL);
  plan_options->validates = true;
  plan_options->validation_data = file ? copy_text(file) : NULL;
  plan_options->validate_every = (int)luaL_checkinteger(L, 2);
  plan_options->validate_steps = (int)luaL_checkinteger(L, 3);
  return 0;
}

/* set_validated(metrics: lines "NAME BY_MEAN", whether the plan says which) */
static int set_validated(lua_State *L)
{
  plan_options->validated = copy_text(luaL_checkstring(L, 1));
  plan_options->says_validated = lua_toboolean(L, 2);
  return 0;
}

/* set_generation(slots, context, prefill, enum cache_choice) */
static int set_generation(lua_State *L)
{
  plan_options->generate.slots = (int)luaL_checkinteger(L, 1);
  plan_options->generate.context = (int)luaL_checkinteger(L, 2);
  plan_options->generate.prefill = (int)luaL_checkinteger(L, 3);
  plan_options->generate.caches = (int)luaL_checkinteger(L, 4);
  return 0;
}

/* begin_decode(): the next operations belong to the program's second entry. */
static int begin_decode(lua_State *L)
{
  (void)L;
  recording.phase = DECODE;
  return 0;
}

/* set_library(whether a library is made, its name or nil) */
static int set_library(lua_State *L)
{
  const char *name = luaL_optstring(L, 2, NULL);
  plan_options->emits_library = lua_toboolean(L, 1);
  plan_options->library_name = name ? copy_text(name) : NULL;
  return 0;
}

/* set_adapter(text of PEFT's adapter_config.json, the scale of the adapters' products) */
static int set_adapter(lua_State *L)
{
  plan_options->adapter = copy_text(luaL_checkstring(L, 1));
  plan_options->adapter_scale = luaL_checknumber(L, 2);
  return 0;
}

/* set_exports(patterns of fnmatch, parted by "|"): what an export has. Returns whether a parameter
   fits. */
static int set_exports(lua_State *L)
{
  const char *patterns = plan_options->exports = copy_text(luaL_checkstring(L, 1));
  bool fits = false;
  for (const char *at = patterns; *at && !fits; at += strcspn(at, "|"), at += *at != 0) {
    const char *one = text("%.*s", (int)strcspn(at, "|"), at);
    for (int i = 0; i < graph->nvalue && !fits; i++)
      fits = graph->value[i].role == PARAMETER && !fnmatch(one, graph->value[i].name, 0);
  }
  lua_pushboolean(L, fits);
  return 1;
}

/* set_buckets(which: enum bucketing, caps in bytes: a list of numbers) */
static int set_buckets(lua_State *L)
{
  plan_options->bucketing = (enum bucketing)luaL_checkinteger(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_Integer n = luaL_len(L, 2);
  for (plan_options->ncap = 0; plan_options->ncap < n && plan_options->ncap < MAX_CAPS;
       plan_options->ncap++) {
    lua_geti(L, 2, plan_options->ncap + 1);
    plan_options->cap[plan_options->ncap] = (int64_t)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  return 0;
}

/* set_prefetch(modules ahead, or -1: tpgen decides) */
static int set_prefetch(lua_State *L)
{
  lua_Integer n = luaL_checkinteger(L, 1);
  plan_options->prefetch = n < 0 ? PREFETCH_WHERE_IT_PAYS : n ? PREFETCH_ALL : PREFETCH_NOTHING;
  plan_options->prefetched = n < 1 ? 1 : n < MOST_PREFETCHED ? (int)n : MOST_PREFETCHED;
  return 0;
}

/* set_overlap(whether collectives run beside arithmetic) */
static int set_overlap(lua_State *L)
{
  plan_options->overlap = lua_toboolean(L, 1);
  return 0;
}

/* note(message): tpgen prints it at its end, once for a line of the plan. */
static int note_program(lua_State *L)
{
  const char *before = plan_options->notes ? plan_options->notes : "";
  const int line = sandbox->line;
  const char *at = text("%s:%d: note: ", printable(file_of_line(plan_options->path, line)),
                        line % LINES_OF_FILE);
  if (!strstr(before, at))
    plan_options->notes = text("%s%s%s\n", before, at, printable(luaL_checkstring(L, 1)));
  return 0;
}

void set_training_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"set_loss", set_loss},
                                       {"set_output", set_output},
                                       {"labels_output", labels_output_name},
                                       {"step_mean", step_mean},
                                       {"collectives", collectives},
                                       {"set_expected", set_expected},
                                       {"set_tf32", set_tf32},
                                       {"set_checkpoint", set_checkpoint},
                                       {"set_training", set_training},
                                       {"read_schedule", read_schedule},
                                       {"stages_implied", read_stages_implied},
                                       {"set_pipeline", set_pipeline},
                                       {"set_data", set_data},
                                       {"set_validation", set_validation},
                                       {"set_validated", set_validated},
                                       {"set_adapter", set_adapter},
                                       {"set_exports", set_exports},
                                       {"set_generation", set_generation},
                                       {"begin_decode", begin_decode},
                                       {"set_library", set_library},
                                       {"set_buckets", set_buckets},
                                       {"set_prefetch", set_prefetch},
                                       {"set_overlap", set_overlap},
                                       {"note", note_program},
                                       {"begin", begin_program},
                                       {"end_", end},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
