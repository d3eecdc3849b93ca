/* util.h: functions that need no graph: memory, texts, errors, files, the options of the command
   line. */
#ifndef TPGEN_UTIL_H
#define TPGEN_UTIL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "util/expr.h"

#ifndef TPGEN_VERSION
#error "CMakeLists.txt says which version this is"
#endif

enum {
  NONE = -1,
  MAX_DIMS = 8,
  MAX_MESH = 6,
  MAX_INPUTS = 12,
  MAX_OUTPUTS = 3,
  MAX_NUMBERS = 9,
  MAX_LETTERS = 32,
  MAX_CAPS = 16
};

/* A table after the arena: TABLE_ROOM elements of this size; *n are in use. */
enum { TABLE_ROOM = 1 << 16 };

/* Makes room for one more element in an array that grows. */
#define GROW(array, n, room)                                                                       \
  ((n) < (room) ? (void)0 : (void)((array) = grow((array), (n), &(room), sizeof *(array))))

/* A growing list of numbers: operations, mostly. */
struct list {
  int n, room, *at;
};

/* A growing text; buffer.text is always terminated. */
struct buffer {
  char *text;
  size_t length, room;
};

/* Breaks a line of more than 100 columns after separators, and begins the further lines with
   `lead`. A blank in `line` at which it must not break is KEPT_BLANK; the result has a blank
   there. */
enum { KEPT_BLANK = 1 };

/* 64-bit FNV-1a. It continues from `hash`; begin with HASH_START. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

struct definition {
  const char *name, *value;
};
struct options {
  const char *plan, *out;
  bool check, trace;
  bool report;         /* report.html, too */
  const char *metrics; /* a file of --metrics lines for report.html; or NULL */
  bool compare;        /* the folder `plan` with the folder `other` */
  const char *other;
  bool help;                /* the plan is read for its settings only */
  const char *reference;    /* "markdown" or "types": the plan language's, and no plan; or NULL */
  bool check_finite;        /* the results of a step are checked */
  const char *dump;         /* a pass, or NULL */
  const char *from;         /* a pass: the plan is what `dump` printed after it; or NULL */
  const char *explain;      /* a value, or NULL */
  const char *explain_cost; /* a value or a module, or NULL */
  const char *emit;         /* "program" or "library"; NULL: as the plan says */
  const char *library_name;
  int first_rank, last_rank;
  int ndefinition;
  struct definition *definition;
  bool has_parallel; /* train's parallel = auto{...} has these values */
  int nparallel;
  struct definition *parallel;
  const char *move; /* a tensor and two layouts: see move_query.c; or NULL */
  const char *planner;
  bool json;
  const char *schedule; /* the name of a pipeline's schedule or a file with one; or NULL */
  int ranks_pp, stages, microbatches; /* its size; 0: not said */
  bool lowered;
  const char *cluster; /* where the ranks run, in the place of what the plan says; or NULL */
  bool target_given;   /* the command line says --target */
  bool search;         /* the plan's settings that may vary are searched */
  bool is_candidate;   /* of a search */
  bool estimates;      /* only the figures of the program are needed: nothing is checked */
  double search_time;  /* seconds; 0: no limit */
  bool calibrate;      /* write the program that measures a machine, and no plan's */
  int nlink;
  const char **link; /* "dp=25e9,10e-6" */
};

/* The library whose functions perform collectives. */
enum library { LIBRARY_MPI, LIBRARY_NCCL, LIBRARIES };

/* The language of a kernel's file. A plan's own operator may have a file in each. */
enum language { LANGUAGE_C, LANGUAGE_CUDA, LANGUAGES };

/* A target: a row of targets.c. Passes ask for a fact by its name, never which target it is. */
enum target_number { TARGET_CPU, TARGET_CUDA, TARGETS };
struct target {
  const char *name; /* for --target; its build is CMakeLists.NAME.txt in templates/, its part
                       of the runtime in runtime/NAME/ */
  const char *source, *header; /* suffixes of its templates: "cu", "cuh" */
  const char *device;          /* the device if the plan names none; NULL: flat figures: device.c */
  enum language language;
  enum library library;
  int64_t most_counted; /* most elements in one collective */
  bool streams;         /* a collective can overlap with arithmetic, on its group's stream */
  bool edge_groups;     /* sends of pipeline stages have no tag, and wait for their receives:
                           two stages have a group of their own for each direction */
  bool posts_receives;  /* a stage of a pipeline has its receives posted when their places are free;
                           else when it needs their values */
  bool moves_segments;  /* a collective can write each value of a bucket to its place */
  bool steps_in_memory; /* the host writes what changes by step (its number, its batches) into
                           memory; else a step takes its number as an argument */
  bool thread_grids;    /* a kernel is a grid of threads that share rows and add up partial
                           sums; else it is loops */
  bool tensor_cores;    /* attention and products of experts may use them */
  int widest_vector;    /* elements that a thread loads at once */
  int most_shared;      /* bytes of a block's shared memory */
  int member_alignment; /* alignment of a member of struct memory, in bytes; 0: its type's */
  bool float8;          /* it has products of float8: float8.c */
  bool epilogues;       /* a product can have an epilogue: epilogue.c */
  bool product_table;   /* products are listed in a table for the runtime: gemm_table.c */
  int64_t most_workspace;  /* workspace of a product, in bytes */
  const char *libraries;   /* libraries that allocate memory of their own; NULL: none */
  int64_t library_reserve; /* how many bytes they allocate, of a device that is no preset */
};

/* The cheapest way to divide nodes, numbered from 0, into a near and a far side. */
struct cut;

struct embedded {
  const char *name;
  const unsigned char *text;
  size_t size;
};

/* The Lua side of the front end as compiled functions, and the lua_ident of the Lua that
   compiled them: compile.c. */
#define OWN_NAME "(tpgen)" /* in messages */

struct file {
  const char *name, *contents;
  size_t size;
  bool executable;
  uint64_t hash; /* of the contents; 0 in the list of files */
};

/* A file that is to be replaced or removed. */
struct change {
  const char *name;
  const struct file *to; /* NULL: remove it */
  bool is_there;         /* a file of this name exists */
};

/* The folder's list of the files that tpgen wrote (files.txt): the present one, or NULL; the one
   that counts while files of both programs may be there; and the new one. */
#define FILE_LIST "files.txt"
struct lists {
  const struct file *before, *meanwhile, *then;
};

/* ------------------------------------------------------------------------------------- arena.c */

/* Reserves the arena, which processes forked later share, and tables after it of so many bytes
   in all. */
void arena_open(size_t tables);
void *arena_table(size_t size, const int *n);
/* From here on, writes to the arena are private to this process: that is quicker, in fewer
   pages. */
void arena_own(void);
/* Gives up the pages that arena_prepare made ready: they would count against a process's limit. */
void arena_not_own(void);
/* Whether no other process sees what this one writes to it; if not, makes it so if there is memory.
 */
bool arena_is_private(void);
/* Touches pages that the arena will need, until is_over() returns true: done while another
   process reads a long plan. */
void arena_prepare(bool (*is_over)(void));
/* Zeroed memory; ends tpgen with a message when there is no more. Never NULL, never freed. */
void *alloc(size_t size);
/* The arena of a thread that is not the compiler's: before it allocates anything, and at its end,
   when nobody needs anything more of what it has allocated. Once in a thread. */
void arena_of_thread(void);
void end_arena_of_thread(void);
/* The number of bytes of the arena in use, and of all its bytes. */
size_t arena_used(void);
size_t arena_room(void);
/* The end of the arena. The next allocation takes over what is written there. */
char *arena_end(void);
/* Makes a block longer if it is the last one; else returns false. */
bool arena_widen(void *last, size_t size, size_t to);
/* sum + n * each, for numbers that are not negative; at most INT64_MAX. */
int64_t plus_times(int64_t sum, int64_t n, int64_t each);
void *grow(void *array, int n, int *room, size_t size);
/* Whether one of the n numbers is this one. */
bool lists_number(const int *list, int n, int number);
/* Appends a number to the list; add_once only if the list lacks it. */
void add(struct list *list, int number);
void add_once(struct list *list, int number);

/* ------------------------------------------------------------------------------ shared_store.c */

/* Makes room for answers that this process and those forked later share. */
void open_shared_store(void);
/* The answer that one of them gave to the question, a row of numbers: valid until the process ends;
   or NULL. The address is a multiple of 8. */
const void *shared_answer(const int64_t *question, size_t n);
/* Keeps the answer, `size` bytes without addresses, if there is room. */
void share_answer(const int64_t *question, size_t n, const void *answer, size_t size);

/* ---------------------------------------------------------------------------------- embedded.c */

extern const struct embedded embedded[]; /* sorted by name */
extern const int nembedded;
extern const struct embedded compiled[];
extern const char compiled_by[];
const struct embedded *find_embedded(const char *name); /* or NULL */
const char *embedded_text(const char *name);
/* The file of that name in any folder of templates/: no two have one name. */
const char *embedded_template(const char *name);
const char *find_template(const char *name); /* or NULL */

/* ------------------------------------------------------------------------------------- error.c */

/* Prints `path:line: error: ...` and ends tpgen with status 1. In the process that reads the
   plan the message goes to the parent, which prints it. line <= 0: no line. */
_Noreturn void plan_error(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints `tpgen: error: ...` and ends with this status: 2 wrong usage, 3 a file. */
_Noreturn void usage_error(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A mistake of tpgen itself: names the pass, and aborts. */
_Noreturn void bug(const char *pass, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The graph was read from this file, each operation from a line of it: a fault of it is then the
   file's error, not tpgen's. The second sets the operation of the next bug. */
void bugs_are_of(const char *path, const int *line, int n);
void bug_is_at(int op);
/* Prints a line on standard error, in printable ASCII. Other bytes, which a path or a name may
   have and a terminal may obey, are shown as \x1b. All messages go through it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends tpgen after its message. First it calls the function that on_failure was given. */
_Noreturn void fail_with(int status);
_Noreturn void fail_by_abort(void);
void on_failure(void (*f)(void));
/* Ends tpgen, with status 0 if all that it printed could be written. */
_Noreturn void end_printing(void);
/* Makes room for the message of a process that is forked later. */
void open_messages(void);
/* The path of the plan, with which the messages of plan_error begin. */
void errors_are_of(const char *path);
/* From here on, in this process, plan_error leaves its message to the parent. */
void child_mode(void);
/* In the parent: if the child left a message, prints it and ends tpgen with status 1. */
void report_child_error(void);

/* ------------------------------------------------------------------------------- identifiers.c */

/* Any bytes as a C identifier that is neither a keyword nor a macro. */
char *identifier(const char *s);
/* "cosine" for "cos": another word for a function of C's library. Other names stay. */
const char *spared_name(const char *name);
bool is_word_of(const char *const *list, const char *s);

/* Whether a name needs no quotation marks, in a shell, in JSON or in Python. */
bool is_plain_name(const char *name);

/* --------------------------------------------------------------------------------- json_text.c */

/* Puts a member into an object, and a value into a list. */
void json_member(json_t *object, const char *name, json_t *value);
void json_append(json_t *list, json_t *value);
/* The whole as a text in the arena, from which it can be read back. flags: as for json_dumps. */
char *json_text(const json_t *whole, size_t flags);

/* ---------------------------------------------------------------------------------- literals.c */

/* The shortest text that reads back as the number, as a double and as a float: "0.1f". */
char *double_text(double x);
char *number_text(double x);
/* n where x is 1 / n and takes more than three digits; else 0. */
int one_over(double x);

/* ---------------------------------------------------------------------------------- lua_text.c */

/* The text in quotes, in printable ASCII, as a Lua script has it. */
char *lua_string(const char *s);
/* Whether it can be a name in Lua; and as the key of a table: name, or ["other text"]. */
bool is_lua_name(const char *s);
char *lua_key(const char *s);

/* ----------------------------------------------------------------------------------- min_cut.c */

struct cut *new_cut(void);
int add_node(struct cut *c);
/* The price is paid if `near` is on the near side and `far` is not. The second: it is paid if
   the node is on the near side, or, a price below 0, if it is not. */
void add_price(struct cut *c, int near, int far, int64_t price);
void add_own_price(struct cut *c, int node, int64_t price);
/* For each node whether it is on the near side. Of equally cheap ways, the one with the fewest
   nodes there. */
bool *near_side(struct cut *c);

/* ----------------------------------------------------------------------------------- options.c */

extern struct options options;

/* ------------------------------------------------------------------------------ output_files.c */

/* Collects the files of a program. write_files puts all of them on disk, or none. */
void add_file(const char *name, const char *contents, size_t size, bool executable);
/* The number of files, one of them, and the one of that name; NULL: none. */
int added_files(void);
const struct file *added_file(int i);
const struct file *find_file(const char *name);
void write_files(const char *plan, const char *hash);
/* The plan reads this file: write_files neither removes it nor writes over it. */
void note_file_read(const char *path);

/* ------------------------------------------------------------------------------- output_swap.c */

/* Opens options.out and locks it against another tpgen. With `make` it creates missing folders.
   False if the folder does not exist. Other errors end tpgen. */
bool open_output(bool make);
/* Stats the file of that name, without following a link; false if it does not exist. */
bool look_at_output(const char *name, struct stat *about);
/* Opens it for reading; -1 and errno where it cannot. Never waits for the other end of a FIFO. */
int open_in_output(const char *name);
/* Whether a tpgen that was killed left something. */
bool is_half_done(void);
/* Makes all changes. If one fails, it undoes the others and ends tpgen. */
void put_in_place(const struct change *change, int n, const struct lists *lists);
/* Whether options.out is a folder with a program. */
bool output_holds_program(void);
/* Before tpgen ends with an error: undoes the changes begun, and states the folder's contents. */
void keep_output(void);

/* -------------------------------------------------------------------------------- plan_files.c */

/* A plan may require further files, which are numbered from 1. In every line number of the plan,
   line l of file n is n * LINES_OF_FILE + l. The name is relative to the plan's folder;
   add_plan_file returns the file's number. */
enum { LINES_OF_FILE = 10000000, MOST_PLAN_FILES = 32 };
int add_plan_file(const char *name);
int plan_files(void);
void forget_plan_files(void);
/* The name of the required file of the line; NULL: the line is the plan's own. */
const char *required_file(int line);
/* The length of the folder at the beginning of a path, with its slash. */
int folder_length(const char *path);
/* The message, in which "line 20000012" has become "line 12 of lib/x.lua". */
void tell_files(char *to, size_t room, const char *message);

/* -------------------------------------------------------------------------------------- text.c */

/* As printf into the arena. */
char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *copy_text(const char *s);
/* The path of the file of a line, if the plan's own path is `plan`. */
char *file_of_line(const char *plan, int line);
char *grouped(int64_t n); /* 1234567 as "1,234,567" */
void put(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_text(struct buffer *b, const char *s, size_t length);
/* Replaces the holes `$name$` of a template: pairs of name and text, then NULL. */
char *fill(const char *template, ...) __attribute__((sentinel));
char *wrapped(const char *line, const char *separator, const char *lead);
/* Where the next line begins, or the text ends. */
const char *next_line(const char *line);
/* Any bytes as printable ASCII that cannot end a comment or begin a trigraph, escape or macro. */
char *printable(const char *s);
/* The same for a terminal, or for a file of JSON or Lua: quotes and the like stay. */
char *ascii_text(const char *s);
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n);
/* Like read, but until the end of the file or `size` bytes: returns their number, or -1. */
ssize_t read_up_to(int file, void *to, size_t size);
/* Whether the C text uses this variable, outside of comments. */
bool has_word(const char *text, const char *word);
/* The number of letters, digits and underscores at the text's beginning. */
size_t word_length(const char *s);

/* ---------------------------------------------------------------------------------- targets.c */

extern const struct target targets[TARGETS];
extern const char *const language_name[LANGUAGES];
/* The target of the program. */
extern const struct target *target;
/* Selects the target of this name; false if there is none. */
bool set_target(const char *name);

#endif
