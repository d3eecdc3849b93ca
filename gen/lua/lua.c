/* lua.c: the pass `lua`: the plan becomes the global graph.

   Takes   the plan's file and the definitions of the command line.
   Leaves  the graph's values, operations, modules, calls and styles; its mesh; its own operators
           with the texts of their kernels; and the loss to train, or the outputs to compute. Or the
           plan's error, with the plan's current line.

   The parent process reads the files: the plan, and after it the kernels that it names. Everything
   that the plan's text decides happens in the sandbox. */
#include "lua/lua.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <lua.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PLAN = 1 << 20, MAX_KERNEL = 1 << 18 };
static const size_t MAX_MEMORY = (size_t)128 << 20;

static const char *const files[] = {
    "gen/lua/prelude/language/base.lua",
    "gen/lua/prelude/language/unsupported_arguments.lua",
    "gen/lua/prelude/tensors/tensors.lua",
    "gen/lua/prelude/tensors/views.lua",
    "gen/lua/prelude/tensors/functions.lua",
    "gen/lua/prelude/tensors/losses.lua",
    "gen/lua/prelude/tensors/attention.lua",
    "gen/lua/prelude/tensors/indices.lua",
    "gen/lua/prelude/tensors/images.lua",
    "gen/lua/prelude/tensors/activations.lua",
    "gen/lua/prelude/tensors/elements.lua",
    "gen/lua/prelude/tensors/reordering.lua",
    "gen/lua/prelude/tensors/normalization.lua",
    "gen/lua/prelude/tensors/likes.lua",
    "gen/lua/prelude/tensors/random.lua",
    "gen/lua/prelude/tensors/einsum.lua",
    "gen/lua/prelude/tensors/distances.lua",
    "gen/lua/prelude/tensors/volumes.lua",
    "gen/lua/prelude/tensors/rows.lua",
    "gen/lua/prelude/tensors/torch_functions.lua",
    "gen/lua/prelude/tensors/torch_layers.lua",
    "gen/lua/prelude/tensors/recurrent.lua",
    "gen/lua/prelude/training/precision.lua",
    "gen/lua/prelude/training/requires_grad.lua",
    "gen/lua/prelude/training/stored_weights.lua",
    "gen/lua/prelude/nn/nn.lua",
    "gen/lua/prelude/nn/nn_recurrent.lua",
    "gen/lua/prelude/nn/nn_init.lua",
    "gen/lua/prelude/nn/nn_state.lua",
    "gen/lua/prelude/nn/nn_losses.lua",
    "gen/lua/prelude/nn/nn_transformer.lua",
    "gen/lua/prelude/nn/nn_layers.lua",
    "gen/lua/prelude/nn/nn_more.lua",
    "gen/lua/prelude/nn/experts.lua",
    "gen/lua/prelude/language/operators.lua",
    "gen/lua/prelude/language/files.lua",
    "gen/lua/prelude/language/settings.lua",
    "gen/lua/prelude/parallel/parallel.lua",
    "gen/lua/prelude/parallel/styles.lua",
    "gen/lua/prelude/parallel/auto.lua",
    "gen/lua/prelude/parallel/lora.lua",
    "gen/lua/prelude/parallel/fully_shard.lua",
    "gen/lua/prelude/parallel/pipeline.lua",
    "gen/lua/prelude/parallel/context.lua",
    "gen/lua/prelude/parallel/parallel_plan.lua",
    "gen/lua/prelude/tensors/scalars.lua",
    "gen/lua/prelude/training/updates.lua",
    "gen/lua/prelude/training/optimizers.lua",
    "gen/lua/prelude/training/schedules.lua",
    "gen/lua/prelude/training/train.lua",
    "gen/lua/prelude/training/generate.lua",
    "gen/lua/prelude/language/hints.lua",
    "gen/lua/prelude/language/extra_arguments.lua",
};

/* Few plans need these: files.lua has them run. */
static const char *const files_of_archives[] = {
    "gen/lua/torch_export/archive.lua",      "gen/lua/torch_export/constants.lua",
    "gen/lua/torch_export/operators.lua",    "gen/lua/torch_export/core.lua",
    "gen/lua/torch_export/composed.lua",     "gen/lua/torch_export/elements.lua",
    "gen/lua/torch_export/complex.lua",      "gen/lua/torch_export/modules.lua",
    "gen/lua/torch_export/views.lua",        "gen/lua/torch_export/nodes.lua",
    "gen/lua/torch_export/patterns.lua",     "gen/lua/torch_export/experts.lua",
    "gen/lua/torch_export/parts.lua",        "gen/lua/torch_export/changes.lua",
    "gen/lua/torch_export/everyday.lua",     "gen/lua/torch_export/defaults.lua",
    "gen/lua/torch_export/run.lua",          "gen/lua/torch_export/sizes.lua",
    "gen/lua/torch_export/torch_export.lua",
};

static char *plan_text;
static size_t plan_length;

/* ----------------------------------------------------------------------------- the plan's files */

static uint64_t hash_text(uint64_t hash, const char *s)
{
  return hash_bytes(hash, s, strlen(s) + 1);
}

/* A hash of everything that decides the output. */
static void hash_input(void)
{
  uint64_t hash = hash_text(HASH_START, TPGEN_VERSION);
  hash = hash_text(hash, target->name);
  hash = hash_bytes(hash, plan_text, plan_length);
  if (options.check_finite) hash = hash_text(hash, "--check-finite");
  if (options.emit) hash = hash_text(hash, text("--emit %s", options.emit));
  if (options.library_name) hash = hash_text(hash, text("--library-name %s", options.library_name));
  for (int i = 0; i < options.ndefinition; i++) {
    hash = hash_text(hash, options.definition[i].name);
    hash = hash_text(hash, options.definition[i].value);
  }
  for (int i = 0; i < options.nparallel; i++) {
    hash = hash_text(hash, options.parallel[i].name);
    hash = hash_text(hash, options.parallel[i].value);
  }
  if (options.cluster) hash = hash_text(hash, text("--cluster %s", options.cluster));
  for (int i = 0; i < graph->ncustom; i++) {
    const char *kernel = graph->custom[i].kernel[target->language];
    hash = hash_text(hash, kernel ? kernel : "");
  }
  hash = hash_files(hash);
  hash = hash_archives(hash);
  plan_options->hash = text("%016llx", (unsigned long long)hash);
}

/* --------------------------------------------------------------------------------------- errors */

/* Skips "(plan):14: ", or "(plan)2:14: " of a required file, and stores the line. */
static const char *without_place(const char *message, int *line)
{
  size_t name = strlen(PLAN_NAME);
  bool plans = !strncmp(message, PLAN_NAME, name);
  int file = 0;
  if (plans) {
    size_t digits = strspn(message + name, "0123456789");
    file = required_number(text("=%.*s", (int)(name + digits), message));
    plans = message[name + digits] == ':';
  }
  bool own = !strncmp(message, OWN_NAME ":", strlen(OWN_NAME ":"));
  if (!plans && !own) return message;
  const char *digits = strchr(message, ':') + 1;
  char *rest;
  long number = strtol(digits, &rest, 10);
  if (rest == digits || strncmp(rest, ": ", 2) != 0) return message;
  if (plans) *line = file * LINES_OF_FILE + (int)number;
  return rest + 2;
}

static bool is_refused; /* the system has no memory, though the plan's limit is not reached */

/* Reports the error at the top of the stack, and ends. */
_Noreturn static void tell(lua_State *L, int status)
{
  int line = sandbox->line;
  if (status == LUA_ERRMEM && is_refused)
    usage_error(3, "no memory: the machine has none left for the Lua that reads the plan");
  if (status == LUA_ERRMEM)
    plan_fails("the plan took more than %zu MiB of memory", MAX_MEMORY >> 20);
  if (lua_type(L, -1) != LUA_TSTRING)
    plan_fails("error was called with a value of type %s, not with a text", luaL_typename(L, -1));
  const char *message = without_place(lua_tostring(L, -1), &line);
  const char *explained = explain_call_of_nothing(L, message);
  sandbox->line = line;
  plan_fails("%s", explained ? explained : message);
}

static int handle(lua_State *L)
{
  tell(L, LUA_ERRRUN);
}

/* Calls the function below its n arguments; reports an error with the line where it occurred. */
static void run_protected(lua_State *L, int n, int results)
{
  int at = lua_gettop(L) - n;
  lua_pushcfunction(L, handle);
  lua_insert(L, at);
  int status = lua_pcall(L, n, results, at);
  if (status != LUA_OK) tell(L, status);
  lua_remove(L, at);
}

/* ------------------------------------------------------------------------ args: the definitions */

static int read_arg(lua_State *L)
{
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushvalue(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, lua_upvalueindex(2));
  }
  lua_settop(L, 2);
  lua_rawget(L, lua_upvalueindex(1));
  return 1;
}

static int write_arg(lua_State *L)
{
  return luaL_error(L, "args holds what the command line defines: a plan cannot change it");
}

/* pairs(args) reads all of them. */
static int list_args(lua_State *L)
{
  lua_newtable(L);
  lua_pushnil(L);
  while (lua_next(L, lua_upvalueindex(1))) {
    lua_pushvalue(L, -2);
    lua_pushboolean(L, 1);
    lua_rawset(L, lua_upvalueindex(2));
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
  lua_getfield(L, lua_upvalueindex(3), "pairs");
  lua_insert(L, -2);
  lua_call(L, 1, 3);
  return 3;
}

static void set_event(lua_State *L, const char *event, lua_CFunction f, int values, int read,
                      int env)
{
  lua_pushvalue(L, values);
  lua_pushvalue(L, read);
  lua_pushvalue(L, env);
  lua_pushcclosure(L, f, 3);
  lua_setfield(L, -2, event);
}

/* Sets args in the environment; leaves the values and the names read on the stack. */
static void set_args(lua_State *L, int env)
{
  lua_newtable(L);
  for (int i = 0; i < options.ndefinition; i++) {
    push_definition(L, &options.definition[i]);
    lua_setfield(L, -2, options.definition[i].name);
  }
  int values = lua_gettop(L), read = values + 1;
  lua_pushvalue(L, values);
  lua_setfield(L, LUA_REGISTRYINDEX, ARGS_VALUES);
  lua_newtable(L);
  lua_newtable(L);
  lua_newtable(L);
  set_event(L, "__index", read_arg, values, read, env);
  set_event(L, "__newindex", write_arg, values, read, env);
  set_event(L, "__pairs", list_args, values, read, env);
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_setfield(L, env, "args");
}

/* declared: the plan has declared its settings, and each -D is one of them. */
static void check_args_read(lua_State *L, int read, bool declared)
{
  push_keys(L, read);
  if (options.help) {
    add_read_settings(L, lua_gettop(L));
    return;
  }
  for (int i = 0; i < options.ndefinition; i++) {
    const struct definition *d = &options.definition[i];
    if (lua_getfield(L, read, d->name) == LUA_TNIL) {
      sandbox->line = 0;
      if (declared)
        plan_fails("-D %s=%s: the plan reads it only with other settings: leave it out", d->name,
                   d->value);
      push_suggestion(L, d->name, -2);
      plan_fails("-D %s=%s: the plan reads no args.%s%s", d->name, d->value, d->name,
                 lua_tostring(L, -1));
    }
    lua_pop(L, 1);
  }
}

/* --------------------------------------------------------------------------- inside the sandbox */

static void *allocate(void *used, void *block, size_t before, size_t size)
{
  size_t *total = used;
  if (!block) before = 0;
  if (!size) {
    pool_free(block, before);
    *total -= before;
    return NULL;
  }
  is_refused = false;
  if (size > before && *total - before + size > MAX_MEMORY) return NULL;
  void *at = pool_move(block, before, size);
  is_refused = !at;
  if (at) *total = *total - before + size;
  return at;
}

/* Pushes a copy of the table at `from`, with copies of the tables in it down to `levels` levels. */
static void push_copy(lua_State *L, int from, int levels)
{
  lua_newtable(L);
  lua_pushnil(L);
  while (lua_next(L, from)) {
    lua_pushvalue(L, -2);
    if (levels > 0 && lua_istable(L, -2))
      push_copy(L, lua_gettop(L) - 1, levels - 1);
    else
      lua_pushvalue(L, -2);
    lua_rawset(L, -5);
    lua_pop(L, 1);
  }
}

/* Pushes the table of the graph's bindings. */
static void push_bindings(lua_State *L)
{
  lua_newtable(L);
  set_plan_bindings(L);
  set_scan_bindings(L);
  set_name_bindings(L);
  set_model_bindings(L);
  set_file_name_bindings(L);
  set_tensor_bindings(L);
  set_range_bindings(L);
  set_order_bindings(L);
  set_training_bindings(L);
  set_recipe_bindings(L);
  set_json_bindings(L);
  set_require_bindings(L);
  set_archive_bindings(L);
  set_surplus_bindings(L);
  set_keyword_bindings(L);
  set_settings_bindings(L);
  set_reference_bindings(L);
}

/* The arguments of our own files, by the index of the stack. */
struct own_arguments {
  int own;                         /* their globals */
  int bindings, shared, variables; /* the arguments; shared: a table of theirs */
};

static void run_own_file(lua_State *L, const char *name, struct own_arguments at)
{
  /* Pushes one of our own files as a function: precompiled, if the build used the Lua that runs
     now; else compiled from its text. */
  const struct embedded *e = !strcmp(lua_ident, compiled_by) ? compiled : NULL;
  while (e && e->name && strcmp(e->name, name) != 0) e++;
  if (e && !e->name) e = NULL;
  const char *source = e ? (const char *)e->text : embedded_text(name);
  size_t size = e ? e->size : strlen(source);
  int status = luaL_loadbufferx(L, source, size, "=" OWN_NAME, e ? "b" : "t");
  if (status == LUA_ERRMEM) tell(L, status);
  if (status != LUA_OK) bug("lua", "%s: %s", name, lua_tostring(L, -1));
  lua_pushvalue(L, at.own);
  lua_setupvalue(L, -2, 1);
  lua_pushvalue(L, at.bindings);
  lua_pushvalue(L, at.shared);
  lua_pushvalue(L, at.variables);
  run_protected(L, 3, 0);
}

/* Of a function whose upvalues are the members of struct own_arguments. */
static struct own_arguments own_upvalues(void)
{
  return (struct own_arguments){lua_upvalueindex(1), lua_upvalueindex(2), lua_upvalueindex(3),
                                lua_upvalueindex(4)};
}

static int run_archive_files(lua_State *L)
{
  for (size_t i = 0; i < sizeof files_of_archives / sizeof *files_of_archives; i++)
    run_own_file(L, files_of_archives[i], own_upvalues());
  return 0;
}

static int run_rare_archive_files(lua_State *L)
{
  static const char *const files[] = {
      "gen/lua/torch_export/rare.lua",     "gen/lua/torch_export/ordered.lua",
      "gen/lua/torch_export/random.lua",   "gen/lua/torch_export/special.lua",
      "gen/lua/torch_export/matrices.lua", "gen/lua/torch_export/decompositions.lua",
  };
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    run_own_file(L, files[i], own_upvalues());
  return 0;
}

/* A binding that runs some of our own files with the same arguments. */
static void add_runner(lua_State *L, const char *name, lua_CFunction f, struct own_arguments at)
{
  lua_pushvalue(L, at.own);
  lua_pushvalue(L, at.bindings);
  lua_pushvalue(L, at.shared);
  lua_pushvalue(L, at.variables);
  lua_pushcclosure(L, f, 4);
  lua_setfield(L, at.bindings, name);
}

/* In protected mode: the set-up may run out of memory too. */
static int evaluate(lua_State *L)
{
  push_environment(L);
  int env = lua_gettop(L);
  set_args(L, env);
  int read = env + 2;
  /* Runs our own files. Each gets the bindings, the table that they share, and the plan's
     variables. Their own globals are a copy: a plan may define its own `pairs` or change
     string.format. Their setmetatable is Lua's original. Leaves the bindings and the shared table
     on the stack. */
  push_bindings(L);
  lua_newtable(L);
  int bindings = lua_gettop(L) - 1;
  push_copy(L, env, 1);
  struct own_arguments at = {lua_gettop(L), bindings, bindings + 1, env};
  lua_getglobal(L, "setmetatable");
  lua_setfield(L, at.own, "setmetatable");
  add_runner(L, "run_archive_files", run_archive_files, at);
  add_runner(L, "run_rare_archive_files", run_rare_archive_files, at);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) run_own_file(L, files[i], at);
  if (options.reference) run_own_file(L, "gen/lua/prelude/language/reference.lua", at);
  lua_settop(L, at.shared);

  if (options.reference) return 0;
  lua_pushvalue(L, env);
  forbid_absent(L, NULL);
  lua_settop(L, read + 2);
  static const char mark[] = "\xef\xbb\xbf"; /* some editors begin a text with it */
  size_t skip = plan_length >= 3 && !memcmp(plan_text, mark, 3) ? 3 : 0;
  int status = luaL_loadbufferx(L, plan_text + skip, plan_length - skip, "=" PLAN_NAME, "t");
  if (status != LUA_OK) tell(L, status);
  lua_pushvalue(L, env);
  lua_setupvalue(L, -2, 1);
  follow_lines(L, true);
  run_protected(L, 0, 0);
  lua_sethook(L, NULL, 0, 0);
  sandbox->line = 0;

  lua_getfield(L, read + 2, "finish"); /* of the table that our files share: base.finish */
  run_protected(L, 0, 0);
  lua_getfield(L, read + 2, "has_settings");
  check_args_read(L, read, lua_toboolean(L, -1));
  return 0;
}

/* Our own files, and then the plan, unless --reference asks for nothing else. */
static void read_in_sandbox(void)
{
  static size_t used;
  open_frames();
  lua_State *L = lua_newstate(allocate, &used);
  if (!L) usage_error(3, "no memory for Lua");
  /* Garbage is collected only when memory is out: a plan that watches its weak tables sees the same
     in every process. */
  lua_gc(L, LUA_GCSTOP);
  lua_pushcfunction(L, evaluate);
  run_protected(L, 0, 0);
}

void check_ranks(void)
{
  enum { MOST = 4096 };
  int world = world_size();
  if (!options.out) return;
  if (options.first_rank >= world)
    usage_error(2, "--ranks %d: the mesh has %d ranks, counted from 0", options.first_rank, world);
  if (options.last_rank >= world && options.last_rank < INT32_MAX)
    usage_error(2, "--ranks %d-%d: the mesh has %d ranks, counted from 0", options.first_rank,
                options.last_rank, world);
  int n = (options.last_rank < world ? options.last_rank : world - 1) - options.first_rank + 1;
  if (n > MOST)
    usage_error(2,
                "the mesh has %d ranks, and no more than %d programs are written at once: say "
                "which, as in --ranks 0-7",
                n, MOST);
}

/* Runs the plan in the sandbox, again and again until no further file is requested. */
static void evaluate_plan(void)
{
  if (!plan_options->path) errors_are_of(plan_options->path = options.plan);
  struct stat about;
  if (!stat(options.plan, &about) && S_ISREG(about.st_mode) && about.st_size > MAX_PLAN)
    plan_error(0, "the plan has %lld bytes; at most %d are read", (long long)about.st_size,
               MAX_PLAN);
  const char *why;
  plan_text = read_file(options.plan, MAX_PLAN, &plan_length, &why);
  if (!plan_text) usage_error(3, "cannot read %s: %s", options.plan, why);
  int line = 1;
  for (size_t i = 0; i < plan_length; i++) {
    if (plan_text[i] == '\n') line++;
    if (plan_text[i] == 0 || plan_text[i] == LUA_SIGNATURE[0])
      plan_error(line, "a plan is a text: byte %d cannot be part of it", plan_text[i]);
  }
  open_requested_files(plan_text);
  struct graph before = *graph;
  struct plan_options asked_before = *plan_options;
  for (in_sandbox(read_in_sandbox); read_requested_file(); in_sandbox(read_in_sandbox)) {
    *graph = before;
    *plan_options = asked_before;
  }
  arena_own();
}

void print_reference(void)
{
  sandbox = alloc(sizeof *sandbox);
  read_in_sandbox();
}

const struct setting *settings_of_plan(int *n)
{
  bool lists = options.help;
  options.help = true; /* which settings{...} asks: it ends the reading */
  evaluate_plan();
  options.help = lists;
  *n = plan_options->nsetting;
  return plan_options->setting;
}

const char *plan_source(void)
{
  return plan_text;
}

void lua(void)
{
  evaluate_plan();
  if (plan_options->parallel.is_asked)
    return; /* a search comes first, and the plan is read again */
  for (int i = 0; i < graph->ncustom; i++) {
    struct custom *c = &graph->custom[i];
    for (int l = 0; l < LANGUAGES; l++)
      if (c->kernel[l]) {
        /* The text of a kernel that the plan names. */
        const char *name = c->kernel[l];
        const char *slash = strrchr(options.plan, '/'),
                   *why = "it is outside of the folder of the plan";
        const char *directory =
            slash ? text("%.*s", (int)(slash + 1 - options.plan), options.plan) : "";
        const char *path = text("%s%s", directory, name);
        size_t length = 0;
        char *at = NULL;
        if (access(path, F_OK))
          why = strerror(errno);
        else if (is_below_plan(directory, path))
          at = read_file(path, MAX_KERNEL, &length, &why);
        if (at && strlen(at) != length) {
          at = NULL;
          why = "it is not text";
        }
        if (!at) plan_error(c->line, "operator '%s': cannot read %s: %s", c->name, name, why);
        c->kernel[l] = at;
      }
  }
  hash_input();
  check_ranks();
}
