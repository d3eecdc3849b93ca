/* lua.h: the front end: the plan runs in its sandbox and leaves the global graph. */
#ifndef TPGEN_LUA_H
#define TPGEN_LUA_H

#include "util/util.h"
#include "ir/ir.h"
#include "pipeline/pipeline.h"
#include "sharding/sharding.h"

/* The function of the plan's that wants a file. */
/* In the registry: the values of args. */
#define ARGS_VALUES "tpgen args"

/* The device and the cluster of this name are this machine. */
#define THIS_MACHINE "this"

enum file_reader { BY_READ_JSON, BY_REQUIRE, BY_TORCH_EXPORT, BY_PIPELINE, BY_DEVICE, BY_CLUSTER };

/* The results that the process that reads the plan leaves for its parent, however it ends. */
struct sandbox {
  volatile int line;  /* the plan's current line; 0: none */
  char missing[1024]; /* path of a file that it needs, or "": see requested_files.c */
  enum file_reader missing_by;
  int requested;         /* how many files it has requested that it got */
  uint64_t archive_hash; /* of what was read of archives */
  size_t printed;
  char print[1 << 16];
};

struct lua_State;

/* The number of arguments that the function at `at` takes; or ANY_NUMBER. */
enum { ANY_NUMBER = -1 };

/* A tensor in Lua. */
struct tensor {
  int value; /* NONE: a parameter that is not part of a model yet */
  struct shape shape;
  struct init init;
  int line;
  bool frozen; /* a parameter that requires no gradient */
  bool buffer; /* one that is never trained: no unit shards it, and no policy casts it */
  /* A parameter that is kept in parts along a dimension: their sizes, in the arena. Its values are
     `value` and those that follow; nparts 0: it is one. */
  int nparts, part_dim;
  const int64_t *part;
};
/* Whether train or infer is running the model, in which call of a module, or NONE, and for which
   entry of the program. */
extern struct recording {
  bool on;
  int call;
  enum phase phase;
} recording;

/* The least and the greatest number that an element of the value may be, by what the plan declares;
   INT64_MIN and INT64_MAX if it does not. declared_range: of an input, by randint or tokens. */
struct range {
  int64_t low, high;
  bool taken;   /* some elements may reach either end: no condition of the plan's prevents it */
  bool uniform; /* that holds for every element */
};

/* The record of calls of function `number` with equal arguments to those on the stack; NULL: such
   calls cannot be recorded. If it is recorded already, `replay` appends the operations of the first
   call, pushes its results and returns their number. Otherwise the caller runs the function and
   then records it, with its results on the stack and its operations from first_op on, unless it
   must not be. */
struct noted_call;

struct made {
  int number, line;
  const char *class_name;
  int index;          /* in the graph, or NONE */
  int taken;          /* the call of fully_shard or replicate that took it, from 1; 0: none */
  struct made *queue; /* next in a queue of modules to visit */
  unsigned looked;    /* the look that recorded its members: valid until the plan's code runs */
  int n, room;        /* its members, in the order of assignment */
  struct held *held;
  bool unnamed, numbered, named; /* it has keys that are no names; numbers; texts */
};

/* A member of a module: a module or a tensor. The name is Lua's, or the arena's. */
struct held {
  const char *name;
  size_t length;
  struct made *module; /* or NULL */
  struct tensor *tensor;
};

/* Upvalues of the functions that use the tables of modules.c. */
#define KINDS    lua_upvalueindex(1)
#define KEYS_OF  lua_upvalueindex(2)
#define SEEN_OF  lua_upvalueindex(3)
#define MADE     lua_upvalueindex(4)
#define MODULES  lua_upvalueindex(5)
#define CLASS_OF lua_upvalueindex(6)
enum { TABLES = 6 };

/* The plan's name in Lua's messages, which begin "name:line: ". The number of a required file
   follows it. OWN_NAME: our own files. */
#define PLAN_NAME "(plan)"

/* A placement as Lua holds it: whether the plan gave the cut order, too. */
struct placed_at {
  struct placement placement;
  bool has_order;
};

enum { MAX_OPS = 1 << 15, MAX_CUSTOM = 256 };

/* ------------------------------------------------------------------------------------- bindings */

/* Each adds the functions of one file to the table at the top of the stack. set_module_bindings
   also pushes the TABLES tables that its functions, and those of model.c, have as upvalues. */
void set_plan_bindings(struct lua_State *L);
void set_archive_bindings(struct lua_State *L);
void set_name_bindings(struct lua_State *L);
void set_file_name_bindings(struct lua_State *L);
void set_json_bindings(struct lua_State *L);
void set_keyword_bindings(struct lua_State *L);
void set_model_bindings(struct lua_State *L);
void set_module_bindings(struct lua_State *L);
void set_require_bindings(struct lua_State *L);
void set_scan_bindings(struct lua_State *L);
void set_surplus_bindings(struct lua_State *L);
void set_tensor_bindings(struct lua_State *L);
void set_order_bindings(struct lua_State *L);
void set_recipe_bindings(struct lua_State *L);
void set_training_bindings(struct lua_State *L);
void set_range_bindings(struct lua_State *L);
void set_settings_bindings(struct lua_State *L);
void set_reference_bindings(struct lua_State *L);

/* ------------------------------------------------------------------------------------ append.c */

struct tensor *push_tensor(struct lua_State *L, int value);
/* The tensor at this index, or NULL. */
struct tensor *tensor_at(struct lua_State *L, int at);
/* The tensor that is the argument `at`; and its value, which must exist already. */
struct tensor *argument_tensor(struct lua_State *L, int at);
int argument_value(struct lua_State *L, int at);
int tensor_value(const struct tensor *t);
/* The values of a parameter: one for each of its parts. */
int part_count(const struct tensor *t);
int part_value(const struct tensor *t, int k);
/* The argument's value in the type that the model computes with: a parameter may be stored in
   another. */
int argument_operand(struct lua_State *L, int at);
int operand_of(int value);
/* The current function of the plan depends on more than its arguments' shapes and types: its calls
   are not replayed. */
void call_is_unlike(void);
/* The cast that operand_of made of the parameter for the current module, or NONE. */
int known_cast(int value);
/* A list of sizes; `what` is the function that takes it. */
struct shape argument_shape(struct lua_State *L, int at, const char *what);
/* A type's name, such as "int32". */
enum type argument_type(struct lua_State *L, int at);
/* Appends an operation for the plan's current line; returns its value. A value that is too large is
   the plan's error. */
int append_here(struct op op);
/* An operation that gives the value in the layout, and the types, that it has. */
struct op redistribution_of(int value, const char *why);
/* Appends a copy of the operation `number` for the current line, with these inputs; returns its
   first output. */
int append_again(int number, const int *in);
/* The function that the plan has called, for messages: "softmax", "+"; NULL: none. In the arena. */
extern const char *called_function;
extern const char *const type_names[];
/* The metatable of tensors: the key of the registry, and its address. */
extern const void *metatable;
bool is_cast_for_use(int value);
/* Checks the size at the top of the stack; the plan's error names `what`. */
int64_t check_tensor_size(struct lua_State *L, const char *what);
void check_elements(const char *what, struct shape s);
/* The name of the function that the plan has called, or `otherwise`. */
const char *called_or(const char *otherwise);
/* The current function does not append the same for equal arguments. */
extern bool is_unlike;
/* The operation with the plan's current line and module. */
struct op op_here(struct op op);

/* --------------------------------------------------------------------------------- arguments.c */

/* A name that is not too long; `what` names its owner. bindings.c. */
const char *check_name(struct lua_State *L, int at, const char *what);
void check_name_text(const char *name, size_t length, const char *what);
struct placement placement_at(struct lua_State *L, int at);
struct placed_at *check_placement(struct lua_State *L, int at);
extern const char *const reduction_names[];
/* A placement as the plan writes it. */
int placement_name(struct lua_State *L);

/* ---------------------------------------------------------------------------------- bindings.c */

/* Gives   a module a style. Earlier styles must not place the same thing: else it is the plan's
           error. */
void place_by_style(struct style s);

/* -------------------------------------------------------------------------------- call_cache.c */

struct noted_call *noted_call(struct lua_State *L, int function);
bool is_noted(const struct noted_call *call);
int replay(struct lua_State *L, const struct noted_call *call);
void note_call(struct lua_State *L, struct noted_call *call, int first_op);
void never_note(struct noted_call *call);

/* ---------------------------------------------------------------------------------- archives.c */

uint64_t hash_archives(uint64_t hash);

/* ------------------------------------------------------------------------------- environment.c */

/* Pushes the table of Lua's own names that a plan may use. */
void push_environment(struct lua_State *L);
/* Makes reading an absent name of the table at the top an error. what: "math", or NULL: a
   variable. */
void forbid_absent(struct lua_State *L, const char *what);
/* Of Lua's message that nil is called: one that says what is, on the stack; else NULL. */
const char *explain_call_of_nothing(struct lua_State *L, const char *message);
/* Pushes the result of tostring for the thing at `at`, an index from the bottom. */
void push_text(struct lua_State *L, int at);
/* Pushes "; did you mean 'x'?" for the nearest name in the list at `list`, or "" if none is
   near. */
void push_suggestion(struct lua_State *L, const char *name, int list);
/* Pushes a list of the table's keys in the order of `pairs`. */
void push_keys(struct lua_State *L, int table);

/* ------------------------------------------------------------------------------------- files.c */

/* Reads a file of at most `most` bytes into the arena, with a zero after it. On failure NULL, and
   why. */
char *read_file(const char *path, size_t most, size_t *length, const char **why);
/* Maps a file into memory, read-only. On failure NULL, and why. */
const char *map_file(const char *path, size_t *length, const char **why);
/* The path of the file that a plan requires by this name; NULL: it is no such name. */
const char *path_of_name(const char *name, size_t length);
/* Whether the file is in the plan's directory or below it, with all links resolved. */
bool is_below_plan(const char *directory, const char *path);

/* -------------------------------------------------------------------------------- json_files.c */

/* Pushes the content of a JSON text: an object as a table by name, a list as a list. path: for
   messages; depth: the deepest nesting. */
struct json_t;
void push_json(struct lua_State *L, const char *path, const struct json_t *json, int depth);

/* ---------------------------------------------------------------------------------- keywords.c */

/* If the last argument is a plain table of names, moves its values to the places of the function's
   parameters. what: the function, in messages; skipped: its first parameters, which have no names
   for callers; rest: the name of the arguments after all parameters, or NULL. An empty table is
   such a table, unless there is a rest: then it may be a list. */
void place_keywords(struct lua_State *L, const char *what, int function, int skipped,
                    const char *rest);
/* The refused parameters of the function: a bit for each, counted from 1. */
unsigned refused_parameters(struct lua_State *L, int function);
/* Fails if one of these is among the arguments with a value that would change something. */
void check_refused_parameters(struct lua_State *L, const char *what, int function, unsigned mask);
/* Whether no function supports the argument of that name. */
bool is_refused_name(const char *name);
/* Pushes the Lua function that the one at `at` wraps: our C functions keep it as their first
   upvalue. */
void push_behind(struct lua_State *L, int at);

/* --------------------------------------------------------------------------------------- lua.c */

/* Ends tpgen if --ranks names ranks that the mesh does not have, or requests more programs than
   tpgen writes at once: before anything is planned. */
void check_ranks(void);
/* Reads the plan up to its declaration: the settings that it declares; else the definitions of -D
   that it reads. */
const struct setting *settings_of_plan(int *n);
/* Prints the reference of the plan language, in the form options.reference. */
void print_reference(void);
/* The plan's text, once it was read. */
const char *plan_source(void);

/* -------------------------------------------------------------------------------- lua_memory.c */

/* Lua's memory: returns a block of at least 1 byte, of `size`, in the place of one with `before`
   bytes or of NULL; NULL if there is no more. Then the old block stays valid. */
void *pool_move(void *block, size_t before, size_t size);
void pool_free(void *block, size_t size);

/* ----------------------------------------------------------------------------------- modules.c */

/* The module that is the argument `at`. */
struct made *argument_module(struct lua_State *L, int at);
/* Pushes the module's table. */
void push_module(struct lua_State *L, const struct made *m);
/* From here on the members of modules must be looked up again. */
void look_anew(void);
/* Records the module's members, unless they are known. A module or tensor under a key that is no
   name has no name: that is the plan's error. */
void look(struct lua_State *L, struct made *m);
void refuse_bad_keys(struct lua_State *L, const struct made *m, bool of_modules);

/* ---------------------------------------------------------------------------------- patterns.c */

/* The part of a name that matches a star. */
struct starred {
  const char *at;
  size_t n;
};
enum { MOST_STARS = 16 };
/* Whether the name matches the pattern. On request also the matches of the first MOST_STARS stars,
   and their number. */
bool fits_pattern(const char *name, const char *pattern, struct starred *part, int *n);
bool is_pattern(const char *text);

/* ---------------------------------------------------------------------------------- position.c */

/* From now on errors name a node of an exported program: its operator, and Python's stack or NULL.
   Lua must keep both. NULL, NULL: none. */
void set_node(const char *target, const char *stack);
/* "batch_norm (model.py:7)": its operator, and Python's line if it is known; or NULL. */
const char *node_words(void);
/* The plan's error, at its current line. */
_Noreturn void plan_fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The file of a function, by Lua's name of its source: 0 for the plan, the number of a required
   file, or NONE. */
int required_number(const char *source);
/* Creates the stack of frames. Must be called before a plan runs. */
void open_frames(void);
/* Calls the function below its arguments, one of ours that calls none of the plan's, without line
   hooks: all of it happens at the plan's line that called it. Leaves its results. */
void call_unwatched(struct lua_State *L, int arguments);
void follow_lines(struct lua_State *L, bool follow);

/* ----------------------------------------------------------------------------------- sandbox.c */

extern struct sandbox *sandbox;
/* Runs body in a child process that can reach nothing; all children together have two seconds.
   Returns only if it ended well, or needs a file; else reports the plan's error. */
void in_sandbox(void (*body)(void));

/* ---------------------------------------------------------------------------------- settings.c */

/* Pushes the value of a definition of the command line. */
void push_definition(struct lua_State *L, const struct definition *d);
/* The names at this index of the stack, as settings that are not declared. */
void add_read_settings(struct lua_State *L, int names);

/* ------------------------------------------------------------------------------------- steps.c */

/* The scan that is recorded. Scans are not nested. */
extern struct recorded_scan {
  int module; /* or NONE */
  int step;   /* the module of the step that is recorded, or NONE */
  int call;   /* the call around the scan, or NONE */
  int first;  /* where in the order it begins */
} scan;
/* The module of the operations of a call; the module as this call of a step sees it;
   the module of that name directly below another one, or NONE. */
int module_of_call(int call);
int module_within(int module, int call);
int child_named(const char *name, int parent);
/* Whether a step of a scan is recorded, and the call around the scan. */
bool in_step(int *call_around);
/* Moves the operation that was appended last to before the scan. */
void put_before_scan(void);

/* --------------------------------------------------------------------------- extra_arguments.c */

int most_arguments(struct lua_State *L, int at);
/* Fails if the arguments from `first` to the top are more than the function has parameters after
   the first `skipped`. what: the function, in messages. */
void forbid_surplus(struct lua_State *L, const char *what, int function, int skipped, int first);

/* --------------------------------------------------------------------------------- step_mean.c */

/* step_mean(tensor, batches): its mean over the batches of a step. */
int step_mean(struct lua_State *L);

/* --------------------------------------------------------------------------- requested_files.c */

/* If the sandbox has requested a file, reads it, so that the plan can start again; false if there
   is no request. A file that the plan may not see is the plan's error. */
bool read_requested_file(void);
/* What gives the path of this machine's device.json. */
void set_reader_of_machine(const char *(*path)(void));
/* Before the plan runs: reads the files that its text requires. */
void open_requested_files(const char *plan);
uint64_t hash_files(uint64_t hash);
/* The number of files that the plan has read, and one of them. */
struct requested_file {
  enum file_reader by;
  const char *path, *text;
  size_t length;
  bool is_defined; /* a value of -D is its path */
  bool is_machine; /* this machine's device.json, which has the name of THIS_MACHINE */
};
int requested_files(void);
struct requested_file requested_file(int i);
/* In the sandbox: the file's text. Ends the process, with a request, if it is not read yet. */
const char *requested_text(enum file_reader by, const char *path, size_t *length);

#endif
