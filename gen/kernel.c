/* kernel.c: the text of the kernels. A kernel is a loop over the elements of a rank's part, with
   one statement for each operation, made from the expressions of the table of operators, or a
   template with its sizes filled in. Kernels with the same text are one. */
#include "tpgen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct kernel {
  const char *name, *prototype, *comment, *body;
};

static struct kernel *kernel;
static int nkernel, kernel_room;

const char *const *kernel_names(void)
{
  const char **list = alloc((size_t)(nkernel + 1) * sizeof *list);
  for (int i = 0; i < nkernel; i++) list[i] = kernel[i].name;
  return list;
}

char *kernel_definitions(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernel; i++)
    put(&b, "%s%s%s\n{\n%s}\n", i ? "\n" : "", kernel[i].comment, kernel[i].prototype,
        kernel[i].body);
  return b.text;
}

char *kernel_prototypes(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernel; i++) put(&b, "%s;\n", kernel[i].prototype);
  return b.text;
}

/* Adds a kernel whose prototype holds its name as the hole `$name$`; gives the name it has in the
   end. A kernel of the same prototype and body is used again, whatever its comment says. */
static const char *add_kernel(const char *wanted, const char *prototype, const char *comment,
                              const char *body)
{
  for (int again = 1;; again++) {
    const char *name = again == 1 ? wanted : text("%s_%d", wanted, again);
    char *head = wrapped(fill(prototype, "name", name, NULL), ", ", "    ");
    int i = 0;
    while (i < nkernel && strcmp(kernel[i].name, name)) i++;
    if (i < nkernel && !strcmp(kernel[i].prototype, head) && !strcmp(kernel[i].body, body))
      return name;
    if (i < nkernel) continue;
    GROW(kernel, nkernel, kernel_room);
    kernel[nkernel++] = (struct kernel){name, head, comment, body};
    return name;
  }
}

/* ----------------------------------------------------------------------- the space of elements */

/* The loops of a kernel: neighbouring dimensions that every operand has, or has not, are one. */
struct loops {
  int n;
  int64_t size[MAX_DIMS];
  int first[MAX_DIMS], last[MAX_DIMS]; /* the letters it runs over */
  bool reduced[MAX_DIMS];
  struct shape space; /* local sizes of the letters */
};

static const char loop_variable[] = "ijklpqrs";

/* Which letters an operand has. */
static unsigned letters_in(const signed char *letter)
{
  unsigned set = 0;
  for (int d = 0; d < MAX_DIMS; d++)
    if (letter[d] != NONE) set |= 1u << letter[d];
  return set;
}

static void find_loops(const struct op *op, int rank, struct loops *loops)
{
  const struct op *first = &graph->op[op->body[0]];
  int space = is_reduce(first->kind) ? first->in[0] : first->out;
  *loops = (struct loops){.space = local_shape(space, rank)};
  unsigned reduced = 0;
  bool apart[MAX_DIMS] = {false}; /* letter d may not be joined with letter d - 1 */
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    struct letters l;
    op_letters(inner, &l);
    if (is_reduce(inner->kind)) reduced = inner->dims;
    for (int i = 0; i <= inner->nin; i++) {
      unsigned set = letters_in(i < inner->nin ? l.in[i] : l.out);
      for (int d = 1; d < loops->space.ndim; d++)
        apart[d] |= (set >> d & 1) != (set >> (d - 1) & 1);
    }
  }
  for (int d = 0; d < loops->space.ndim; d++) {
    if (loops->space.size[d] == 1) {
      if (d + 1 < loops->space.ndim) apart[d + 1] = true;
      continue;
    }
    int n = loops->n;
    bool joins = n && !apart[d] && loops->last[n - 1] == d - 1 &&
                 loops->reduced[n - 1] == (reduced >> d & 1);
    if (!joins) {
      loops->size[n] = 1;
      loops->first[n] = d;
      loops->reduced[n] = reduced >> d & 1;
      n = ++loops->n;
    }
    loops->last[n - 1] = d;
    loops->size[n - 1] *= loops->space.size[d];
  }
}

/* The index of an operand's element in terms of the loops' variables: "i * 16 + j". */
static char *index_text(const struct loops *loops, const signed char *letter)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int n = 0; n < loops->n; n++) {
    int64_t stride = 1;
    bool has = false;
    for (int d = 0; d < MAX_DIMS; d++) {
      if (letter[d] == NONE) continue;
      if (letter[d] == loops->last[n]) has = true;
      if (letter[d] > loops->last[n]) stride *= loops->space.size[(int)letter[d]];
    }
    if (!has) continue;
    put(&b, "%s%c", b.length ? " + " : "", loop_variable[n]);
    if (stride != 1) put(&b, " * %" PRId64, stride);
  }
  if (!b.length) put(&b, "0");
  return b.text;
}

/* --------------------------------------------------------------------------------- parameters */

/* What a kernel is given: one pointer for each place in memory. */
struct argument {
  int storage, value;
  bool written;
  const char *name; /* within the kernel */
};
struct arguments {
  int n, room;
  struct argument *list;
};

/* The last word of a dotted name: "weight". */
static const char *leaf(const char *name)
{
  const char *dot = strrchr(name, '.');
  return dot && dot[1] ? dot + 1 : name;
}

static bool name_taken(const struct arguments *a, const char *name)
{
  if (is_spoken(name)) return true;
  for (int i = 0; i < a->n; i++)
    if (!strcmp(a->list[i].name, name)) return true;
  return false;
}

static void add_argument(struct arguments *a, int value, bool written)
{
  int storage = graph->value[value].storage;
  for (int i = 0; i < a->n; i++)
    if (a->list[i].storage == storage) {
      a->list[i].written |= written;
      return;
    }
  const char *mark = graph->value[value].role == GRADIENT ? "d_" : "";
  const char *wanted = identifier(text("%s%s", mark, leaf(local_name(value)))), *name = wanted;
  for (int again = 2; name_taken(a, name); again++) name = text("%s_%d", wanted, again);
  GROW(a->list, a->n, a->room);
  a->list[a->n++] = (struct argument){storage, value, written, name};
}

static const char *argument_name(const struct arguments *a, int value)
{
  for (int i = 0; i < a->n; i++)
    if (a->list[i].storage == graph->value[value].storage) return a->list[i].name;
  bug("emit", graph->value[value].op, "its kernel has no argument for it");
}

static struct arguments find_arguments(const struct op *op)
{
  struct arguments a = {0};
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_writes(op, list); i < n; i++) add_argument(&a, list[i], true);
  for (int i = 0, n = op_reads(op, list); i < n; i++)
    if (graph->value[list[i]].stored) add_argument(&a, list[i], false);
  return a;
}

static char *parameter_list(const struct arguments *a)
{
  struct buffer b = {0};
  for (int i = 0; i < a->n; i++)
    put(&b, "%s%s%s *%s%s", i ? ", " : "", a->list[i].written ? "" : "const ",
        c_type(graph->value[a->list[i].storage].type), options.cuda ? "__restrict__ " : "restrict ",
        a->list[i].name);
  return b.text;
}

static char *argument_list(const struct arguments *a)
{
  struct buffer b = {0};
  for (int i = 0; i < a->n; i++) put(&b, "%s%s", i ? ", " : "", c_name(a->list[i].value));
  return b.text;
}

/* ------------------------------------------------------------------------ a kernel's statements */

/* The value of an inner value's element: the name of a temporary. */
struct temporary {
  int value;
  const char *name;
};
struct temporaries {
  int n, room;
  struct temporary *list;
};

char *double_text(double x)
{
  for (int digits = 6; digits < 17; digits++) {
    char *s = text("%.*g", digits, x);
    if (strtod(s, NULL) == x) return s;
  }
  return text("%.17g", x);
}

static char *number_text(double x)
{
  char *s = double_text((float)x);
  for (int digits = 1; digits < 9; digits++) {
    char *shorter = text("%.*g", digits, x);
    if ((float)strtod(shorter, NULL) != (float)x) continue;
    s = shorter;
    break;
  }
  bool plain = strspn(s, "-0123456789") == strlen(s);
  return text("%s%sf", s, plain ? ".0" : "");
}

static const char *operand_text(const struct temporaries *t, const struct arguments *a,
                                const struct loops *loops, int value, const signed char *letter)
{
  for (int i = 0; i < t->n; i++)
    if (t->list[i].value == value) return t->list[i].name;
  const struct value *v = &graph->value[value];
  if (!v->stored) return number_text(graph->op[v->op].scalar);
  return text("%s[%s]", argument_name(a, value), index_text(loops, letter));
}

/* The row's expression with its operands put in. */
static char *element_text(const struct op *op, const struct temporaries *t,
                          const struct arguments *a, const struct loops *loops)
{
  struct letters l;
  op_letters(op, &l);
  struct buffer b = {0};
  for (const char *c = op_row[op->kind].expression; *c; c++) {
    if (*c != '$') {
      put_text(&b, c, 1);
    } else if (*++c == 's') {
      put(&b, "%s", number_text(op->scalar));
    } else {
      int i = *c - 'a';
      put(&b, "%s", operand_text(t, a, loops, op->in[i], l.in[i]));
    }
  }
  return b.text;
}

static const char *temporary(struct temporaries *t, const struct arguments *a, const struct op *op)
{
  const char *kind = op_name(op), *name = kind;
  for (int again = 2;; again++) {
    bool taken = name_taken(a, name);
    for (int i = 0; i < t->n; i++) taken |= !strcmp(t->list[i].name, name);
    if (!taken) break;
    name = text("%s_%d", kind, again);
  }
  GROW(t->list, t->n, t->room);
  t->list[t->n++] = (struct temporary){op->out, name};
  return name;
}

static bool read_by_others(const struct op *group, const struct op *op)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *inner = &graph->op[group->body[k]];
    for (int i = 0; i < inner->nin; i++)
      if (inner->in[i] == op->out) return true;
  }
  return false;
}

static void put_statement(struct buffer *b, int indent, const char *statement)
{
  char *lead = text("%*s", indent + 4, "");
  put(b, "%s\n", wrapped(text("%*s%s", indent, "", statement), " ", lead));
}

/* One line for each pointwise operation. */
static void put_elements(struct buffer *b, const struct op *group, const struct loops *loops,
                         const struct arguments *a, struct temporaries *t, int indent)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (is_reduce(op->kind)) continue;
    struct letters l;
    op_letters(op, &l);
    char *element = element_text(op, t, a, loops);
    bool stored = graph->value[op->out].stored;
    if (read_by_others(group, op)) {
      const char *name = temporary(t, a, op);
      put_statement(b, indent, text("const float %s = %s;", name, element));
      element = copy_text(name);
    }
    if (stored)
      put_statement(
          b, indent,
          text("%s[%s] = %s;", argument_name(a, op->out), index_text(loops, l.out), element));
  }
}

static const char *sum_name(const struct op *group, int k)
{
  const char *kind = op_name(&graph->op[group->body[k]]);
  for (int i = 0; i < k; i++)
    if (is_reduce(graph->op[group->body[i]].kind)) return text("%s_of_%d", kind, k);
  return text("%s_of", kind);
}

/* ---------------------------------------------------------------------------------- CPU kernels */

static void put_loop(struct buffer *b, const struct loops *loops, int n, int indent)
{
  char v = loop_variable[n];
  put(b, "%*sfor (%s %c = 0; %c < %" PRId64 "; %c++) {\n", indent, "", counter_type(loops->size[n]),
      v, v, loops->size[n], v);
}

static void close_loops(struct buffer *b, int n, int indent)
{
  for (int i = n; i-- > 0;) put(b, "%*s}\n", indent + 2 * i, "");
}

/* How many loops are outside all sums, or NONE if a sum's loop is around one that is kept. */
static int kept_outside(const struct loops *loops)
{
  int n = 0;
  while (n < loops->n && !loops->reduced[n]) n++;
  for (int i = n; i < loops->n; i++)
    if (!loops->reduced[i]) return NONE;
  return n;
}

/* After the sums' loops: out[...] = sum * scalar. */
static void put_sums(struct buffer *b, const struct op *group, const struct loops *loops,
                     const struct arguments *a, int indent)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (!is_reduce(op->kind)) continue;
    struct letters l;
    op_letters(op, &l);
    char *factor = op->scalar == 1 ? "" : text(" * %s", double_text(op->scalar));
    put(b, "%*s%s[%s] = (float)(%s%s);\n", indent, "", argument_name(a, op->out),
        index_text(loops, l.out), sum_name(group, k), factor);
  }
}

static void put_sum_starts(struct buffer *b, const struct op *group, const char *type, int indent)
{
  for (int k = 0; k < group->nbody; k++)
    if (is_reduce(graph->op[group->body[k]].kind))
      put(b, "%*s%s %s = 0;\n", indent, "", type, sum_name(group, k));
}

static void put_summands(struct buffer *b, const struct op *group, const struct loops *loops,
                         const struct arguments *a, const struct temporaries *t, int indent)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (is_reduce(op->kind))
      put(b, "%*s%s += %s;\n", indent, "", sum_name(group, k), element_text(op, t, a, loops));
  }
}

/* Sums whose loops are inside: each is finished before the next element of the output begins. */
static void put_inner_sums(struct buffer *b, const struct op *group, const struct loops *loops,
                           const struct arguments *a, int kept)
{
  struct temporaries t = {0};
  for (int n = 0; n < kept; n++) put_loop(b, loops, n, 2 + 2 * n);
  put_sum_starts(b, group, "double", 2 + 2 * kept);
  for (int n = kept; n < loops->n; n++) put_loop(b, loops, n, 2 + 2 * n);
  put_elements(b, group, loops, a, &t, 2 + 2 * loops->n);
  put_summands(b, group, loops, a, &t, 2 + 2 * loops->n);
  close_loops(b, loops->n - kept, 2 + 2 * kept);
  put_sums(b, group, loops, a, 2 + 2 * kept);
  close_loops(b, kept, 2);
}

/* Sums over outer loops: the outputs begin at zero and every element is added to its own. */
static void put_outer_sums(struct buffer *b, const struct op *group, const struct loops *loops,
                           const struct arguments *a)
{
  struct temporaries t = {0};
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (!is_reduce(op->kind)) continue;
    struct letters l;
    op_letters(op, &l);
    int64_t n = 1;
    for (int i = 0; i < loops->n; i++) n *= loops->reduced[i] ? 1 : loops->size[i];
    put(b, "  for (%s i = 0; i < %" PRId64 "; i++) %s[i] = 0;\n", counter_type(n), n,
        argument_name(a, op->out));
  }
  for (int n = 0; n < loops->n; n++) put_loop(b, loops, n, 2 + 2 * n);
  int indent = 2 + 2 * loops->n;
  put_elements(b, group, loops, a, &t, indent);
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (!is_reduce(op->kind)) continue;
    struct letters l;
    op_letters(op, &l);
    char *factor = op->scalar == 1 ? "" : text("%s * ", number_text(op->scalar));
    char *element = element_text(op, &t, a, loops);
    put(b, "%*s%s[%s] += %s%s;\n", indent, "", argument_name(a, op->out), index_text(loops, l.out),
        factor, *factor ? text("(%s)", element) : element);
  }
  close_loops(b, loops->n, 2);
}

static bool has_sums(const struct op *group)
{
  for (int k = 0; k < group->nbody; k++)
    if (is_reduce(graph->op[group->body[k]].kind)) return true;
  return false;
}

static char *cpu_body(const struct op *group, const struct loops *loops, const struct arguments *a)
{
  struct buffer b = {0};
  struct temporaries t = {0};
  int kept = kept_outside(loops);
  if (!has_sums(group)) {
    for (int n = 0; n < loops->n; n++) put_loop(&b, loops, n, 2 + 2 * n);
    put_elements(&b, group, loops, a, &t, 2 + 2 * loops->n);
    close_loops(&b, loops->n, 2);
  } else if (kept != NONE) {
    put_inner_sums(&b, group, loops, a, kept);
  } else {
    put_outer_sums(&b, group, loops, a);
  }
  return b.text;
}

/* --------------------------------------------------------------------------------- CUDA kernels */

enum { BLOCK = 256 };

static int64_t count(const struct loops *loops, bool reduced)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++)
    if (loops->reduced[i] == reduced) n *= loops->size[i];
  return n;
}

/* The loops' variables out of one number that counts over them all. */
static void put_variables(struct buffer *b, const struct loops *loops, bool reduced,
                          const char *number, int indent)
{
  int64_t below = count(loops, reduced);
  bool first = true;
  for (int n = 0; n < loops->n; n++) {
    if (loops->reduced[n] != reduced) continue;
    below /= loops->size[n];
    char *high = below == 1 ? copy_text(number) : text("%s / %" PRId64, number, below);
    char *value = first ? high : text("%s %% %" PRId64, high, loops->size[n]);
    put(b, "%*sconst %s %c = %s;\n", indent, "", counter_type(count(loops, reduced)),
        loop_variable[n], value);
    first = false;
  }
}

static void put_thread(struct buffer *b, int64_t n)
{
  const char *type = counter_type(n);
  put(b, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", type, type, BLOCK, type);
  put(b, "  if (n >= %" PRId64 ") return;\n", n);
}

/* A thread for each element. */
static void put_cuda_elements(struct buffer *b, const struct op *group, const struct loops *loops,
                              const struct arguments *a)
{
  struct temporaries t = {0};
  put_thread(b, count(loops, false));
  put_variables(b, loops, false, "n", 2);
  put_elements(b, group, loops, a, &t, 2);
}

/* A block for each sum. */
static void put_cuda_inner_sums(struct buffer *b, const struct op *group, const struct loops *loops,
                                const struct arguments *a)
{
  struct temporaries t = {0};
  int64_t n = count(loops, true);
  const char *type = counter_type(n);
  put_variables(b, loops, false, count(loops, false) == 1 ? "0" : "(int)blockIdx.x", 2);
  put_sum_starts(b, group, "float", 2);
  put(b, "  for (%s n = (%s)threadIdx.x; n < %" PRId64 "; n += %d) {\n", type, type, n, BLOCK);
  put_variables(b, loops, true, "n", 4);
  put_elements(b, group, loops, a, &t, 4);
  put_summands(b, group, loops, a, &t, 4);
  put(b, "  }\n");
  for (int k = 0; k < group->nbody; k++)
    if (is_reduce(graph->op[group->body[k]].kind))
      put(b, "  %s = block_sum(%s);\n", sum_name(group, k), sum_name(group, k));
  put(b, "  if (threadIdx.x == 0) {\n");
  put_sums(b, group, loops, a, 4);
  put(b, "  }\n");
}

/* A thread for each sum, which walks over its summands. */
static void put_cuda_outer_sums(struct buffer *b, const struct op *group, const struct loops *loops,
                                const struct arguments *a)
{
  struct temporaries t = {0};
  put_thread(b, count(loops, false));
  put_variables(b, loops, false, "n", 2);
  put_sum_starts(b, group, "float", 2);
  int indent = 2;
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    put_loop(b, loops, n, indent);
    indent += 2;
  }
  put_elements(b, group, loops, a, &t, indent);
  put_summands(b, group, loops, a, &t, indent);
  close_loops(b, (indent - 2) / 2, 2);
  put_sums(b, group, loops, a, 2);
}

static char *cuda_body(const struct op *group, const struct loops *loops, const struct arguments *a,
                       int64_t *blocks)
{
  struct buffer b = {0};
  int64_t kept = count(loops, false);
  *blocks = (kept + BLOCK - 1) / BLOCK;
  if (!has_sums(group)) {
    put_cuda_elements(&b, group, loops, a);
  } else if (count(loops, true) > 1 && kept_outside(loops) != NONE) {
    put_cuda_inner_sums(&b, group, loops, a);
    *blocks = kept;
  } else {
    put_cuda_outer_sums(&b, group, loops, a);
  }
  return b.text;
}

/* ---------------------------------------------------------------------------- the whole kernel */

/* "add_relu_20x16" */
static char *kernel_name(const struct op *group, const struct loops *loops)
{
  struct buffer b = {0};
  enum { MOST = 4 };
  for (int k = 0; k < group->nbody; k++) {
    if (group->nbody > MOST && k == MOST - 1) {
      put(&b, "_and_%d_more", group->nbody - k);
      break;
    }
    put(&b, "%s%s", k ? "_" : "", op_name(&graph->op[group->body[k]]));
  }
  for (int d = 0; d < loops->space.ndim; d++)
    put(&b, "%s%" PRId64, d ? "x" : "_", loops->space.size[d]);
  if (!loops->space.ndim) put(&b, "_1");
  return b.text;
}

/* What the kernel computes, in the names of its parameters. */
static char *kernel_comment(const struct op *group)
{
  return text("%s\n", wrapped(text("// %s", expression_text(group)), " ", "// "));
}

static char *fused_call(const struct op *group, int rank)
{
  struct loops loops;
  find_loops(group, rank, &loops);
  struct arguments a = find_arguments(group);
  char *parameters = parameter_list(&a), *arguments = argument_list(&a);
  if (!options.cuda) {
    const char *prototype = text("void $name$(%s)", parameters);
    char *body = cpu_body(group, &loops, &a);
    const char *name =
        add_kernel(kernel_name(group, &loops), prototype, kernel_comment(group), body);
    return text("%s(%s);", name, arguments);
  }
  int64_t blocks;
  char *body = cuda_body(group, &loops, &a, &blocks);
  const char *prototype = text("__global__ void $name$(%s)", parameters);
  const char *name = add_kernel(kernel_name(group, &loops), prototype, kernel_comment(group), body);
  return text("LAUNCH(%s, %" PRId64 ", %d, stream)(%s);", name, blocks, BLOCK, arguments);
}

/* ------------------------------------------------------------------------------------- updates */

static char *optimizer_text(void)
{
  const struct optimizer *o = &graph->optimizer;
  if (strcmp(o->name, "AdamW"))
    return text("lr %s, weight decay %s", double_text(o->lr), double_text(o->weight_decay));
  return text("lr %s, betas %s %s, eps %s, weight decay %s, step t from 1", double_text(o->lr),
              double_text(o->beta1), double_text(o->beta2), double_text(o->eps),
              double_text(o->weight_decay));
}

static char *update_call(const struct op *op, int rank)
{
  int64_t n = 0;
  const struct op *first = NULL;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    int64_t here = elements(local_shape(inner->in[0], rank));
    if (here && !first) first = inner;
    n += here;
  }
  if (!first) return "";
  const struct optimizer *o = &graph->optimizer;
  const char *kind = op_row[op->kind].name;
  const char *template = embedded_text(text("templates/%s.%s", kind, options.cuda ? "cu" : "c"));
  char *body =
      fill(template, "n", text("%" PRId64, n), "counter", counter_type(n), "lr", number_text(o->lr),
           "beta1", double_text(o->beta1), "beta2", double_text(o->beta2), "keep1",
           number_text(o->beta1), "take1", number_text(1 - o->beta1), "keep2",
           number_text(o->beta2), "take2", number_text(1 - o->beta2), "eps", number_text(o->eps),
           "decay", number_text(1 - o->lr * o->weight_decay), NULL);
  /* The template is a whole function: its head up to the brace is the prototype. */
  size_t head = strcspn(body, "{"), length = strlen(body);
  const char *inner =
      text("%.*s", (int)(length - head - strlen("{\n") - strlen("}\n")), body + head + 2);
  while (head && (body[head - 1] == '\n' || body[head - 1] == ' ')) head--;
  const char *comment = text("// %s: %s\n", o->name, optimizer_text());
  const char *name =
      add_kernel(text("%s_%" PRId64, kind, n), text("%.*s", (int)head, body), comment, inner);
  struct buffer b = {0};
  for (int i = 0; i < first->nin; i++) put(&b, "%s%s", i ? ", " : "", c_name(first->in[i]));
  if (options.cuda) {
    put(&b, "%s", op->kind == OP_adamw ? ", c1, c2" : "");
    return text("LAUNCH(%s, %" PRId64 ", %d, stream)(%s);", name, (n + BLOCK - 1) / BLOCK, BLOCK,
                b.text);
  }
  return text("%s(%s%s);", name, b.text, op->kind == OP_adamw ? ", t" : "");
}

char *kernel_call(const struct op *op, int rank)
{
  return op->kind == OP_fused ? fused_call(op, rank) : update_call(op, rank);
}
