/* emit.c: the pass `emit`: the files of out/.

   Takes   the finished graph, and the templates.
   Leaves  the text of every file, for write.c. Only this pass, kernel.c and names.c know the target.

   Ranks whose parts have the same shapes run the same text: a class of ranks shares a step file. What
   is a rank's alone, where its parts begin and whom it meets, is in its own file, as constants. */
#include "tpgen.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- templates */

char *fill(const char *template, ...)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *c = template; *c;) {
    size_t plain = strcspn(c, "$");
    put_text(&b, c, plain);
    c += plain;
    if (!*c) break;
    size_t n = strcspn(c + 1, "$ \n");
    va_list list;
    va_start(list, template);
    const char *name, *value = NULL;
    while ((name = va_arg(list, const char *))) {
      value = va_arg(list, const char *);
      if (c[n + 1] == '$' && strlen(name) == n && !strncmp(name, c + 1, n)) break;
      value = NULL;
    }
    va_end(list);
    if (value) {
      put(&b, "%s", value);
      c += n + 2;
    } else {
      put_text(&b, c++, 1);
    }
  }
  return b.text;
}

/* ------------------------------------------------------------------------------------- comments */

static const char *plan_shown(void)
{
  return printable(graph->path);
}

static const char *shown(int value)
{
  return printable(local_name(value));
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

static char *nested_text(const struct op *group, const struct op *op, bool within);

static char *operand(const struct op *group, int value, bool within)
{
  const struct op *maker = inner_maker(group, value);
  if (maker) return nested_text(group, maker, within);
  const struct value *v = &graph->value[value];
  if (v->op != NONE && !v->stored) return text("%g", graph->op[v->op].scalar);
  return copy_text(shown(value));
}

/* "a + b" for the operators that C writes between their operands, "relu(a)" for the others. */
static char *nested_text(const struct op *group, const struct op *op, bool within)
{
  static const char *const sign[OP_COUNT] = {[OP_add] = " + ", [OP_sub] = " - ", [OP_mul] = " * ",
                                             [OP_div] = " / ", [OP_matmul] = " @ "};
  struct buffer b = {0};
  bool infix = sign[op->kind] != NULL;
  put(&b, "%s%s", infix ? "" : op_name(op), infix && !within ? "" : "(");
  for (int i = 0; i < op->nin; i++) {
    const char *between = !i ? "" : infix ? sign[op->kind] : ", ";
    put(&b, "%s%s", between, operand(group, op->in[i], infix && i > 0));
  }
  put(&b, "%s", infix && !within ? "" : ")");
  return b.text;
}

char *expression_text(const struct op *op)
{
  if (op->kind == OP_matmul) return text("%s    %s", nested_text(op, op, false), op->equation);
  if (op->kind != OP_fused) return nested_text(op, op, false);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!graph->value[inner->out].stored) continue;
    put(&b, "%s%s = %s", b.length ? "; " : "", shown(inner->out), nested_text(op, inner, false));
  }
  return b.text;
}

char *layouts_text(const struct op *op)
{
  struct buffer b = {0};
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_reads(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_text(graph->value[list[i]].layout));
  put(&b, " -> ");
  for (int i = 0, n = op_writes(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", layout_text(graph->value[list[i]].layout));
  return b.text;
}

static char *where(int line)
{
  return line > 0 ? text("%s:%d", plan_shown(), line) : copy_text(plan_shown());
}

/* "plans/toy.lua:14, 34": where the operations of a kernel come from. */
static char *lines_of(const struct op *op)
{
  if (op->kind != OP_fused) return where(op->line);
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

/* --------------------------------------------------------------------------------- the products */

/* A product of matrices: for each of `batch`, c[m, n] = a[m, k] b[k, n], an operand transposed
   where its letters stand the other way round. */
struct product {
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed, swapped;
};

static int64_t size_of_letters(const struct op *op, const char *letters, int rank)
{
  int64_t size = 1;
  const char *c = op->equation;
  for (int i = 0; i < 2; i++, c += *c == ',') {
    struct shape here = local_shape(op->in[i], rank);
    for (int d = 0; *c && *c != ',' && *c != '-'; c++, d++) {
      bool counted = i == 1 && memchr(op->equation, *c, strcspn(op->equation, ","));
      if (strchr(letters, *c) && !counted) size *= here.size[d];
    }
  }
  return size;
}

/* Which letters of x are in y and, where z is given, not in z. */
static char *common(const char *x, const char *y, const char *z)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (; *x; x++)
    if (strchr(y, *x) && !strchr(z, *x)) put_text(&b, x, 1);
  return b.text;
}

/* Whether an operand is [batch, first, second] (1), [batch, second, first] (-1) or neither (0). */
static int order_of(const char *operand, const char *batch, const char *first, const char *second)
{
  if (!strcmp(operand, text("%s%s%s", batch, first, second))) return 1;
  if (!strcmp(operand, text("%s%s%s", batch, second, first))) return -1;
  return 0;
}

static struct product product_of(const struct op *op, int rank)
{
  int at = 0;
  const char *arrow = strchr(op->equation, '-');
  char *a = text("%.*s", (int)strcspn(op->equation, ","), op->equation);
  at = (int)strlen(a) + 1;
  char *b = text("%.*s", (int)(arrow - op->equation) - at, op->equation + at);
  const char *c = arrow + strlen("->");
  char *batch = common(common(c, a, ""), b, "");
  char *m = common(c, a, b), *n = common(c, b, a), *k = common(a, b, c);
  int in_c = order_of(c, batch, m, n), in_a = order_of(a, batch, m, k), in_b = order_of(b, batch, k, n);
  if (!in_a || !in_b || !in_c)
    plan_error(op->line, "matmul %s: this order of dimensions has no product of matrices; transpose first",
               op->equation);
  struct product p = {.batch = size_of_letters(op, batch, rank), .m = size_of_letters(op, m, rank),
                      .n = size_of_letters(op, n, rank), .k = size_of_letters(op, k, rank),
                      .a_transposed = in_a < 0, .b_transposed = in_b < 0, .swapped = in_c < 0};
  if (p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX)
    plan_error(op->line, "matmul: a rank's part has a side of more than %d", INT32_MAX);
  return p;
}

static char *zero_text(int value, int rank)
{
  int64_t bytes = elements(local_shape(value, rank)) * type_bytes(graph->value[value].type);
  const char *name = c_name(value);
  return options.cuda
             ? text("CHECK_CUDA(cudaMemsetAsync(%s, 0, %" PRId64 ", stream));", name, bytes)
             : text("memset(%s, 0, %" PRId64 ");", name, bytes);
}

static char *matmul_text(const struct op *op, int rank)
{
  struct product p = product_of(op, rank);
  if (p.batch * p.m * p.n == 0) return "";
  if (p.k == 0) return zero_text(op->out, rank);
  const char *a = c_name(op->in[0]), *b = c_name(op->in[1]);
  bool ta = p.a_transposed, tb = p.b_transposed;
  int64_t m = p.m, n = p.n;
  if (p.swapped) {
    /* C^T = B^T A^T */
    const char *first = a;
    a = b;
    b = first;
    ta = !p.b_transposed;
    tb = !p.a_transposed;
    m = p.n;
    n = p.m;
  }
  char *name = text("matmul_%c%c", ta ? 't' : 'n', tb ? 't' : 'n');
  char *sizes = text("%" PRId64 ", %" PRId64 ", %" PRId64, m, n, p.k);
  if (p.batch == 1) return text("%s(%s, %s, %s, %s);", name, c_name(op->out), a, b, sizes);
  return text("for (int b = 0; b < %" PRId64 "; b++)\n    %s(%s + b * %" PRId64 ", %s + b * %" PRId64
              ", %s + b * %" PRId64 ", %s);",
              p.batch, name, c_name(op->out), m * n, a, m * p.k, b, p.k * n, sizes);
}

/* ------------------------------------------------------------------ moves within a rank's memory */

static int64_t row_bytes(int value, int rank, int dim)
{
  struct shape here = local_shape(value, rank);
  int64_t n = type_bytes(graph->value[value].type);
  for (int d = dim; d < here.ndim; d++) n *= here.size[d];
  return n;
}

static int64_t rows(int value, int rank, int dim)
{
  struct shape here = local_shape(value, rank);
  int64_t n = 1;
  for (int d = 0; d < dim; d++) n *= here.size[d];
  return n;
}

/* This rank's part of a whole value: where it begins depends on the rank alone. */
static char *slice_text(const struct op *op, int rank)
{
  int in = op->in[0], out = op->out, dim = op->dim, d = op->mesh_dim;
  if (!c_name(out)) return "";
  struct shape whole = local_shape(in, rank);
  int64_t chunk = (whole.size[dim] + graph->mesh.size[d] - 1) / graph->mesh.size[d];
  int64_t inner = row_bytes(in, rank, dim) / whole.size[dim];
  return text("slice_rows(%s, %s, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
              "L * rank.coordinate[%d]);",
              c_name(out), c_name(in), rows(in, rank, dim), row_bytes(out, rank, dim),
              row_bytes(in, rank, dim), chunk * inner, d);
}

/* The sizes in bytes of the parts along op->dim that the ranks of the mesh dimension hold. */
static char *part_bytes(const struct op *op, int rank)
{
  int coordinate[MAX_MESH], value = op->in[0];
  coordinate_of(rank, coordinate);
  int64_t inner = row_bytes(value, rank, op->dim) / local_shape(value, rank).size[op->dim];
  struct buffer b = {0};
  for (int r = 0; r < graph->mesh.size[op->mesh_dim]; r++) {
    coordinate[op->mesh_dim] = r;
    struct part p = local_part(&graph->mesh, graph->value[value].shape, op->to, coordinate);
    put(&b, "%s%" PRId64, r ? ", " : "", p.shape.size[op->dim] * inner);
  }
  return b.text;
}

static char *pack_text(const struct op *op, int rank)
{
  if (!c_name(op->out)) return "";
  return text("{\n    static const long part[] = {%s};\n"
              "    %s_parts(%s, %s, %" PRId64 ", %d, part);\n  }",
              part_bytes(op, rank), op_row[op->kind].name, c_name(op->out), c_name(op->in[0]),
              rows(op->in[0], rank, op->dim), graph->mesh.size[op->mesh_dim]);
}

/* The value is a sum in which the first rank along the mesh dimension has all. */
static char *to_partial_text(const struct op *op, int rank)
{
  if (!c_name(op->out)) return "";
  int64_t bytes = row_bytes(op->out, rank, 0);
  struct buffer b = {0};
  if (graph->value[op->in[0]].storage != graph->value[op->out].storage)
    put(&b, "slice_rows(%s, %s, 1, %" PRId64 ", %" PRId64 ", 0);\n  ", c_name(op->out),
        c_name(op->in[0]), bytes, bytes);
  put(&b, "if (rank.coordinate[%d] != 0) %s", op->mesh_dim, zero_text(op->out, rank));
  return b.text;
}

/* A kernel over no element writes nothing, but for its sums, which are zero. */
static char *empty_text(const struct op *op, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_writes(op, list); i < n; i++)
    if (c_name(list[i])) put(&b, "%s%s", b.length ? "\n  " : "", zero_text(list[i], rank));
  return b.text;
}

static bool is_empty(const struct op *op, int rank)
{
  const struct op *first = &graph->op[op->body[0]];
  int space = is_reduce(first->kind) ? first->in[0] : first->out;
  return elements(local_shape(space, rank)) == 0;
}

static char *loop_text(const struct function *f)
{
  if (f->upward) return text("for (int l = 0; l < %d; l++) %s(l);", f->count, f->name);
  return text("for (int l = %d; l >= 0; l--) %s(l);", f->count - 1, f->name);
}

/* The C of one operation, or "" where this rank has nothing to do. */
static char *statement(const struct op *op, int rank)
{
  switch (op->kind) {
  case OP_loop: return loop_text(&graph->function[op->function]);
  case OP_matmul: return matmul_text(op, rank);
  case OP_slice: return slice_text(op, rank);
  case OP_to_partial: return to_partial_text(op, rank);
  case OP_pack:
  case OP_unpack: return pack_text(op, rank);
  case OP_fused: return is_empty(op, rank) ? empty_text(op, rank) : kernel_call(op, rank);
  case OP_adamw:
  case OP_sgd: return kernel_call(op, rank);
  default: return collective_text(op, rank);
  }
}

/* ----------------------------------------------------------------------------------- functions */

static const char *moved_from(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  return layout_text(graph->value[in].layout);
}

/* What a reader wants to know of an operation before its statement. */
static char *comment(const struct op *op)
{
  if (op->kind == OP_adamw || op->kind == OP_sgd)
    return text("%s over the rank's parameters, %d at once    %s", graph->optimizer.name, op->nbody,
                where(graph->optimizer.line));
  if (op->kind == OP_loop)
    return text("%s, %d modules", printable(graph->module[op->module].path),
                graph->function[op->function].count);
  if (!op->why)
    return text("%s    %s    %s", expression_text(op), lines_of(op), layouts_text(op));
  struct buffer b = {0};
  put(&b, "%s: %s -> %s over %s: %s", shown(op->in[0]), moved_from(op),
      layout_text(graph->value[op->out].layout), printable(graph->group[op->group].name),
      printable(op->why));
  if (!op->nbody) put(&b, ", %s", where(op->line));
  if (is_collective(op->kind))
    put(&b, ". %" PRId64 " bytes.", collective_bytes(op, 0));
  return b.text;
}

char *wrapped(const char *line, const char *separator, const char *lead)
{
  enum { COLUMNS = 100 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  size_t begun = 0;
  while (strlen(line) + begun > COLUMNS && !strchr(line, '\n')) {
    size_t at = 0;
    for (const char *c = line; (c = strstr(c, separator));) {
      c += strlen(separator);
      if ((size_t)(c - line) + begun > COLUMNS && at) break;
      at = (size_t)(c - line);
    }
    if (!at || !line[at]) break;
    size_t end = at;
    while (end && line[end - 1] == ' ') end--;
    put(&b, "%.*s\n%s", (int)end, line, lead);
    line += at;
    while (*line == ' ') line++;
    begun = strlen(lead);
  }
  put(&b, "%s", line);
  return b.text;
}

/* AdamW corrects its averages by the number of the step. */
static bool takes_step(const struct function *f)
{
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_adamw) return true;
  return false;
}

static char *function_text(const struct function *f, int rank)
{
  struct buffer body = {0}, code = {0}, b = {0};
  put_text(&body, "", 0);
  put_text(&code, "", 0);
  name_locals(f);
  bool constants = false;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    char *does = statement(op, rank);
    if (!*does) continue;
    put(&body, "%s%s\n", body.length ? "\n" : "",
        wrapped(text("  // %s", comment(op)), " ", "  // "));
    if (op->kind == OP_adamw && options.cuda && !constants) {
      put(&body, "%s", fill(embedded_text("templates/adamw_constants.cu"), "beta1",
                            double_text(graph->optimizer.beta1), "beta2",
                            double_text(graph->optimizer.beta2), NULL));
      constants = true;
    }
    put(&body, "%s\n", wrapped(text("  %s", does), ", ", "      "));
    put(&code, "%s\n", does);
  }
  put(&b, "static void %s(%s)\n{\n%s%s}\n\n", f->name,
      f->count > 1 ? "int l" : takes_step(f) ? "int t" : "void", local_declarations(code.text),
      body.text);
  return b.text;
}

static char *functions_text(int rank)
{
  struct buffer b = {0};
  for (int i = 0; i < graph->nfunction; i++) put(&b, "%s", function_text(&graph->function[i], rank));
  put(&b, "static void step(int t)\n{\n");
  bool counted = false;
  for (int i = 0; i < graph->nfunction; i++) {
    if (graph->function[i].count > 1) continue;
    bool takes = takes_step(&graph->function[i]);
    counted |= takes;
    put(&b, "  %s(%s);\n", graph->function[i].name, takes ? "t" : "");
  }
  if (!counted) put(&b, "  (void)t;\n");
  put(&b, "}\n");
  return b.text;
}

/* ---------------------------------------------------------------------------- table of tensors */

/* What the runtime fills, reads and writes, in this order. */
static int tensors(int *list)
{
  int n = 0;
  static const enum role order[] = {PARAMETER, STATE, BATCH, ACTIVATION};
  for (size_t k = 0; k < sizeof order / sizeof *order; k++)
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role == order[k] && (v->role != ACTIVATION || v->is_output)) list[n++] = i;
    }
  return n;
}

/* A name as it stands in files, as a C string: bytes that are not plain are escaped. */
static char *string_text(const char *s)
{
  struct buffer b = {0};
  put(&b, "\"");
  for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
    bool plain = *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\' && *c != '?';
    if (plain)
      put_text(&b, (const char *)c, 1);
    else
      put(&b, "\\%03o", *c);
  }
  put(&b, "\"");
  return b.text;
}

static char *sizes_text(struct shape s)
{
  struct buffer b = {0};
  for (int d = 0; d < s.ndim; d++) put(&b, "%s%" PRId64, d ? ", " : "", s.size[d]);
  if (!s.ndim) put(&b, "1");
  return b.text;
}

static char *tensors_text(int rank)
{
  static const char *const role[] = {[PARAMETER] = "PARAMETER", [STATE] = "STATE", [BATCH] = "BATCH",
                                     [ACTIVATION] = "OUTPUT"};
  static const char *const type[] = {[F32] = "F32", [BF16] = "BF16", [I32] = "I32", [I64] = "I64"};
  static const char *const how[] = {[INIT_CONSTANT] = "CONSTANT", [INIT_UNIFORM] = "UNIFORM",
                                    [INIT_NORMAL] = "NORMAL"};
  struct buffer b = {0};
  put_text(&b, "", 0);
  int *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list), n = tensors(list);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[list[i]];
    const char *at = c_name(list[i]);
    char *offset = at ? text("offsetof(struct memory, %s)", at + strlen("m->")) : "0";
    struct shape here = local_shape(list[i], rank);
    put(&b, "    {%s, %s, %s, %s,\n     %d, {%s}, {%s}, {%s, %.17g, %.17g}},\n",
        string_text(v->name), role[v->role], type[v->type], offset, here.ndim ? here.ndim : 1,
        sizes_text(v->shape), sizes_text(here), how[v->init.kind], v->init.a, v->init.b);
  }
  return b.text;
}

static int count_tensors(void)
{
  int *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  return tensors(list);
}

/* ------------------------------------------------------------------------------- the rank files */

static const char *identifier_of_group(int group)
{
  const char *name = identifier(graph->group[group].name);
  for (int i = 0; i < group; i++)
    if (!strcmp(identifier(graph->group[i].name), name)) return text("%s_%d", name, group + 1);
  return name;
}

const char *group_name(int group)
{
  return text("over_%s", identifier_of_group(group));
}

static char *members_text(int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  int *member = alloc((size_t)world_size() * sizeof *member);
  for (int g = 0; g < graph->ngroup; g++) {
    put(&b, "static const int %s[] = {", group_name(g));
    int n = group_members(g, rank, member);
    for (int i = 0; i < n; i++) put(&b, "%d, ", member[i]);
    put(&b, "-1};\n");
  }
  put(&b, "static const int *const members[] = {");
  for (int g = 0; g < graph->ngroup; g++) put(&b, "%s, ", group_name(g));
  put(&b, "NULL};");
  return b.text;
}

static char *coordinate_text(int rank)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(&b, "%s%d", d ? ", " : "", coordinate[d]);
  return b.text;
}

static char *mesh_names(void)
{
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(&b, "%s%s", d ? ", " : "", printable(graph->mesh.name[d]));
  return b.text;
}

/* The first rank, of those that hold the same part, is the one that writes it. */
static bool owns(int value, int rank)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->value[value].layout.on[d].kind != SHARD && coordinate[d]) return false;
  return elements(local_shape(value, rank)) > 0;
}

static char *rank_text(int rank)
{
  int *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list), n = tensors(list);
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct buffer first = {0}, own = {0};
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[list[i]];
    struct part p = local_part(&graph->mesh, v->shape, v->layout, coordinate);
    struct shape at = {.ndim = v->shape.ndim};
    memcpy(at.size, p.first, sizeof at.size);
    if (!at.ndim) at = (struct shape){.ndim = 1};
    char *row = text("{%s},", sizes_text(at));
    put(&first, "    %-14s // %s\n", row, printable(v->name));
    put(&own, "%s%d", i ? ", " : "", owns(list[i], rank));
  }
  if (!n) put(&first, "    {0},\n"), put(&own, "0");
  return fill(embedded_text(options.cuda ? "templates/rank.cu" : "templates/rank.c"), "version",
              TPGEN_VERSION, "plan", plan_shown(), "hash", graph->hash, "rank",
              text("%d", rank), "coordinate", coordinate_text(rank), "mesh", mesh_names(), "members",
              members_text(rank), "first", first.text, "owns", own.text, NULL);
}

/* ------------------------------------------------------------------------------- the step files */

static char *groups_text(bool declare)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int g = 0; g < graph->ngroup; g++) {
    if (declare)
      put(&b, "%s%s", g ? ", " : "static communicator ", group_name(g));
    else
      put(&b, "    {%s, &%s},\n", string_text(graph->group[g].name), group_name(g));
  }
  if (declare && graph->ngroup) put(&b, ";  // the runtime makes them from the members in rank<N>\n");
  if (!declare && !graph->ngroup) put(&b, "    {0, 0},\n");
  return b.text;
}

static char *ranks_text(const int *class_of, int mine)
{
  struct buffer b = {0};
  int world = world_size();
  for (int r = 0; r < world; r++) {
    if (class_of[r] != mine) continue;
    int last = r;
    while (last + 1 < world && class_of[last + 1] == mine) last++;
    put(&b, "%s%d", b.length ? ", " : "", r);
    if (last > r) put(&b, "-%d", last);
    r = last;
  }
  return b.text;
}

static char *step_text(int rank, const char *ranks)
{
  name_values(rank);
  char *tensor_rows = tensors_text(rank);
  functions_text(rank);        /* once for the kernels, whose names no variable may take */
  char *functions = functions_text(rank);
  return fill(embedded_text(options.cuda ? "templates/step.cu" : "templates/step.c"), "version",
              TPGEN_VERSION, "plan", plan_shown(), "plan_string", string_text(graph->path),
              "hash", graph->hash, "summary", summary_text(rank), "ranks", ranks, "memory",
              memory_declaration(), "communicators", groups_text(true), "functions", functions,
              "tensors", tensor_rows, "ntensors", text("%d", count_tensors()), "groups",
              groups_text(false), "ngroups", text("%d", graph->ngroup), "world",
              text("%d", world_size()), "seed", text("%" PRIu64 "u", graph->seed), "steps",
              text("%d", graph->steps), "loss",
              graph->loss == NONE ? "-1" : "offsetof(struct memory, loss)", NULL);
}

/* What decides the text of a rank's step: the shapes of all its parts and of those it exchanges. */
static uint64_t signature(int rank)
{
  uint64_t h = HASH_START;
  for (int i = 0; i < graph->nvalue; i++) {
    struct shape here = local_shape(i, rank);
    h = hash_bytes(h, here.size, (size_t)here.ndim * sizeof *here.size);
  }
  struct sequence s = issued_by(rank);
  for (int i = 0; i < s.n; i++) {
    size_t bytes = (size_t)group_size(s.issue[i].group) * sizeof(int64_t);
    h = hash_bytes(hash_bytes(h, s.issue[i].give, bytes), s.issue[i].get, bytes);
  }
  return h;
}

static char *step_name(int class)
{
  return class ? text("step_%d", class) : copy_text("step");
}

static void add_text(const char *name, const char *contents)
{
  add_file(name, contents, strlen(contents), false);
}

static void add_runtime(void)
{
  const char *other = options.cuda ? "runtime/cpu" : "runtime/cuda";
  for (const struct embedded *e = embedded; e->name; e++)
    if (!strncmp(e->name, "runtime/", 8) && strncmp(e->name, other, strlen(other)))
      add_file(e->name, (const char *)e->text, e->size, false);
}

static void add_kernels(const char *suffix)
{
  char *common[] = {"version", TPGEN_VERSION, "plan", copy_text(plan_shown()), "hash",
                    copy_text(graph->hash)};
  const char *c = embedded_text(text("templates/kernels.%s", suffix));
  const char *h = embedded_text(options.cuda ? "templates/kernels.cuh" : "templates/kernels.h");
  add_text(text("kernels.%s", suffix), fill(c, common[0], common[1], common[2], common[3], common[4],
                                            common[5], "kernels", kernel_definitions(), NULL));
  add_text("kernels.h", fill(h, common[0], common[1], common[2], common[3], common[4], common[5],
                             "prototypes", kernel_prototypes(), NULL));
}

static void add_launcher(const char *ranks)
{
  char *world = text("%d", world_size());
  const char *cmake = options.cuda ? "templates/CMakeLists.cuda.txt" : "templates/CMakeLists.cpu.txt";
  add_text("CMakeLists.txt", fill(embedded_text(cmake), "plan", plan_shown(), "hash",
                                  graph->hash, "ranks", ranks, "world", world, NULL));
  char *run = fill(embedded_text("templates/run.sh"), "plan", plan_shown(), "world", world,
                   "hash", graph->hash, NULL);
  add_file("run.sh", run, strlen(run), true);
}

void emit(void)
{
  const char *suffix = options.cuda ? "cu" : "c";
  int world = world_size(), nclass = 0;
  int *class_of = alloc((size_t)world * sizeof *class_of);
  int *first_of = alloc((size_t)world * sizeof *first_of);
  uint64_t *seen = alloc((size_t)world * sizeof *seen);
  for (int r = 0; r < world; r++) {
    uint64_t mine = signature(r);
    int class = 0;
    while (class < nclass && seen[class] != mine) class++;
    if (class == nclass) first_of[nclass++] = r;
    seen[class] = mine;
    class_of[r] = class;
  }
  struct buffer ranks = {0};
  bool *needed = alloc((size_t)nclass * sizeof *needed);
  for (int r = options.first_rank; r <= options.last_rank && r < world; r++) {
    needed[class_of[r]] = true;
    add_text(text("rank%d.%s", r, suffix), rank_text(r));
    put(&ranks, "%s%d:%s", ranks.length ? " " : "", r, step_name(class_of[r]));
  }
  for (int c = 0; c < nclass; c++)
    if (needed[c])
      add_text(text("%s.%s", step_name(c), suffix), step_text(first_of[c], ranks_text(class_of, c)));
  add_kernels(suffix);
  struct buffer plan = {0}, json = {0};
  report_text(&plan);
  report_json(&json);
  add_text("plan.txt", plan.text);
  add_text("plan.json", json.text);
  add_launcher(ranks.text);
  add_runtime();
}
