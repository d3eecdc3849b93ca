/* dump.h: the graph as text, and back: --dump and --from. read.c has the grammar. */
#ifndef TPGEN_DUMP_H
#define TPGEN_DUMP_H

#include "util/util.h"
#include "ir/ir.h"
#include "dump/fields.h"

enum {
  MOST_VALUES = 1 << 20,
  MOST_RANKS_READ = 1 << 20,
  MOST_MICROBATCHES_READ = 4096,
  MOST_CARRIED = 8,
  MOST_STAGES_READ = 4096,
  MOST_SLOTS_READ = 65536
};
static const double MOST_FLOPS = 1e40;
/* No offset in the arena is larger: sums of a few offsets do not overflow. */
static const int64_t MOST_ARENA_BYTES = INT64_C(1) << 56;

/* A label of an operation, until all lines are read: below all numbers. */
#define LABEL(n)    (-2 - (n))
#define IS_LABEL(x) ((x) < -2)

/* The number of values so far with a name, and the last of them. */
struct bearer {
  int n, value;
};

struct bearers {
  struct memo names, relatives;
};

/* The state while a dump is written. */
struct writing {
  struct buffer b;
  enum pass after;
  bool *kept, *is_written; /* by value: it is in the dump; its line is written */
  bool *made;              /* by value: the line of an operation states it */
  bool *op_kept;
  bool *has_line; /* by operation */
  int *sibling;   /* by value: that of module 1 in its stack */
  int *label;     /* by operation: at least 1 if another line refers to it */
  struct bearers bearers;
};
extern struct writing d;

/* The state while a graph of a dump is read. */
struct reading {
  enum pass after;
  int head;  /* the graph's first line */
  int place; /* of a pipeline: that of the graph; the graphs above have those before */
  int *value_line, *referring_line; /* by value: line that states it; line that refers to it */
  struct list op_line;              /* by operation */
  const char **stated_name;         /* by value: its name in its line */
  struct concat_slice *concat_slice;
  struct allocation *allocation;
  struct memory_plan arena; /* only its sizes */
  struct bearers bearers;
  struct list labels, label_lines; /* by label the operation; the line that refers to it */
  struct schedule schedule;
  int schedule_room;
  struct work_of_stage *work; /* by operation */
  int nwork, work_room, nstage;
  struct slots *slots; /* by stage */
  int gap;             /* the operation of values that no longer exist */
};
extern struct reading r;

/* ------------------------------------------------------------------------------ named_values.c */

/* The values with a name; those of a stack that are carried, or of another module (step 0). */
struct bearer *bearer_of(struct bearers *known, const char *name);
struct bearer *relative_of(struct bearers *known, int stack, int step, int which);
/* The values with the same name as this one; NULL if it is called by its number. */
struct bearer *bearer_of_value(struct bearers *known, int value);
void note_bearer(struct bearers *known, int value);

/* ---------------------------------------------------------------------------- pipeline_lines.c */

/* Whether operations have stages after the pass, and not functions. */
bool has_work_of_stages(enum pass after);
void put_pipeline_lines(int usual_place);
void put_work_of_stage(int op);
void read_pipeline(void);
void read_stage(void);
void read_stage_edge(void);
void read_edge(void);                      /* a group */
void note_work(struct work_of_stage work); /* of the next operation */
void give_work(const int *at);             /* at: by operation, the number it was noted with */
void check_pipeline(void);                 /* ends tpgen with the file's error */

/* -------------------------------------------------------------------------------- check_read.c */

/* Ends tpgen with the file's error if passes cannot continue from the dump. The arguments have, by
   operation and by value, the line that states it. */
void check_dump(const int *op_line, const int *value_line);

/* -------------------------------------------------------------------------------------- read.c */

/* Opens the text of the file `dump`, of graphs after the pass. */
void open_dump_file(const char *path, const char *dump, enum pass after);
/* Reads the next graph; false: the file has no more. In a pipeline, after the pass `redistribute`,
   each place has a graph; otherwise the file has only one. */
bool read_graph(void);

/* ------------------------------------------------------------------------------- read_fields.c */

#define RECORD(name, type, ROWS) bool read_##name##_field(type *x);
RECORDS(RECORD)
#undef RECORD
/* The next item, or the file's error. */
int read_VALUE(void);
int read_MODULE(void);
int read_MESH_DIM(void);
int read_GROUP(void);
int read_OP(void);
int read_INT(void);
int64_t read_LONG(void);
const char *read_TEXT(void);
enum type read_TYPE(void);
struct shape read_SHAPE(void);
struct placement read_PLACEMENT(void);
struct layout read_LAYOUT(void);
int function_named(const char *name); /* or NONE */
/* Whether the next item is a value's number, and not a name that begins like one. */
bool is_value_number(void);
int take_value_number(void);
void reach_value(int value);

/* --------------------------------------------------------------------------- read_optimizers.c */

void read_optimizer(void);

/* ---------------------------------------------------------------------------------- read_ops.c */

void read_value_line(void);
enum op_kind read_op_kind(void);
void note_scheduled(struct scheduled decided);
/* Up to the closing bracket: appends the operations to the list. */
void read_ops(enum phase phase, struct list *into, struct stages *stages);

/* ------------------------------------------------------------------------------------ tokens.c */

/* Opens the dump to read. Tokens skip blanks within a line, but never its end. */
void open_tokens(const char *path, const char *dump);
_Noreturn void dump_error(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void unexpected(const char *expected);
int token_line(void);
bool tokens_end(void); /* the file's end */
bool at_line_end(void);
void to_next_line(void);
bool take_sign(char sign);        /* the sign, if it is next */
bool take_word(const char *word); /* the word, up to a blank or the line's end, if it is next */
void need_sign(char sign);
int64_t token_number(int64_t least, int64_t most);
uint64_t token_bits(void);
double token_real(void);
bool is_quoted(void);
char *token_name(void);
char *token_text(void);
int take_word_of(const char *const *words, int n); /* or NONE */
/* The rest of the text, for a look ahead, and a return to it. */
const char *token_place(void);
void return_to(const char *place);

/* ----------------------------------------------------------------------------- dump_defaults.c */

/* Records with usual values. maker: NULL if no operation makes the value. */
struct op usual_op(enum op_kind kind, enum phase phase);
struct value usual_value(const struct op *maker, enum type type, enum pass after);
/* Whether the value belongs to a stack and to a module after the first. The operation that makes
   the first module's value makes it too. The value of module 1 is the first one's sibling. */
bool is_other_of_stack(int value);
/* Whether a name from its operation is the usual one, so that the value has none of its own. */
bool takes_usual_name(const struct value *v);
struct module usual_module(const char *path, int index);
struct graph usual_graph(void);

/* ------------------------------------------------------------------------------------- write.c */

/* The text that the dumps of all places of a pipeline have in common. */
const char *text_of_all_places(void);
/* The text of the graph after this pass. */
const char *dump_text(enum pass after);
/* If --dump asks for this pass: prints it, and ends tpgen. */
void dump(enum pass after);

/* ------------------------------------------------------------------------------ write_fields.c */

#define RECORD(name, type, ROWS) void put_##name##_fields(const type *x, const type *usual);
RECORDS(RECORD)
#undef RECORD
void put_quoted(const char *s);
void put_name(const char *s);
void put_value(int value);
void put_module(int module);
void put_placement(struct placement p);
void put_layout(const struct layout *layout);
void put_shape(const struct shape *s);
/* Writes the word and the field, unless it is usual. */
void put_LONG(const char *word, int64_t x, int64_t usual);
void put_REAL(const char *word, double x, double usual);
void put_TEXT(const char *word, const char *x, const char *usual);
void put_VALUE(const char *word, int x, int usual);
void put_GROUP(const char *word, int x, int usual);
void put_MESH_DIM(const char *word, int x, int usual);
void put_SHAPE(const char *word, struct shape x, struct shape usual);

/* ------------------------------------------------------------------------ write_kernel_forms.c */

void put_kernel_forms(void);

/* -------------------------------------------------------------------------- write_optimizers.c */

/* A line for each optimizer. */
void put_optimizers(void);

#endif
