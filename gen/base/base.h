/* base.h: what knows no graph: memory, texts, errors, files, the command line's options. */
#ifndef TPGEN_BASE_H
#define TPGEN_BASE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#define TPGEN_VERSION "0.1.0"

enum {
  NONE = -1,
  MAX_DIMS = 8,
  MAX_MESH = 6,
  MAX_INPUTS = 8,
  MAX_OUTPUTS = 3,
  MAX_NUMBERS = 8,
  MAX_LETTERS = 32,
  MAX_CAPS = 16
};

/* A table there, of TABLE_ROOM elements of this size, of which *n are written. */
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

/* Breaks a line of more than 100 columns after separators; the rest is led in by `lead`. A blank at
   which it must not break is KEPT_BLANK in `line`, and a blank again in what comes back. */
enum { KEPT_BLANK = 1 };

/* 64-bit FNV-1a, on from `hash`; begin with HASH_START. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

struct definition {
  const char *name, *value;
};
struct options {
  const char *plan, *out;
  bool check, trace;
  const char *dump;    /* a pass, or NULL */
  const char *from;    /* a pass: the plan is what `dump` printed after it; or NULL */
  const char *explain; /* a value, or NULL */
  int first_rank, last_rank;
  int ndefinition;
  struct definition *definition;
  const char *move; /* a tensor and two layouts: see move_query.c; or NULL */
  const char *planner;
  bool json;
  int nlink;
  const char **link; /* "dp=25e9,10e-6" */
};

/* Of whose functions collectives are calls. */
enum library { LIBRARY_MPI, LIBRARY_NCCL, LIBRARIES };

/* What a kernel's file is written in; a plan may have one of each for its own operator. */
enum language { LANGUAGE_C, LANGUAGE_CUDA, LANGUAGES };

/* What a target is and can do: a row of targets.c. Passes ask for a fact by its name, never which
   target it is. */
enum target_number { TARGET_CPU, TARGET_CUDA, TARGETS };
struct target {
  const char *name;            /* of --target; its build's template is CMakeLists.NAME.txt */
  const char *runtime;         /* what its own files in runtime/ begin with */
  const char *source, *header; /* what the names of its templates end in: "cu", "cuh" */
  const char *device;          /* of a plan that names none; NULL: flat figures (device.c) */
  enum language language;
  enum library library;
  int64_t most_counted;    /* elements of one collective */
  bool streams;            /* a collective can run beside arithmetic, on its group's stream */
  bool moves_segments;     /* a collective can take each value of a bucket to its place */
  bool steps_in_memory;    /* what changes from step to step, its number and its batches, the host
                              puts into memory before: else the step takes its number */
  bool thread_grids;       /* a kernel is a grid of threads, which share rows and add up sums in
                              parts; else it is loops */
  bool tensor_cores;       /* attention may run on them */
  int widest_vector;       /* elements that a thread reads at once */
  int most_shared;         /* bytes of a block's shared memory */
  int member_alignment;    /* of a member of struct memory, in bytes; 0: its type's */
  bool epilogues;          /* a product does what follows it: epilogue.c */
  bool product_table;      /* the runtime is told of products ahead, in a table: gemm_table.c */
  int64_t most_workspace;  /* bytes that a product makes use of besides its operands */
  const char *libraries;   /* that take memory for themselves; NULL: none do */
  int64_t library_reserve; /* how many bytes */
};

/* The cheapest way to part nodes, which count from 0, in a near and a far side. */
struct cut;

struct embedded {
  const char *name;
  const unsigned char *text;
  size_t size;
};

/* The Lua side of the front end as functions of Lua's, and what its lua_ident is that made them:
   compile.c. */
#define OWN_NAME "(tpgen)" /* in messages */

struct file {
  const char *name, *contents;
  size_t size;
  bool executable;
};

/* A file that is to be another one, or that goes. */
struct change {
  const char *name;
  const struct file *to; /* NULL: it goes */
  bool is_there;         /* something has the name now */
};

/* The folder's own list of the files that tpgen wrote: as it is, NULL where there is none; while
   files of two programs may lie there; and in the end. */
#define FILE_LIST "files.txt"
struct lists {
  const struct file *before, *meanwhile, *then;
};

/* ------------------------------------------------------------------------------------- arena.c */

/* Reserves the arena, shared with the processes forked later, and room for tables behind it, of so
   many bytes together. */
void arena_open(size_t tables);
void *arena_table(size_t size, const int *n);
/* What is written in the arena from here on is this process's alone: quicker, in fewer pages. */
void arena_own(void);
/* Gives up what arena_prepare made ready: it would count against what a process may have. */
void arena_not_own(void);
/* Makes some of the pages ready that this will take, until is_over() says that it is time: while
   another process reads a long plan. */
void arena_prepare(bool (*is_over)(void));
/* Zeroed memory; ends tpgen with a message when there is no more. Never NULL, never freed. */
void *alloc(size_t size);
/* The bytes of it that are taken, and all there are. */
size_t arena_used(void);
size_t arena_room(void);
/* Where it ends: what is written there is part of it once that is allocated. */
char *arena_end(void);
/* Makes the last block longer, where it is the last; else false. */
bool arena_widen(void *last, size_t size, size_t to);
/* sum + n * each, of what is not negative; INT64_MAX where that is less. */
int64_t plus_times(int64_t sum, int64_t n, int64_t each);
void *grow(void *array, int n, int *room, size_t size);
/* Puts a number at the list's end; or only where the list has it not. */
void add(struct list *list, int number);
void add_once(struct list *list, int number);

/* ---------------------------------------------------------------------------------- embedded.c */

extern const struct embedded embedded[];
extern const struct embedded compiled[];
extern const char compiled_by[];
const char *embedded_text(const char *name);

/* ------------------------------------------------------------------------------------- error.c */

/* The plan's author is told `path:line: error: ...` and tpgen ends with status 1. Where the plan is
   being read, the message goes to the parent, which prints it. line <= 0: no line. */
_Noreturn void plan_error(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `tpgen: error: ...` and this status: 2 wrong usage, 3 a file. */
_Noreturn void usage_error(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* tpgen itself is wrong: names the pass, and aborts. */
_Noreturn void bug(const char *pass, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The graph was read from this file, by operation from this line: what is wrong with it is the
   file's error, not tpgen's. And the operation that the next bug is found at. */
void bugs_are_of(const char *path, const int *line, int n);
void bug_is_at(int op);
/* A line on standard error, of printable ASCII: other bytes, which a plan's path or a name may have
   and which a terminal may obey, are shown as \x1b. All messages go through it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ends tpgen, which has said why: after the function that on_failure was given. */
_Noreturn void fail_with(int status);
_Noreturn void fail_by_abort(void);
void on_failure(void (*f)(void));
/* Ends tpgen with status 0 if all that it printed could be printed. */
_Noreturn void end_printing(void);
/* Makes room for what a process that is forked later may have to say. */
void open_messages(void);
/* The path of the plan, that plan_error begins with. */
void errors_are_of(const char *path);
/* From here on, in this process, plan_error leaves its message for the parent. */
void child_mode(void);
/* In the parent: if the child left a message, prints it and ends tpgen with status 1. */
void report_child_error(void);

/* ------------------------------------------------------------------------------- identifiers.c */

/* Any bytes as a C identifier that is no keyword and no macro. */
char *identifier(const char *s);
/* "cosine" for "cos": another word for what C's library calls so; other names as they are. */
const char *spared_name(const char *name);
bool is_word_of(const char *const *list, const char *s);

/* --------------------------------------------------------------------------------- json_text.c */

/* Takes a member into an object, and a value into a list. */
void json_member(json_t *object, const char *name, json_t *value);
void json_append(json_t *list, json_t *value);
/* The whole as a text, in the arena; read again, the text gives the same. flags: as json_dumps. */
char *json_text(const json_t *whole, size_t flags);

/* ---------------------------------------------------------------------------------- literals.c */

/* The shortest text that reads back as the number, as a double and as a float: "0.1f". */
char *double_text(double x);
char *number_text(double x);
/* A factor in the same way; "(1.0 / 96)" and "(1.0f / 96)" where that is shorter, and the same
   number to the bit. */
char *double_factor(double x);
char *float_factor(double x);
/* The whole number, where x is one over it and takes more than three digits; or 0. */
int one_over(double x);
/* An expression as a factor: in brackets where it has a sign outside of any. */
char *in_brackets(const char *s);
/* How tightly what is outside of brackets holds together: 3 where there is no sign, 2 of factors, 1
   of terms, 0 of anything else. */
int binding(const char *s);

/* ----------------------------------------------------------------------------------- min_cut.c */

struct cut *new_cut(void);
int add_node(struct cut *c);
/* Paid if `near` is on the near side and `far` is not; if the node is on the near side, or with a
   price below 0 if it is not. */
void add_price(struct cut *c, int near, int far, int64_t price);
void add_own_price(struct cut *c, int node, int64_t price);
/* By node, whether it is on the near side: of the cheapest ways the one with the fewest there. */
bool *near_side(struct cut *c);

/* ----------------------------------------------------------------------------------- options.c */

extern struct options options;

/* ------------------------------------------------------------------------------ output_files.c */

/* Collects the files of out/; nothing is on disk before write_files, and then all or none. */
void add_file(const char *name, const char *contents, size_t size, bool executable);
void write_files(const char *plan, const char *hash);

/* ------------------------------------------------------------------------------- output_swap.c */

/* Opens options.out; makes, where `make` says so, what of it is not there, and keeps every other
   tpgen out of it. False where there is none. Other errors end tpgen. */
bool open_output(bool make);
/* The file of that name: what it is, without following a link; false where there is none. */
bool look_at_output(const char *name, struct stat *about);
/* Opens it for reading; -1 and errno where that cannot be. Never waits for a FIFO's other end. */
int open_in_output(const char *name);
/* Whether a tpgen that was killed has left something. */
bool is_half_done(void);
/* Makes all changes or, where one fails, none, and ends tpgen. */
void put_in_place(const struct change *change, int n, const struct lists *lists);
/* Where tpgen is to end with an error: takes back what has begun, and says what the folder holds.
 */
void keep_output(void);

/* -------------------------------------------------------------------------------------- text.c */

/* As printf into the arena. */
char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *copy_text(const char *s);
char *grouped(int64_t n); /* 1234567 as "1,234,567" */
void put(struct buffer *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void put_text(struct buffer *b, const char *s, size_t length);
/* Replaces the holes `$name$` of a template: pairs of name and text, then NULL. */
char *fill(const char *template, ...) __attribute__((sentinel));
char *wrapped(const char *line, const char *separator, const char *lead);
/* Where the line behind this one begins, or the text ends. */
const char *next_line(const char *line);
/* Any bytes as printable ASCII that ends no comment and starts no trigraph, escape or macro. */
char *printable(const char *s);
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n);
/* As read, up to the file's end or `size` bytes: gives how many, or -1. */
ssize_t read_up_to(int file, void *to, size_t size);
/* Whether the C text names this variable, outside its comments. */
bool has_word(const char *text, const char *word);
extern const char word_letters[];

/* ---------------------------------------------------------------------------------- targets.c */

extern const struct target targets[TARGETS];
extern const char *const language_name[LANGUAGES];
/* That of the program. */
extern const struct target *target;
/* Whether there is one of this name, which is the program's from here on. */
bool set_target(const char *name);

#endif
