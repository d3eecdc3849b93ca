// SPDX-License-Identifier: MIT
// What the files of Jinja share: memory, values, and the tree of a template.
#ifndef TEXT_JINJA_TREE_H
#define TEXT_JINJA_TREE_H

#include <setjmp.h>
#include "text/chat/jinja.h"

// Memory that is freed as a whole. An error jumps to `out`.
struct work {
  struct chunk {
    struct chunk *before;
    size_t used, size;
  } * chunk;
  size_t bytes;
  long steps;
  int depth, line;          // of what runs
  const char *date;         // what strftime_now gives; NULL: of this day
  const struct out *whole;  // the text that is made
  struct spans *generation; // where it has blocks of generation; or NULL
  jmp_buf out;
  struct failure *why;
};

void *work_alloc(struct work *w, size_t size);
void work_free(struct work *w);
char *work_copy(struct work *w, const char *text, size_t count);
_Noreturn void work_fails(struct work *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Counts a step; ends what takes too many.
void work_step(struct work *w);

// ---- values ------------------------------------------------------------------------------------

enum value_kind { UNDEFINED, NONE_VALUE, FLAG, WHOLE, REAL, TEXT, LIST, MAP, FUNCTION };

struct value;
typedef struct value *call_function(struct work *w, struct value *self, struct value **at, size_t n,
                                    struct value *named);
struct value {
  enum value_kind kind;
  bool is_tuple, is_namespace;
  bool is_object;   // MAP: a loop, a cycler: it has these members and is no dict
  bool is_lazy;     // LIST: an iterator; what goes through it takes its elements
  bool is_group;    // LIST: of groupby: a tuple with the members grouper and list
  bool is_safe;     // TEXT: of safe or escape: what is joined to it is escaped
  const char *view; // LIST: of a map's members, or a range; what Python calls it
  const char *name; // UNDEFINED, FUNCTION: what it is called
  bool flag;
  long long whole;
  double real;
  const char *text;
  size_t count, room; // TEXT: bytes; LIST, MAP: members
  struct value **at;  // LIST; MAP: the values
  struct value **key; // MAP
  call_function *call;
  struct value *self; // FUNCTION: of a method: its object; count: most arguments; text: their names
  const struct node *macro;
  struct scope *scope; // of a macro
};

struct value *value_of(struct work *w, enum value_kind kind);
struct value *undefined_value(struct work *w, const char *name);
struct value *flag_value(struct work *w, bool flag);
struct value *whole_value(struct work *w, long long n);
struct value *real_value(struct work *w, double x);
struct value *text_value(struct work *w, const char *text, size_t count);
struct value *list_value(struct work *w);
// self: of a method, its object; or NULL.
struct value *function_value(struct work *w, const char *name, call_function *call,
                             struct value *self);
void list_add(struct work *w, struct value *list, struct value *v);
struct value *map_value(struct work *w);
void map_set(struct work *w, struct value *map, struct value *key, struct value *v);
struct value *map_get(const struct value *map, const char *key); // NULL: none
struct value *value_of_json(struct work *w, const json_t *json);
bool is_true(const struct value *v);
bool is_dict(const struct value *v);
bool are_equal(const struct value *a, const struct value *b);
// Less than 0, 0, more; an error where the two have no order.
int compare_values(struct work *w, const struct value *a, const struct value *b);
bool is_number(const struct value *v);
double number_of_value(const struct value *v);

// Text that grows, in the work's memory.
struct out {
  char *at;
  size_t count, room;
};
void out_add(struct work *w, struct out *o, const char *text, size_t count);
void out_text(struct work *w, struct out *o, const char *text);
struct json_form {
  int indent; // -1: on one line
  const char *comma, *colon;
  bool is_sorted, is_ascii;
};
// As str() of Python; as repr(); as json.dumps().
void out_str(struct work *w, struct out *o, const struct value *v);
void out_repr(struct work *w, struct out *o, const struct value *v);
void out_json(struct work *w, struct out *o, const struct value *v, const struct json_form *form,
              int level);
struct value *str_of(struct work *w, const struct value *v);
// The text with & < > ' " as HTML has them.
struct value *escaped(struct work *w, const struct value *v);
// Adds a text with as many signs around it as it lacks to `width` characters: before it, behind it,
// or on both sides, as str.center() has them, or as a format.
enum place { AT_LEFT, AT_RIGHT, IN_MIDDLE, IN_FORMAT };
void out_padded(struct work *w, struct out *o, const struct value *text, long long width,
                const char *sign, enum place place);
size_t characters_of(const struct value *text);
// As text % values, and text.format(...).
struct value *percent_format(struct work *w, const struct value *text, struct value *with);
struct value *brace_format(struct work *w, const struct value *text, struct value **at, size_t n,
                           struct value *named);

// ---- filters, tests, methods -------------------------------------------------------------------

struct value *apply_filter(struct work *w, const char *name, struct value *v, struct value **at,
                           size_t n, struct value *named);
bool apply_test(struct work *w, const char *name, struct value *v, struct value **at, size_t n);
bool contains(struct work *w, struct value *in, struct value *v);
bool is_among_words(const char *words, const char *word); // with blanks between them
// v.name: a method, before a map's key of that name, as in Python; NULL: none.
struct value *member_of_value(struct work *w, struct value *v, const char *name);
struct value *item_of(struct work *w, struct value *v, struct value *key);
struct value *sequence_of(struct work *w, struct value *v); // what `for` goes through
struct value *global_named(struct work *w, const char *name);
// Goes through a recursive loop's body again, one deeper.
struct value *loop_again(struct work *w, struct value *loop, struct value *list);
struct value *call_value(struct work *w, struct value *f, struct value **at, size_t n,
                         struct value *named);

// ---- the tree ----------------------------------------------------------------------------------

enum node_kind {
  N_TEXT,
  N_PRINT,
  N_IF,
  N_FOR,
  N_SET,
  N_SET_BLOCK,
  N_MACRO,
  N_BODY,
  N_GENERATION,
  N_CALL_BLOCK,
  N_WITH,
  N_BLOCK,
  N_FILTER_BLOCK,
  N_BREAK,
  N_CONTINUE, // statements
  N_CONSTANT,
  N_NAME,
  N_LIST,
  N_TUPLE,
  N_MAP,
  N_MEMBER,
  N_ITEM,
  N_SLICE,
  N_CALL,
  N_FILTER,
  N_TEST,
  N_NOT,
  N_AND,
  N_OR,
  N_NEGATIVE,
  N_BINARY,
  N_COMPARE,
  N_CHOICE,
  N_SPREAD, // *list, **map
  N_PAIR    // expressions
};

struct node {
  enum node_kind kind;
  int line;
  const char *name;    // of a variable, member, filter, test, macro, operator
  struct value *value; // N_CONSTANT
  struct node *a, *b, *c;
  struct node **list; // bodies, elements, arguments, targets
  size_t n, room;
  struct node **named; // N_PAIR: named arguments, defaults
  size_t nnamed, named_room;
  bool flag; // N_TEST: is not; N_FOR: recursive; N_BLOCK: scoped; N_SPREAD: a map
  bool uses_caller, uses_varargs, uses_kwargs; // N_MACRO
};

struct jinja {
  struct work work; // of the tree
  struct node *body;
};

struct node *jinja_parse(struct work *w, const char *text);

#endif
