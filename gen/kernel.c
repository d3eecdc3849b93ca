/* kernel.c: the kernels of a program, and the statements that call those of fused operations. A
   kernel is a loop over the elements of a rank's part, with one statement for each operation, made
   from the expressions of the table of operators: space.c, element.c, reduction.c, kernel_cpu.c and
   kernel_cuda.c. Those of other operators are templates: update.c, kernel_file.c. Kernels with the
   same text are one. */
#include "kernel.h"

#include <inttypes.h>
#include <string.h>

struct kernel {
  const char *name, *comment;
  const char *prototypes, *definition;             /* as written */
  const char *given_prototypes, *given_definition; /* with the hole `$name$` */
};

static struct kernel *kernel;
static int nkernel, kernel_room;
static const char **name_list; /* of the first kernels, so many */
static int nname, name_room, named_kernels;

/* --------------------------------------------------------------------------- all of the kernels */

static const char *name_at(const char *prototype)
{
  size_t end = strcspn(prototype, "("), begin = end;
  while (begin && prototype[begin - 1] != ' ' && prototype[begin - 1] != '*') begin--;
  return text("%.*s", (int)(end - begin), prototype + begin);
}

/* What follows the line at c and those that it goes on in, led in by blanks; NULL at the end. */
static const char *next_prototype(const char *c)
{
  for (c = strchr(c, '\n'); c && c[1] == ' ';) c = strchr(c + 1, '\n');
  return c && c[1] ? c + 1 : NULL;
}

/* Tests have several graphs, each with memory of its own. */
static void forget_other_graphs(void)
{
  static const struct graph *of;
  if (of == graph) return;
  of = graph;
  nkernel = kernel_room = nname = name_room = named_kernels = 0;
}

const char *const *kernel_names(void)
{
  forget_other_graphs();
  for (; named_kernels < nkernel; named_kernels++)
    for (const char *c = kernel[named_kernels].prototypes; c; c = next_prototype(c)) {
      GROW(name_list, nname, name_room);
      name_list[nname++] = name_at(c);
    }
  GROW(name_list, nname, name_room);
  name_list[nname] = NULL;
  return name_list;
}

char *kernel_definitions(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernel; i++)
    put(&b, "%s%s%s", i ? "\n" : "", kernel[i].comment, kernel[i].definition);
  if (b.length) b.text[b.length - 1] = 0; /* the line's end is the template's */
  return b.text;
}

/* Whether a kernel says something that runtime/elements.h defines. */
static bool uses_elements(const struct kernel *k)
{
  static const char *const words[] = {"random_stream", "larger",  "smaller",  "gelu_tanh_slope",
                                      "INT_MIN",       "INT_MAX", "LONG_MIN", "LONG_MAX"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (has_word(k->definition, words[i])) return true;
  return false;
}

/* Whether anything in the program is of the type that runtime/elements.h names. */
static bool has_bf16(void)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].type == BF16) return true;
  return false;
}

const char *kernel_includes(void)
{
  bool elements = has_bf16(), indices = false;
  for (int i = 0; i < nkernel; i++) {
    elements |= uses_elements(&kernel[i]);
    indices |= has_word(kernel[i].definition, "index_within");
  }
  return text("%s%s%s", elements ? "#include \"elements.h\"\n" : "",
              indices ? "#include \"indices.h\"\n" : "", elements || indices ? "\n" : "");
}

char *kernel_prototypes(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < nkernel; i++) put(&b, "%s", kernel[i].prototypes);
  return b.text;
}

/* Heads, a line each, as declarations. */
static char *declared(const char *heads)
{
  struct buffer b = {0};
  for (; *heads; heads += strcspn(heads, "\n"), heads += *heads == '\n')
    put(&b, "%.*s;\n", (int)strcspn(heads, "\n"), heads);
  return b.text;
}

/* Of a name the number, from 1 on, of the kernel that has it, 0: none does; and the last number
   that was tried behind it. */
struct named {
  int kernel, again;
};

static struct named *named(const char *name)
{
  static struct memo names;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, name);
  return answer_to(&names, &q, sizeof(struct named), &is_new);
}

/* The number, likewise, of the fused kernel that is this but for names. */
static int *planned(const char *plan)
{
  static struct memo plans;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, plan);
  return answer_to(&plans, &q, sizeof(int), &is_new);
}

/* The name that was given to a kernel of these texts. */
static const char **given_name(const char *wanted, const char *prototypes, const char *definition)
{
  static struct memo texts;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, wanted);
  ask_text(&q, prototypes);
  ask_text(&q, definition);
  return answer_to(&texts, &q, sizeof(char *), &is_new);
}

/* A name that none has, or one that has the same texts. */
static const char *name_for(const char *wanted, const char *prototypes, const char *definition)
{
  struct named *first = named(wanted);
  for (;; first->again++) {
    const char *name = first->again ? text("%s_%d", wanted, first->again + 1) : wanted;
    int known = named(name)->kernel;
    if (!known) return name;
    const struct kernel *k = &kernel[known - 1];
    if (!strcmp(k->given_prototypes, prototypes) && !strcmp(k->given_definition, definition))
      return name;
  }
}

const char *add_kernel(const char *wanted, const char *prototypes, const char *comment,
                       const char *definition, bool ours)
{
  forget_other_graphs();
  const char **given = given_name(wanted, prototypes, definition);
  if (*given) return *given;
  const char *name = *given = name_for(wanted, prototypes, definition);
  if (named(name)->kernel) return name;
  GROW(kernel, nkernel, kernel_room);
  kernel[nkernel++] = (struct kernel){
      .name = name,
      .comment = comment,
      .prototypes = wrapped_lines(fill(declared(prototypes), "name", name, NULL), true),
      .definition = wrapped_lines(fill(definition, "name", name, NULL), ours),
      .given_prototypes = prototypes,
      .given_definition = definition};
  named(name)->kernel = nkernel;
  return name;
}

/* A kernel that is one function: its name. */
static const char *add_function(const char *name, const char *parameters, const char *comment,
                                const char *body, const struct launch *launch)
{
  const char *head = text("void $name$(%s)", parameters), *mark = "", *bounds = "";
  if (options.cuda) {
    mark = "__global__ ";
    bounds = text("__global__ __launch_bounds__(%d)\n", launch->threads);
  }
  const char *definition = text("%s%s\n{\n%s}\n", bounds, head, without_braces(body));
  return add_kernel(name, text("%s%s", mark, head), comment, definition, true);
}

static char *call_text(const char *name, const struct launch *launch, const char *arguments)
{
  if (!options.cuda) return text("%s(%s);", name, arguments);
  const char *blocks = text("%" PRId64, launch->blocks);
  if (launch->rows > 1) blocks = text("dim3(%s, %" PRId64 ")", blocks, launch->rows);
  char *call = text("LAUNCH(%s, %s, %d, stream)(%s);", name, blocks, launch->threads, arguments);
  return launch->then ? text("%s\n  %s", call, launch->then) : call;
}

/* ----------------------------------------------------------------------------- fused operations */

/* The function of the plan that the operation is a part of, "rms_norm"; where that is an operator
   that Lua writes as a sign, the operation's own name. */
static const char *part_name(const struct op *op)
{
  bool word = op->part_of && *op->part_of >= 'a' && *op->part_of <= 'z';
  return word ? identifier(op->part_of) : op_name(op);
}

static bool is_told(const char **word, int n, const char *name)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(word[i], name)) return true;
  return false;
}

/* The words of a long kernel's name: each function of the plan once, with "_back" where it is of
   the backward, which may compute some of the forward again. Gives how many. */
static int name_parts(const struct op *group, const char **word)
{
  int n = 0;
  for (int backward = 1; backward >= 0; backward--)
    for (int k = 0; k < group->nbody; k++) {
      const struct op *op = &graph->op[group->body[k]];
      const char *name = part_name(op), *back = text("%s_back", name);
      bool of_backward = op->phase == BACKWARD && !op->again && strcmp(name, op_name(op));
      if (of_backward != backward || is_told(word, n, back)) continue;
      if (of_backward) name = back;
      if (!is_told(word, n, name)) word[n++] = name;
    }
  return n;
}

/* "add_relu_20x16": what it computes, each operation by its name; or, of many, by the functions
   that they are parts of, "add_rms_norm_32x128"; of many of these, the first few. */
static char *kernel_name(const struct op *group, struct shape space)
{
  struct buffer b = {0};
  enum { MOST = 4 };
  const char **word = alloc((size_t)(group->nbody + 1) * sizeof *word);
  int n = 0;
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (op->kind != OP_expand || group->nbody == 1) word[n++] = op_name(op);
  }
  if (n > MOST) n = name_parts(group, word);
  for (int i = 0; i < n; i++) {
    if (n > MOST && i == MOST - 1) {
      put(&b, "_and_%d_more", n - i);
      break;
    }
    put(&b, "%s%s", i ? "_" : "", word[i]);
  }
  for (int d = 0; d < space.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "_", space.size[d]);
  if (!space.ndim) put(&b, "_1");
  return b.text;
}

/* Whether the value lies where another is that the kernel reads, of another name: which. */
static int overwritten_by(int value, const int *read, int n)
{
  for (int i = 0; i < n; i++)
    if (read[i] != value && same_place(read[i], value) &&
        strcmp(spoken_name(read[i]), spoken_name(value)))
      return read[i];
  return NONE;
}

/* What the kernel computes, and in place of what. */
static char *kernel_comment(const struct op *group)
{
  int *written = alloc((size_t)op_width(group) * sizeof *written);
  int *read = alloc((size_t)op_width(group) * sizeof *read);
  int nwritten = op_writes(group, written), nread = op_reads(group, read);
  struct buffer b = {0};
  put(&b, "%s", comment_lines(expression_text(group), 0));
  for (int i = 0; i < nwritten; i++) {
    int in = overwritten_by(written[i], read, nread);
    if (in != NONE)
      put(&b, "%s",
          comment_lines(text("%s is in place of %s", printable(spoken_name(written[i])),
                             printable(spoken_name(in))),
                        0));
  }
  return b.text;
}

/* The output of a reduction over no element. */
static char *neutral_call(const struct op *op, int rank)
{
  const char *neutral = neutral_text(op), *type = c_type(graph->value[op->out].type);
  if (!strcmp(neutral, "0")) return zero_text(op->out, rank);
  if (graph->value[op->out].type == BF16) neutral = text("float_to_bf16(%s)", neutral);
  int64_t n = elements(local_shape(op->out, rank));
  const char *counter = counter_type(n + BLOCK);
  struct launch launch = {.blocks = (n + BLOCK - 1) / BLOCK, .threads = BLOCK};
  struct buffer body = {0};
  if (options.cuda) {
    put(&body, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", counter, counter, BLOCK,
        counter);
    put(&body, "  if (n < %" PRId64 ") y[n] = %s;\n", n, neutral);
  } else {
    put(&body, "  for (%s i = 0; i < %" PRId64 "; i++) y[i] = %s;\n", counter, n, neutral);
  }
  const char *name = add_function(text("%s_of_none_%" PRId64, op_name(op), n), text("%s *y", type),
                                  text("// %s of no element\n", op_name(op)), body.text, &launch);
  return call_text(name, &launch, c_name(op->out));
}

/* A kernel over no element leaves nothing but its reductions' outputs. */
static char *empty_call(const struct op *group, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (is_reduce(op->kind) && c_name(op->out))
      put(&b, "%s%s", b.length ? "\n  " : "", neutral_call(op, rank));
  }
  return b.text;
}

/* Rows may have no elements, but what is reduced over them is read. */
bool has_rows(const struct draft *k)
{
  struct shape here = local_shape(k->stages.space, k->rank);
  for (int d = 0; d < here.ndim; d++)
    if (!here.size[d] && (k->stages.rows == NONE || d < k->stages.rows)) return false;
  return true;
}

/* The body of the kernel, and what it is given; NULL where there is nothing to do: columns of which
   the rank has none. */
static const char *draw_up(struct draft *k, struct launch *launch)
{
  find_loops(k);
  find_arguments(k);
  const char *body = options.cuda ? cuda_body(k, launch) : cpu_body(k);
  if (body) drop_unused(k, body);
  return body && (k->nargument || launch->then) ? body : NULL;
}

static const char *fused_kernel(const struct op *group, struct draft *k, const char *body,
                                const struct launch *launch)
{
  struct draft plain = {
      .group = group, .rank = k->rank, .stages = *group->stages, .guard = "", .numbered = true};
  struct launch other = {0};
  const char *name = kernel_name(group, k->loops.space), *plain_body = draw_up(&plain, &other);
  const char *plan =
      text("%s(%s) %d\n%s", name, parameters_text(&plain), other.threads, plain_body);
  int *known = planned(plan), before = nkernel;
  if (*known) return kernel[*known - 1].name;
  name = add_function(name, parameters_text(k), kernel_comment(group), body, launch);
  if (nkernel > before) *known = nkernel;
  return name;
}

static char *fused_call(const struct op *group, int rank)
{
  struct draft k = {.group = group, .rank = rank, .stages = *group->stages, .guard = ""};
  struct launch launch = {0};
  if (!has_rows(&k)) return empty_call(group, rank);
  const char *body = draw_up(&k, &launch);
  if (!body) return copy_text("");
  return call_text(fused_kernel(group, &k, body, &launch), &launch, arguments_text(&k));
}

char *kernel_call(const struct op *op, int rank)
{
  return op->kind == OP_fused ? fused_call(op, rank) : update_call(op, rank);
}
