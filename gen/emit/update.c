/* update.c: the text of the step's work on gradients: the kernels that update parameters, which are
   templates filled with the optimizer's numbers and a rank's sizes; the sum of the gradients'
   squares; and the learning rate. */
#include "emit/emit.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------------- the optimizer's text */

/* "adamw", "buffer": the kernel's name. */
const char *update_name(const struct op *op)
{
  return op->kind == OP_buffer ? "buffer" : kernel_of_optimizer(optimizer_of(op));
}

/* ---------------------------------------------------------------------------------- its kernels */

/* From this number of elements on, starting threads pays. */
static const int64_t MANY = 1 << 15;

/* The number of elements that can be loaded at once from the start of the parameter, or of its
   gradient. */
static int width_at(int parameter, int rank, int64_t n)
{
  int width = target->widest_vector < 4 ? target->widest_vector : 4;
  while (width > 1 && (n % width || alignment_of(parameter, rank) % (4 * width))) width /= 2;
  return width;
}

static char *update_definition(const struct op *op, const struct op *first, int64_t n, int width)
{
  struct update_lines l = {.parameters = "", .clip = "", .numbers = ""};
  const char *counter = counter_type(n + (target->thread_grids ? BLOCK * width : 0));
  char *number = text("(%s)blockIdx.x * %d + (%s)threadIdx.x", counter, BLOCK, counter);
  if (width > 1) number = text("(%s) * %d", number, width);
  char *threads = n < MANY ? "" : "#pragma omp parallel for simd schedule(static)\n";
  if (op->kind == OP_update) l = lines_of_update(first, width);
  return fill(update_template(op->kind == OP_buffer ? "buffer" : "update"), "n",
              text("%" PRId64, n), "number", number, "counter", counter, "width", text("%d", width),
              "threads", threads, "parameters", l.parameters, "clip", l.clip, "numbers", l.numbers,
              "loads", l.loads.text, "body", l.body.text, "stores", l.stores.text, NULL);
}

/* The i-th input of an update as an operand of the optimizer; the norm is none: NONE. */
static int operand_of_input(const struct op *update, int i)
{
  const struct optimizer *o = optimizer_of(update);
  int given = 2 + o->nstate, at = given + (plan_options->clip > 0), operand = first_step_operand(o);
  if (i < given) return i;
  if (i < at) return NONE;
  while (!update_takes(o, operand) || at++ < i) operand++;
  return operand;
}

/* Whether the kernel reads or writes the i-th input: not a state of another shape. */
static bool is_of_kernel(const struct op *first, int i)
{
  if (first->kind == OP_buffer) return true;
  const struct optimizer *o = optimizer_of(first);
  int operand = operand_of_input(first, i);
  if (operand == NONE) return kernel_has_array(o, 1);
  return operand < 2 + o->nstate ? kernel_has_array(o, operand) : kernel_takes(o, operand);
}

/* The number of elements that can be loaded at once of all operands of the kernel. */
static int width_of_update(const struct op *first, int rank, int64_t n)
{
  int width = width_at(first->in[0], rank, n);
  for (int i = 1; i < first->nin; i++) {
    int value = first->in[i];
    if (!is_of_kernel(first, i) ||
        !same_shape(graph->value[value].shape, graph->value[first->in[0]].shape))
      continue;
    int here = width_at(value, rank, n);
    if (here < width) width = here;
  }
  return width;
}

/* A call of the kernel that copies n numbers. */
static char *assignment(const char *to, const char *from, int64_t n)
{
  const char *counter = counter_type(n + (target->thread_grids ? BLOCK : 0));
  const char *threads = n < MANY ? "" : "#pragma omp parallel for simd schedule(static)\n";
  char *number = text("(%s)blockIdx.x * %d + (%s)threadIdx.x", counter, BLOCK, counter);
  char *definition = fill(update_template("assign"), "n", text("%" PRId64, n), "number", number,
                          "counter", counter, "threads", threads, NULL);
  const char *bounds = fill(target_syntax()->kernel_bounds, "threads", text("%d", BLOCK), NULL);
  size_t head = strcspn(definition, "{") - 1;
  const char *name = add_kernel(text("assign_%" PRId64, n),
                                text("%s%.*s", target_syntax()->kernel_mark, (int)head, definition),
                                "", text("%s%s", bounds, definition), true);
  return kernel_call_text(name, text("%" PRId64, (n + BLOCK - 1) / BLOCK), BLOCK,
                          text("%s, %s", to, from));
}

/* Copies the states of another shape than the parameter's, which operations have made. */
static char *assignments(const struct op *update, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (update->kind == OP_buffer) return b.text;
  const struct optimizer *o = optimizer_of(update);
  for (int k = 0; k < o->nstate; k++) {
    int state = update->in[2 + k], made = NONE;
    for (int i = 2 + o->nstate; i < update->nin && o->ones[k]; i++)
      if (operand_of_input(update, i) == o->out[1 + k]) made = update->in[i];
    int64_t n = elements(local_shape(state, rank));
    if (made != NONE && n)
      put(&b, "%s%s", b.length ? "\n  " : "", assignment(c_name(state), c_name(made), n));
  }
  return b.text;
}

char *step_number_text(const struct op *op)
{
  const char *name = step_number_name(optimizer_of(op), (int)op->number[1]);
  if (!target->steps_in_memory) return text("*%s = %s;", c_name(op->out), name);
  return assignment(c_name(op->out), text("&m->now.%s", name), 1);
}

char *update_call(const struct op *op, int rank)
{
  int64_t n = 0;
  const struct op *first = NULL;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    int64_t here = elements(local_shape(inner->in[0], rank));
    if (here && !first) first = inner;
    n += here;
  }
  if (!first) return assignments(&graph->op[op->body[0]], rank);
  if (graph->value[first->in[0]].type != F32)
    plan_error(first->line, "%s: %s is %s; only parameters of float32 are trained",
               op->kind == OP_buffer ? "buffers" : optimizer_of(op)->name,
               printable(value_name(first->in[0])), type_name(graph->value[first->in[0]].type));
  int width = width_of_update(first, rank, n);
  char *definition = update_definition(op, first, n, width);
  /* The template is a whole function: its head up to the brace is the prototype. */
  size_t head = strcspn(definition, "{");
  while (head && (definition[head - 1] == '\n' || definition[head - 1] == ' ')) head--;
  const char *about = op->kind == OP_buffer ? "// Subtracts a change from a buffer."
                                            : text("// %s: %s", optimizer_of(op)->name,
                                                   optimizer_text(optimizer_of(op)));
  const char *comment = wrapped(about, " ", "// ");
  const char *mark = target_syntax()->kernel_mark;
  const char *bounds = fill(target_syntax()->kernel_bounds, "threads", text("%d", BLOCK), NULL);
  const char *name = add_kernel(text("%s_%" PRId64, update_name(op), n),
                                text("%s%.*s", mark, (int)head, definition), text("%s\n", comment),
                                text("%s%s", bounds, definition), true);
  struct buffer b = {0};
  for (int i = 0; i < first->nin; i++)
    if (is_of_kernel(first, i)) {
      /* An input of one number, such as the norm, is a pointer to it; all others are runs of n
         elements. */
      int value = first->in[i];
      const char *update_operand =
          graph->value[value].role == NORM ? c_name(value) : member_run(value, c_name(value), n);
      put(&b, "%s%s", i ? ", " : "", update_operand);
    }
  if (op->kind == OP_update) put(&b, "%s", step_number_arguments(optimizer_of(op)));
  char *blocks = text("%" PRId64, (n / width + BLOCK - 1) / BLOCK);
  char *after = assignments(first, rank);
  return text("%s%s%s", kernel_call_text(name, blocks, BLOCK, b.text), *after ? "\n  " : "", after);
}

/* ------------------------------------------------------------------------------------- the norm */

/* Gradients that are adjacent in memory and present on equally many ranks. */
struct run {
  const char *name; /* its start */
  int value;
  int64_t n;        /* elements; 0: no run */
  int copies, last; /* last: the parameter of the last of them */
};

/* The gradients body[from .. to) of the sum, in as few runs as possible. In a loop over modules
   a run has the name that it has for module l. */
struct sum {
  const struct op *op;
  int rank;
  int width; /* elements that are read at once */
  struct buffer text;
  struct run run;
  const char *kernel; /* the operation that makes the sum */
};

static void put_run(struct sum *s, int indent)
{
  struct run *run = &s->run;
  struct buffer *b = &s->text;
  const char *from = run->n ? member_run(run->value, run->name, run->n) : NULL;
  const char *share = run->copies > 1 ? text("1.0 / %d", run->copies) : "1";
  const bool of_largest = plan_options->norm_of_largest;
  enum { MOST = 1024 };
  int64_t blocks = (run->n / s->width + BLOCK - 1) / BLOCK;
  if (blocks > MOST) blocks = MOST;
  if (run->n)
    put(b, "\n%*s%s", indent, "",
        fill(of_largest ? target_syntax()->add_largest : target_syntax()->add_squares, "squares",
             c_name(s->op->out), "kernel", s->kernel, "gradients", from, "n",
             text("%" PRId64, run->n), "blocks", text("%" PRId64, blocks), "threads",
             text("%d", BLOCK), "weight", share, "divided",
             run->copies > 1 ? text(" / %d", run->copies) : "", NULL));
  run->n = 0;
}

static int gradient_at(const struct sum *s, int k)
{
  return graph->op[s->op->body[k]].in[0];
}

static int updated_parameter(const struct sum *s, int k)
{
  return graph->value[gradient_at(s, k)].of;
}

/* A largest element may count more than once. */
static int copies_at(const struct sum *s, int k)
{
  if (plan_options->norm_of_largest) return 1;
  /* The number of ranks, of those over which the squares are summed, on which each element of a
     gradient is present. */
  int gradient = gradient_at(s, k);
  struct layout pending = graph->value[s->op->out].layout;
  int n = 1;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (pending.on[d].kind == PARTIAL && graph->value[gradient].layout.on[d].kind != SHARD &&
        !is_over_stages(d))
      n *= graph->mesh.size[d];
  return n;
}

/* "m->grad.layers[l].wq" from "m->grad.layers[0].wq" and "m->grad.layers[1].wq"; NULL if the two
   differ otherwise. */
static const char *name_in_loop(const char *first, const char *second)
{
  size_t at = 0;
  while (first[at] && first[at] == second[at]) at++;
  if (!at || first[at - 1] != '[' || first[at] != '0' || first[at + 1] != ']') return NULL;
  return text("%.*sl%s", (int)at, first, first + at + 1);
}

/* period: from a module's gradient to the same one of the next, in a loop; or 0. */
static void add_gradient(struct sum *s, int k, int period, int indent)
{
  int gradient = gradient_at(s, k), of = graph->value[gradient].of, copies = copies_at(s, k);
  int64_t n = elements(local_shape(gradient, s->rank));
  struct run *run = &s->run;
  if (run->n && !(run->copies == copies && is_next_parameter(run->last, of))) put_run(s, indent);
  if (!run->n && n) {
    const char *name = c_name(gradient);
    if (period) name = name_in_loop(name, c_name(gradient_at(s, k + period)));
    *run = (struct run){.name = name, .value = gradient, .copies = copies};
  }
  run->n += n;
  run->last = of;
}

/* If the gradients from `from` on are those of a list's modules, equal in each, but not all present
   on equally many ranks: returns their number in a module, and sets *count to the number of
   modules; otherwise 0. */
static int find_update_loop(const struct sum *s, int from, int *count)
{
  const struct in_loop *first = in_loop(updated_parameter(s, from));
  int period = 0, to = from, varied = 0;
  if (first->stack == NONE || first->index != 0) return 0;
  for (; to < s->op->nbody; to++) {
    const struct in_loop *p = in_loop(updated_parameter(s, to));
    if (p->stack == NONE || p->list != first->list) break;
    if (p->index == 0) period++;
    int same = from + (to - from) % period;
    if (p->index != (to - from) / period || p->stack != updated_parameter(s, same)) break;
    varied |= copies_at(s, to) != copies_at(s, from);
  }
  *count = (to - from) / period;
  if (!varied || *count < 2) return 0;
  for (int k = from; k < from + period; k++) {
    const char *a = c_name(gradient_at(s, k)), *b = c_name(gradient_at(s, k + period));
    if (a && !(b && name_in_loop(a, b))) return 0;
  }
  return period;
}

static const char *add_template(const char *file, const char *prototypes, int width)
{
  const char *definition = fill(update_template(file), "width", text("%d", width), NULL);
  return add_kernel(file, prototypes, "", definition, true);
}

char *squares_text(const struct op *op, int rank)
{
  /* The number of elements that can be read at once of all gradients. */
  int width = 4;
  for (int k = 0; k < op->nbody; k++) {
    int gradient = graph->op[op->body[k]].in[0];
    int here = width_at(gradient, rank, elements(local_shape(gradient, rank)));
    if (here < width) width = here;
  }
  struct sum s = {.op = op, .rank = rank, .width = width};
  const char *squares = c_name(op->out);
  int count = 0;
  s.kernel = plan_options->norm_of_largest
                 ? add_template("largest_of", target_syntax()->largest_head, s.width)
                 : add_template("sum_of_squares", target_syntax()->squares_head, s.width);
  put(&s.text, "%s", fill(target_syntax()->clear_squares, "squares", squares, NULL));
  for (int k = 0; k < op->nbody;) {
    int period = find_update_loop(&s, k, &count);
    if (period) {
      put_run(&s, 2);
      put(&s.text, "\n  for (int l = 0; l < %d; l++) {", count);
      for (int i = k; i < k + period; i++) add_gradient(&s, i, period, 4);
      put_run(&s, 4);
      put(&s.text, "\n  }");
    } else
      add_gradient(&s, k, 0, 2);
    k += period ? period * count : 1;
  }
  put_run(&s, 2);
  if (target_syntax()->sum_squares)
    put(&s.text, "\n  %s",
        fill(target_syntax()->sum_squares, "kernel", s.kernel, "squares", squares, NULL));
  return s.text.text + strspn(s.text.text, "\n ");
}

char *norm_text(const struct op *op)
{
  const char *norm = c_name(op->out), *squares = c_name(op->in[0]);
  const struct target_syntax *f = target_syntax();
  const bool of_largest = plan_options->norm_of_largest;
  const char *kernel = of_largest ? f->largest_norm_kernel : f->norm_kernel;
  if (kernel) add_template(kernel, of_largest ? f->largest_norm_head : f->norm_head, 1);
  return fill(of_largest ? f->largest_norm : f->norm, "norm", norm, "number",
              norm + strspn(norm, "&"), "squares", squares, NULL);
}
