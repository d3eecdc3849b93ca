/* lua.h: the front end: the plan runs in its sandbox and leaves the global graph. */
#ifndef TPGEN_LUA_H
#define TPGEN_LUA_H

#include "base/base.h"
#include "ir/ir.h"
#include "sharding/sharding.h"

/* What the process that reads the plan leaves for its parent, whatever becomes of it. */
struct sandbox {
  volatile int line; /* of the plan, where it is at work; 0: nowhere */
  char wanted[1024]; /* the path of a file without which it could not go on, or "": see json_files.c
                      */
  size_t printed;
  char print[1 << 16];
};

struct lua_State;

/* How many arguments the function at `at` takes; or ANY_NUMBER. */
enum { ANY_NUMBER = -1 };

/* What Lua holds of a tensor. */
struct tensor {
  int value; /* NONE: a parameter that is not part of a model yet */
  struct shape shape;
  struct init init;
  int line;
};
/* Whether train or infer runs the model now, and in which call of a module, or NONE. */
extern struct recording {
  bool on;
  int call;
} recording;

/* The least and the largest number that an element of the value may be, as far as the plan
   tells: INT64_MIN and INT64_MAX where it doesn't. declared_range: of an input, by randint or
   tokens. */
struct range {
  int64_t low, high;
  bool taken; /* some elements may well be either: no condition of the plan's keeps them from it */
  bool alike; /* that holds for every element */
};

/* What is known of calls like that of the function of this number with the arguments on
   the stack; NULL: nothing, and nothing can be. Either it is noted already: then `replay` appends
   what the first one did and pushes what it gave, and says how many. Or it is to be noted when it
   has run, what it gave on the stack, its operations from first_op on; unless it must not be. */
struct noted_call;

struct made {
  int number, line;
  const char *class_name;
  int index;          /* in the graph, or NONE */
  int taken;          /* by which call of fully_shard or replicate, from 1; 0: by none */
  struct made *queue; /* behind it, where modules stand in line to be looked at */
  unsigned looked;    /* at which look its members were noted: they are as they were only while
                         nothing of the plan's runs */
  int n, room;        /* its members, in the order in which they were given */
  struct held *held;
  bool unnamed, numbered, named; /* some of their keys are no names; are numbers; are texts */
};

/* What a module holds: another one, or a tensor. Lua's is the name, or the arena's. */
struct held {
  const char *name;
  size_t length;
  struct made *module; /* or NULL */
  struct tensor *tensor;
};

/* Where the functions that are given the tables of modules.c find them: their upvalues. */
#define KINDS    lua_upvalueindex(1)
#define KEYS_OF  lua_upvalueindex(2)
#define SEEN_OF  lua_upvalueindex(3)
#define MADE     lua_upvalueindex(4)
#define MODULES  lua_upvalueindex(5)
#define CLASS_OF lua_upvalueindex(6)
enum { TABLES = 6 };

/* What Lua calls the plan in its messages, which begin "name:line: "; OWN_NAME: our own files. */
#define PLAN_NAME "(plan)"

/* As Lua holds it: whether the plan told the turn, too. */
struct placed_at {
  struct placement placement;
  bool turned;
};

enum { MAX_OPS = 1 << 15, MAX_CUSTOM = 256 };

/* ------------------------------------------------------------------------------------ append.c */

struct tensor *push_tensor(struct lua_State *L, int value);
/* What lies there as a tensor, or NULL. */
struct tensor *tensor_at(struct lua_State *L, int at);
/* The tensor that is the argument `at`; its value, which it must have already. */
struct tensor *argument_tensor(struct lua_State *L, int at);
int argument_value(struct lua_State *L, int at);
int tensor_value(const struct tensor *t);
/* The argument's value in the type that the model computes with: a parameter may be kept in
 * another. */
int argument_operand(struct lua_State *L, int at);
int operand_of(int value);
/* The function of the plan that runs now does more than its arguments' shapes and types say: a call
   like it is not replayed. */
void call_is_unlike(void);
/* The cast that operand_of has made of the parameter for the module that runs now, or NONE. */
int known_cast(int value);
/* A list of sizes; `what` takes it. */
struct shape argument_shape(struct lua_State *L, int at, const char *what);
/* A type's name, such as "int32". */
enum type argument_type(struct lua_State *L, int at);
/* Adds an operation where the plan is at work; gives its value. */
int append_here(struct op op);
/* Adds one like the operation `number`, there, which takes these values; gives the first that it
   makes. */
int append_again(int number, const int *in);
/* The function that the plan has called, for messages: "softmax", "+"; NULL: none. In the arena. */
extern const char *called_function;
extern const char *const type_names[];
/* The metatable of tensors: in the registry under this address, and where it lies. */
extern const void *metatable;
bool is_cast_for_use(int value);
/* The size at the top of the stack; else it is the plan's error. `what` is what has that size. */
int64_t check_tensor_size(struct lua_State *L, const char *what);
void check_elements(const char *what, struct shape s);
/* The name of the function that the plan has called, or `otherwise`. */
const char *called_or(const char *otherwise);
/* The function that runs now does not do the same for equal arguments. */
extern bool is_unlike;
/* The operation with the plan's line and module. */
struct op op_here(struct op op);

/* --------------------------------------------------------------------------------- arguments.c */

/* A name that is not too long; `what` says whose it is. bindings.c. */
const char *check_name(struct lua_State *L, int at, const char *what);
void check_name_text(const char *name, size_t length, const char *what);
struct placement placement_at(struct lua_State *L, int at);
struct placed_at *check_placement(struct lua_State *L, int at);
extern const char *const reduction_names[];
/* As the plan has it. */
int placement_name(struct lua_State *L);

/* ---------------------------------------------------------------------------------- bindings.c */

/* Adds the mesh, placement and parameter functions to the table at the top of the stack. */
void set_plan_bindings(struct lua_State *L);
/* Of a module, whose styles so far do not place the same: else it is the plan's error. */
void place_by_style(struct style s);

/* -------------------------------------------------------------------------------- call_cache.c */

struct noted_call *noted_call(struct lua_State *L, int function);
bool is_noted(const struct noted_call *call);
int replay(struct lua_State *L, const struct noted_call *call);
void note_call(struct lua_State *L, struct noted_call *call, int first_op);
void never_note(struct noted_call *call);

/* ------------------------------------------------------------------------------- environment.c */

/* Pushes the table of all that a plan may name, as far as it is Lua's own. */
void push_environment(struct lua_State *L);
/* Makes reading an absent name of the table at the top an error. what: "math", or NULL: a
   variable. */
void forbid_absent(struct lua_State *L, const char *what);
/* Pushes what tostring gives of the thing at `at`, an index from the bottom. */
void push_text(struct lua_State *L, int at);
/* Pushes "; did you mean 'x'?" for the text in the list at `list` that is nearest to the name, or
   nothing in particular: "". */
void push_suggestion(struct lua_State *L, const char *name, int list);
/* Pushes a list of the table's keys in the order of `pairs`. */
void push_keys(struct lua_State *L, int table);
/* Adds the name functions to the table at the top of the stack. */
void set_name_bindings(struct lua_State *L);

/* ------------------------------------------------------------------------------------- files.c */

/* Reads a file of at most `most` bytes into the arena, with a zero behind it. NULL, and why,
   where that cannot be. */
char *read_file(const char *path, size_t most, size_t *length, const char **why);
/* Whether the file lies in the plan's directory or below it, whatever links lead there. */
bool is_below_plan(const char *directory, const char *path);

/* -------------------------------------------------------------------------------- json_files.c */

/* Where the sandbox has left its request for a file, reads it, so that the plan can be read
   anew; false where there is no request. A file that the plan may not see is the plan's error. */
bool read_wanted_file(void);
uint64_t hash_files(uint64_t hash);
/* Adds the file functions to the table at the top of the stack. */
void set_file_bindings(struct lua_State *L);

/* ---------------------------------------------------------------------------------- keywords.c */

/* Where the last argument is a plain table of names, puts its values where the function's
   parameters of these names are. what: the function, in messages; skipped: its first parameters,
   which have no names for callers; rest: what its arguments behind all parameters are called, or
   NULL. An empty table is such a table, unless there is a rest: then it may be a list. */
void place_keywords(struct lua_State *L, const char *what, int function, int skipped,
                    const char *rest);
/* Which parameters of the function are refused, a bit for each, counted from 1. */
unsigned refused_parameters(struct lua_State *L, int function);
/* Fails where one of these is among the arguments, with a value that would change something. */
void check_refused_parameters(struct lua_State *L, const char *what, int function, unsigned mask);
/* Pushes the function of Lua's behind the one at `at`: ours of C keep it as their first upvalue. */
void push_behind(struct lua_State *L, int at);
/* Adds the function that names refused arguments to the table at the top of the stack. */
void set_keyword_bindings(struct lua_State *L);

/* --------------------------------------------------------------------------------------- lua.c */

/* The plan, evaluated in its sandbox: leaves the global graph, its modules, calls and styles. */
void lua(void);
/* Ends tpgen where --ranks names ranks that the mesh has not, or where more programs are to be
   written than it writes at once: before anything is planned. */
void check_ranks(void);

/* -------------------------------------------------------------------------------- lua_memory.c */

/* Memory that Lua asks for: a block that had `before` bytes, or NULL, as one of `size`, at
   least 1; NULL where there is no more. The same block stays good then. */
void *pool_move(void *block, size_t before, size_t size);
void pool_free(void *block, size_t size);

/* ------------------------------------------------------------------------------------- model.c */

/* Adds the module functions to the table at the top of the stack. */
void set_model_bindings(struct lua_State *L);

/* ----------------------------------------------------------------------------------- modules.c */

/* The module that is the argument `at`. */
struct made *argument_module(struct lua_State *L, int at);
/* Pushes it. */
void push_module(struct lua_State *L, const struct made *m);
/* From here on what modules hold is to be looked at anew. */
void look_anew(void);
/* Notes what it holds, unless that is known. What lies under a key that is no name has none: that
   it is a module, or a tensor, is the plan's error. */
void look(struct lua_State *L, struct made *m);
void refuse_bad_keys(struct lua_State *L, const struct made *m, bool of_modules);
/* Adds this file's functions to the table at the top, and pushes the TABLES tables that they, and
   those of model.c, have as upvalues. */
void set_module_bindings(struct lua_State *L);

/* ---------------------------------------------------------------------------------- patterns.c */

/* What stands in a name where a pattern has a star. */
struct starred {
  const char *at;
  size_t n;
};
enum { MOST_STARS = 16 };
/* Whether the name fits the pattern; what its stars stand for, if asked: the first MOST_STARS, and
   how many. */
bool fits_pattern(const char *name, const char *pattern, struct starred *part, int *n);
bool is_pattern(const char *text);

/* ---------------------------------------------------------------------------------- position.c */

/* The plan's error, at the line where the plan is at work. */
_Noreturn void plan_fails(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Opens the stack of frames. To be called before a plan runs. */
void open_frames(void);
/* Calls the function below its arguments, one of ours that calls none of the plan's, at full speed:
   what happens in it happens at the plan's line that called it. Leaves what it gives. */
void call_unwatched(struct lua_State *L, int arguments);
void follow_lines(struct lua_State *L, bool follow);

/* ----------------------------------------------------------------------------------- sandbox.c */

extern struct sandbox *sandbox;
/* Runs body in a child process that can reach nothing; all such together last two seconds. Comes
   back only where it ended well, or wants a file; else tells the plan's error. */
void in_sandbox(void (*body)(void));

/* ----------------------------------------------------------------------------------- surplus.c */

/* Adds the functions that refuse surplus arguments to the table at the top of the stack. */
void set_surplus_bindings(struct lua_State *L);
int most_arguments(struct lua_State *L, int at);
/* Fails where the arguments from `first` to the top are more than the function takes behind its
   first parameters, `skipped`. what: the function, in messages. */
void forbid_surplus(struct lua_State *L, const char *what, int function, int skipped, int first);

/* ------------------------------------------------------------------------------------ tensor.c */

/* Adds the tensor functions to the table at the top of the stack. */
void set_tensor_bindings(struct lua_State *L);

/* ---------------------------------------------------------------------------------- training.c */

/* Adds the training functions to the table at the top of the stack. */
void set_training_bindings(struct lua_State *L);

/* ------------------------------------------------------------------------------- value_range.c */

/* Adds the functions that concern ranges of values to the table at the top. */
void set_range_bindings(struct lua_State *L);

#endif
