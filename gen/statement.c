/* statement.c: one operation as text: its C, and the comment that stands above it. */
#include "tpgen.h"

#include <inttypes.h>
#include <stdlib.h>
#include <ctype.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- comments */

const char *plan_shown(void)
{
  const char *slash = strrchr(graph->path, '/');
  return printable(*graph->path == '/' ? slash + 1 : graph->path);
}

static const char *shown(int value)
{
  return printable(spoken_name(value));
}

/* The operation that makes a value within the same kernel without storing it, or NULL: such a value
   is shown as what makes it. */
static const struct op *inner_maker(const struct op *group, int value)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (op->out == value && !graph->value[value].stored) return op;
  }
  return NULL;
}

/* These put an expression into b piece by piece: a text for each of its parts would be as long as
   all that the part is made of. */
static void put_nested(struct buffer *b, const struct op *group, const struct op *op, bool within);
static void put_operand(struct buffer *b, const struct op *group, int value, bool within);

/* So many operations the expression at hand still tells: what is read twice is told twice, and all
   that it is made of. */
static int left;

static char *factor_text(double factor)
{
  return one_over(factor) ? text("1/%d", one_over(factor)) : text("%g", factor);
}

/* What is stretched is told as what it was; times a number, it may be that. */
static void put_stretched(struct buffer *b, const struct op *group, const struct op *op,
                          bool within)
{
  if (op->scalar == 1) {
    put_operand(b, group, op->in[0], within);
    return;
  }
  size_t begun = b->length;
  put(b, "%s%s * ", within ? "(" : "", factor_text(op->scalar));
  size_t of = b->length;
  put_operand(b, group, op->in[0], true);
  if (!strcmp(b->text + of, "1")) {
    b->length = begun;
    put(b, "%s", factor_text(op->scalar));
  } else {
    put(b, "%s", within ? ")" : "");
  }
}

static void put_operand(struct buffer *b, const struct op *group, int value, bool within)
{
  const struct op *maker = inner_maker(group, value);
  const struct value *v = &graph->value[value];
  if (maker && left-- <= 0)
    put(b, "%s(...)", op_name(maker));
  else if (maker && maker->kind == OP_expand)
    put_stretched(b, group, maker, within);
  else if (maker)
    put_nested(b, group, maker, within);
  else if (v->op != NONE && !v->stored)
    put(b, "%g", graph->op[v->op].scalar);
  else
    put(b, "%s", shown(value));
}

/* "a + b" for the operators that C writes between their operands, "relu(a)" for the others. */
static void put_call(struct buffer *b, const struct op *group, const struct op *op, bool within)
{
  static const char *const sign[OP_COUNT] = {
      [OP_add] = " + ",        [OP_sub] = " - ", [OP_mul] = " * ", [OP_div] = " / ",
      [OP_matmul] = " @ ",     [OP_eq] = " == ", [OP_ne] = " != ", [OP_lt] = " < ",
      [OP_le] = " <= ",        [OP_gt] = " > ",  [OP_ge] = " >= ", [OP_logical_and] = " && ",
      [OP_logical_or] = " || "};
  bool infix = sign[op->kind] != NULL;
  put(b, "%s%s", infix ? "" : op_name(op), infix && !within ? "" : "(");
  for (int i = 0; i < op->nin; i++) {
    put(b, "%s", !i ? "" : infix ? sign[op->kind] : ", ");
    put_operand(b, group, op->in[i], infix && i > 0);
  }
  if (op->kind == OP_power) put(b, ", %s", double_text(op->scalar));
  put(b, "%s", infix && !within ? "" : ")");
}

/* The number that the operation multiplies by without its name telling. */
static double factor_of(const struct op *op)
{
  bool has_factor = op->kind == OP_scale || op->kind == OP_expand ||
                    (op->kind == OP_sum && !strcmp(op_name(op), "sum"));
  return has_factor ? op->scalar : 1;
}

static void put_nested(struct buffer *b, const struct op *group, const struct op *op, bool within)
{
  double factor = factor_of(op);
  if (factor == 1) {
    put_call(b, group, op, within);
    return;
  }
  put(b, "%s%s * ", within ? "(" : "", factor_text(factor));
  if (op->kind == OP_scale)
    put_operand(b, group, op->in[0], true);
  else
    put_call(b, group, op, true);
  put(b, "%s", within ? ")" : "");
}

static char *nested_text(const struct op *op)
{
  struct buffer b = {0};
  put_nested(&b, op, op, false);
  return b.text;
}

/* "x @ w    ak,nk->an", or "d_w + (x @ y)    ab,ac->bc" where the product is added to its
   output. */
static char *product_text(const struct op *op)
{
  struct op two = *op;
  struct buffer b = {0};
  two.nin = 2;
  if (op->nin == two.nin) return text("%s    %s", nested_text(op), op->equation);
  put(&b, "%s + ", shown(op->in[2]));
  put_nested(&b, op, &two, true);
  put(&b, "    %s", op->equation);
  return b.text;
}

char *expression_text(const struct op *op)
{
  if (op->kind == OP_matmul) return product_text(op);
  if (op->kind == OP_view)
    return text("%s    %s -> %s", nested_text(op), shape_text(graph->value[op->in[0]].shape),
                shape_text(graph->value[op->out].shape));
  if (op->kind != OP_fused && op->kind != OP_epilogue) return nested_text(op);
  enum { MOST = 40 };
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!graph->value[inner->out].stored) continue;
    left = MOST;
    put(&b, "%s%s = ", b.length ? "; " : "", shown(inner->out));
    put_nested(&b, op, inner, false);
  }
  return b.text;
}

static char *layout_of(int value)
{
  return holds_pieces(value) ? copy_text("pieces") : layout_text(graph->value[value].layout);
}

char *layouts_text(const struct op *op)
{
  struct buffer b = {0};
  const struct move *m = op->kind == OP_exchange ? &graph->exchange[op->exchange].move : NULL;
  if (m) return text("%s -> %s", layout_text(m->from), layout_text(m->to));
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_reads(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_of(list[i]));
  put(&b, "%s-> ", b.length ? " " : "");
  for (int i = 0, n = op_writes(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_of(list[i]));
  return b.text;
}

static char *where(int line)
{
  return line > 0 ? text("%s:%d", plan_shown(), line) : copy_text(plan_shown());
}

/* "plans/toy.lua:14, 34": where the operations of a kernel come from. */
static char *lines_of(const struct op *op)
{
  if (op->kind != OP_fused && op->kind != OP_epilogue) return where(op->line);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    int line = graph->op[op->body[k]].line;
    bool told = false;
    for (int i = 0; i < k; i++) told |= graph->op[op->body[i]].line == line;
    if (!told && !b.length)
      put(&b, "%s:%d", plan_shown(), line);
    else if (!told)
      put(&b, ", %d", line);
  }
  return b.text;
}

char *reduced_text(const struct op *op)
{
  if (graph->value[graph->value[op->out].storage].role == GRADIENT)
    return text("%d gradients", op->nbody);
  if (graph->value[op->in[0]].role == PARAMETER) return text("%d parameters", op->nbody);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++)
    put(&b, "%s%s", k ? ", " : "", shown(graph->op[op->body[k]].in[0]));
  return b.text;
}

/* "S(0) R -> R R over a" */
static char *move_text(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  struct layout from = graph->value[in].layout, to = graph->value[op->out].layout;
  struct buffer over = {0};
  if (op->kind == OP_exchange) {
    from = graph->exchange[op->exchange].move.from;
    to = graph->exchange[op->exchange].move.to;
  }
  if (is_collective(op->kind)) put(&over, "%s", printable(graph->group[op->group].name));
  for (int d = 0; d < graph->mesh.ndim && !is_collective(op->kind); d++)
    if (!same_placement(from.on[d], to.on[d]) && graph->mesh.size[d] > 1)
      put(&over, "%s%s", over.length ? "_" : "", printable(graph->mesh.name[d]));
  return text("%s -> %s%s%s", layout_text(from), layout_text(to), over.length ? " over " : "",
              over.length ? over.text : "");
}

/* What a packing is for. */
static char *packing_text(const struct op *op)
{
  switch (op->kind) {
  case OP_pack:
    return text("its parts along dimension %d, one after the other, for %s", op->dim,
                printable(graph->group[op->group].name));
  case OP_unpack:
    return text("the parts of %s, put together along dimension %d",
                printable(graph->group[op->group].name), op->dim);
  case OP_pack_pieces:
    return copy_text("the pieces that others need, one after the other");
  default:
    return copy_text("the pieces that came, each to its place");
  }
}

static bool is_packing(enum op_kind k)
{
  return k == OP_pack || k == OP_unpack || k == OP_pack_pieces || k == OP_unpack_pieces;
}

/* How much a collective moves: the value that rank 0 brings; of an exchange, whose ranks differ,
   the most that one gives, and gets. */
static char *bytes_text(const struct op *op)
{
  if (op->kind != OP_exchange) return text("%s bytes", grouped(collective_bytes(op, 0)));
  struct busiest most = busiest_of(op);
  return text("at most %s bytes from a rank, %s to one", grouped(most.sent),
              grouped(most.received));
}

static char *squares_comment(const struct op *op)
{
  bool whole = same_layout(graph->value[op->out].layout, (struct layout){0});
  return text("the squares of all %d gradients, summed%s", op->nbody,
              whole ? "" : "; of what several ranks hold each brings its share");
}

/* Whether the backward runs all of it once more. */
static bool is_again(const struct op *op)
{
  for (int k = 0; k < op->nbody; k++)
    if (!graph->op[op->body[k]].again) return false;
  return op->again || op->nbody;
}

/* "On tp's stream, beside d_wq, d_wk." */
static char *stream_text(const struct op *op)
{
  const char *group = printable(graph->group[op->group].name);
  const struct op *leader = leader_of(op);
  if (leader && leader->group != op->group)
    group = text("%s's stream, behind %s", group, printable(graph->group[leader->group].name));
  return text("On %s's stream, beside %s.", group, beside_text(op, shown));
}

static char *await_comment(const struct op *begun)
{
  const char *what = begun->nbody ? reduced_text(begun) : shown(begun->out);
  return text("%s: from %s's stream", what, printable(graph->group[begun->group].name));
}

/* "up.weight, ahead for the module that follows", "d_up.weight of the module before". */
static char *round_comment(const struct op *op)
{
  static const char *const nth[MOST_PREFETCHED] = {"first", "second", "third", "fourth"};
  const struct function *part = &graph->function[op->function];
  const struct op *last = &graph->op[part->op[part->nop - 1]];
  const struct op *c = last->kind == OP_await ? &graph->op[last->begun] : last;
  const char *what = c->nbody ? reduced_text(c) : shown(c->ahead || c->late ? c->in[0] : c->out);
  int module = module_of_round(part, round_called(op, 0));
  switch (op->round) {
  case FIRST_ROUND:
    return text("%s of module %d, for the %s round", what, module, nth[op->far]);
  case LAST_ROUND:
    return text("%s of module %d, of the last round: from %s's stream", what, module,
                printable(graph->group[c->group].name));
  case IN_LAST_ROUND:
    return text("%s of what follows the loop, in its last round", what);
  case NEXT_ROUND:
    if (op->far > 1)
      return text("%s of module l %c %d, %d rounds ahead", what, part->upward ? '+' : '-', op->far,
                  op->far);
    return text("%s of the next module, a round ahead", what);
  default:
    return text("%s of the module before: from %s's stream", what,
                printable(graph->group[c->group].name));
  }
}

/* "Piece 1 of 4: ", counted from 1. */
static char *piece_text(const struct op *op)
{
  return op->pieces ? text("Piece %d of %d: ", op->piece + 1, op->pieces) : copy_text("");
}

/* What a reader wants to know of an operation before its statement. */
char *comment_text(const struct op *op)
{
  if (op->kind == OP_adamw || op->kind == OP_sgd)
    return text("%s over %d parameters at once: they lie one behind another    %s",
                graph->optimizer.name, op->nbody, where(graph->optimizer.line));
  if (op->kind == OP_squares) return squares_comment(op);
  if (op->kind == OP_norm) return copy_text("the norm of all gradients");
  if (op->kind == OP_loop)
    return text("%s, %d modules", printable(graph->module[op->module].path),
                graph->function[op->function].count);
  if (op->kind == OP_await) return await_comment(&graph->op[op->begun]);
  if (op->kind == OP_round) return round_comment(op);
  const char *again = is_again(op) ? "again: " : "";
  if (!op->why || op->kind == OP_view)
    return text("%s%s%s    %s    %s", piece_text(op), again, expression_text(op), lines_of(op),
                layouts_text(op));
  struct buffer b = {0};
  const char *what = shown(op->kind == OP_unpack_pieces ? op->out : op->in[0]);
  put(&b, "%s%s%s: %s", is_collective(op->kind) ? piece_text(op) : "", again,
      op->nbody ? reduced_text(op) : what, is_packing(op->kind) ? packing_text(op) : move_text(op));
  if (is_collective(op->kind)) put(&b, ", %s", bytes_text(op));
  put(&b, ": %s", printable(op->why));
  if (!op->nbody || has_chunks(op)) put(&b, ", %s", where(op->line));
  if (op->beside && options.cuda) put(&b, ". %s", stream_text(op));
  return b.text;
}

/* Where the next "; a = b" of a list of assignments begins, or the end. */
static const char *next_assignment(const char *s)
{
  for (const char *at = s; (at = strstr(at, "; ")); at++) {
    const char *sign = strstr(at, " = "), *next = strstr(at + 1, "; ");
    if (sign && (!next || sign < next)) return at;
  }
  return s + strlen(s);
}

/* A line of a comment, which goes on further in where it is too long. */
static void put_comment(struct buffer *b, const char *s, int length, int indent)
{
  char *line = text("%*s// %.*s", indent, "", length, s);
  for (char *c = line; (c = strstr(c, " bytes")); c++)
    if (isdigit((unsigned char)c[-1])) *c = KEPT_BLANK;
  put(b, "%s\n", wrapped(line, " ", text("%*s//     ", indent, "")));
}

/* A comment as lines. Where one line does not hold it each assignment has its own, and what follows
   them, in fields set apart by four blanks, as few as hold it. */
char *comment_lines(const char *s, int indent)
{
  enum { COLUMNS = 100, GAP = 4 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  int room = COLUMNS - indent - 3;
  const char *fields = strstr(s, "    ");
  size_t all = strlen(s), told = fields ? (size_t)(fields - s) : all;
  const char *expression = text("%.*s", (int)told, s);
  for (const char *end; all > (size_t)room && *(end = next_assignment(expression));) {
    put_comment(&b, expression, (int)(end - expression), indent);
    expression = end + 2;
  }
  bool alone = b.length || strlen(expression) > (size_t)room;
  const char *line = expression, *rest = fields;
  while (rest) {
    const char *field = rest + GAP;
    rest = strstr(field, "    ");
    const char *word = text("%.*s", (int)(rest ? (size_t)(rest - field) : strlen(field)), field);
    const char *longer = text("%s    %s", line, word);
    bool breaks = alone || strlen(longer) > (size_t)room;
    if (breaks) put_comment(&b, line, (int)strlen(line), indent);
    line = breaks ? word : longer;
    alone = false;
  }
  put_comment(&b, line, (int)strlen(line), indent);
  return b.text;
}

/* ----------------------------------------------------------------------------------- statements */

/* The C of one operation, or "" where this rank has nothing to do. */
char *statement_text(const struct op *op, int rank)
{
  switch (op->kind) {
  case OP_matmul:
    return matmul_text(op, rank);
  case OP_epilogue:
    return epilogue_text(op, rank);
  case OP_fused:
  case OP_adamw:
  case OP_sgd:
    return kernel_call(op, rank);
  case OP_squares:
    return squares_text(op, rank);
  case OP_norm:
    return norm_text(op);
  case OP_await:
    return await_text(op, rank);
  default:
    if (is_copy(op->kind)) return copies_text(op, rank);
    return has_kernel(op->kind) ? file_kernel_call(op, rank) : collective_text(op, rank);
  }
}
