/* DTensor's two rules, and the compiler's choice where they have one: their results for every line
   of the golden tables (TPGEN_GOLDEN, or tests/golden), and for cases that the tables lack: ties,
   enforced layouts, three inputs, meshes of three dimensions, uneven sizes, and misuse. */
#include "check/check.h"
#include "einop.h"
#include "unit.h"

enum { RULE, LINEAR, MESH, SHAPES, GIVEN, VERDICT, RESULT, FIELDS };

/* The parts of "8x6 | 6"; gives how many. They lie in `list`. */
static int parts_of(char *list, char **part)
{
  int n = 0;
  while (list) {
    must(n < MAX_INPUTS, "more than %d inputs", MAX_INPUTS);
    part[n++] = list;
    list = strstr(list, " | ");
    if (list) {
      *list = 0;
      list += 3;
    }
  }
  return n;
}

/* Only what a table may say: R, S(d), P, and P(max), P(min) of our own; one for each dimension. */
static struct layout read_layout(const char *s)
{
  struct layout layout = {0};
  int n = 0;
  for (const char *at = s; *at; n++) {
    size_t length = strcspn(at, " ");
    must(n < graph->mesh.ndim, "too many placements: '%s'", s);
    bool shard = length == 4 && !strncmp(at, "S(", 2) && at[2] >= '0' && at[2] <= '9';
    bool extreme = length == 6 && (!strncmp(at, "P(max)", 6) || !strncmp(at, "P(min)", 6));
    must(shard || extreme || (length == 1 && strchr("RP", *at)), "no placements: '%s'", s);
    layout.on[n] = parse_placement(at);
    if (extreme) layout.on[n].reduction = at[3] == 'a' ? MAX : MIN;
    at += length;
    at += *at == ' ';
  }
  must(n == graph->mesh.ndim, "%d placements on a mesh of %d: '%s'", n, graph->mesh.ndim, s);
  return layout;
}

/* Numbers and crosses only, which parse_shape and parse_mesh take for granted. */
static void must_be_sizes(const char *s, int most)
{
  int n = 1;
  must(*s >= '1' && *s <= '9' && s[strlen(s) - 1] != 'x', "no sizes: '%s'", s);
  for (const char *c = s; *c; c++) {
    must(strchr("0123456789x", *c) && (*c != 'x' || c[1] != 'x'), "no sizes: '%s'", s);
    n += *c == 'x';
  }
  must(n <= most, "more than %d sizes: '%s'", most, s);
}

/* One graph for all lines of a table that stand on the same mesh. */
static void stand_on(const char *mesh)
{
  static const char *last;
  if (last && !strcmp(last, mesh)) return;
  must_be_sizes(mesh, MAX_MESH);
  int size[MAX_MESH], ndim = parse_mesh(mesh, size);
  new_graph(ndim, size);
  last = copy_text(mesh);
}

static struct ruled read_op(const char *linear, const char *shapes, const char *layouts)
{
  struct ruled op = {.linear = *linear == '1'};
  char *shape[MAX_INPUTS], *layout[MAX_INPUTS];
  op.nin = parts_of(copy_text(shapes), shape);
  must(op.nin == parts_of(copy_text(layouts), layout), "'%s' and '%s'", shapes, layouts);
  for (int i = 0; i < op.nin; i++) {
    if (strcmp(shape[i], "scalar")) {
      must_be_sizes(shape[i], MAX_DIMS);
      op.shape[i] = parse_shape(shape[i]);
    }
    op.layout[i] = read_layout(layout[i]);
  }
  return op;
}

/* As the tables write it: on every mesh dimension, "P" for a pending sum. */
static void put_layout(struct buffer *b, struct layout layout)
{
  for (int m = 0; m < graph->mesh.ndim; m++) {
    const struct placement *p = &layout.on[m];
    bool sum = p->kind == PARTIAL && p->reduction == SUM;
    put(b, "%s%s", m ? " " : "", sum ? "P" : placement_text(*p));
  }
}

/* "out S(0)", "reshard R | S(1)", "error" and the message. */
static char *ruling_text(const struct ruling *ruling, int nin)
{
  struct buffer b = {0};
  switch (ruling->what) {
  case RULE_RUNS:
    put(&b, "out ");
    put_layout(&b, ruling->out);
    break;
  case RULE_RESHARDS:
    for (int i = 0; i < nin; i++) {
      put(&b, "%s", i ? " | " : "reshard ");
      put_layout(&b, ruling->in[i]);
    }
    break;
  case RULE_ERROR:
    put(&b, "error %s", ruling->error);
    break;
  }
  return b.text;
}

/* ---------------------------------------------------------------------------- the golden tables */

static void must_be_readable(int fields, char **field, const char *where)
{
  must(fields == FIELDS, "%s: %d fields", where, fields);
  must(!strcmp(field[LINEAR], "0") || !strcmp(field[LINEAR], "1"), "%s: linear is '%s'", where,
       field[LINEAR]);
  must(strstr(field[RULE], "->") || !strcmp(field[RULE], "inplace") ||
           !strcmp(field[RULE], "out-of-place"),
       "%s: '%s' is neither a variant nor an equation", where, field[RULE]);
  must(!strcmp(field[VERDICT], "out") || !strcmp(field[VERDICT], "reshard") ||
           !strcmp(field[VERDICT], "error"),
       "%s: the verdict is '%s'", where, field[VERDICT]);
}

static struct ruling rule_of_line(char **field, struct ruled *op)
{
  if (strstr(field[RULE], "->")) return einop_rule(field[RULE], op, NULL);
  if (!strcmp(field[RULE], "inplace")) op->enforce = &op->layout[0];
  return pointwise_rule(op);
}

/* What is said otherwise than the line says, or NULL. The tables' errors are of one kind: layouts
   that do not go together, not misuse. */
static const char *other_than(char **field)
{
  stand_on(field[MESH]);
  struct ruled op = read_op(field[LINEAR], field[SHAPES], field[GIVEN]);
  struct ruling ruling = rule_of_line(field, &op);
  char *said = ruling_text(&ruling, op.nin);
  bool same = !strcmp(said, text("%s %s", field[VERDICT], field[RESULT]));
  if (!strcmp(field[VERDICT], "error"))
    same = ruling.what == RULE_ERROR && strstr(ruling.error, "sharded");
  return same ? NULL : said;
}

static void compare_golden(const char *name)
{
  char line[1024], *field[FIELDS + 1];
  int lines = 0, wrong = 0;
  FILE *f = open_golden(name);
  for (int n; (n = golden_line(f, line, sizeof line, field, FIELDS + 1)); lines++) {
    char where[256];
    snprintf(where, sizeof where, "%s, case %d", name, lines + 1);
    must_be_readable(n, field, where);
    const char *said = other_than(field);
    if (!said) continue;
    wrong++;
    print_error("%s: %s, linear %s, mesh %s: %s, %s -> %s, not %s %s\n", where, field[RULE],
                field[LINEAR], field[MESH], field[SHAPES], field[GIVEN], said, field[VERDICT],
                field[RESULT]);
  }
  fclose(f);
  print_message("%s: %d lines compared\n", name, lines);
  must(lines > 0, "%s has no lines", name);
  must(wrong == 0, "%s: %d of %d lines differ", name, wrong, lines);
}

static void test_golden_einop_rule(void **state)
{
  (void)state;
  compare_golden("einop_rule.tsv");
}

static void test_golden_pointwise_rule(void **state)
{
  (void)state;
  compare_golden("pointwise_rule.tsv");
}

/* ------------------------------------------------------------------------ the compiler's choice */

static int *none(int n)
{
  int *list = alloc((size_t)n * sizeof *list);
  for (int i = 0; i < n; i++) list[i] = NONE;
  return list;
}

/* The operation of a line, or NONE: a product of two inputs, or a sum or a product by element. */
static int op_of_line(char **field, const struct ruled *op)
{
  struct op o = {.kind = OP_matmul, .nin = 2, .module = NONE, .line = 1};
  bool linear = *field[LINEAR] == '1', product = strstr(field[RULE], "->") != NULL;
  if (op->nin != 2 || (product && linear)) return NONE;
  if (product) o.equation = copy_text(field[RULE]);
  if (!product) o.kind = linear ? OP_add : OP_mul;
  for (int i = 0; i < op->nin; i++)
    o.in[i] = given(PARAMETER, text("in%d", i), op->shape[i], op->layout[i]);
  return make_op(o);
}

/* Where DTensor's rule says that an operation runs on its inputs as they are, the compiler runs it
   so, with the same layout of the output; unless a dimension of size 1 is cut, which the rule takes
   for one that is summed. */
static void compare_choices(const char *name)
{
  char line[1024], *field[FIELDS + 1];
  int compared = 0;
  FILE *f = open_golden(name);
  while (golden_line(f, line, sizeof line, field, FIELDS + 1)) {
    if (strcmp(field[VERDICT], "out") != 0 || !strcmp(field[RULE], "inplace")) continue;
    int size[MAX_MESH], ndim = parse_mesh(field[MESH], size);
    bool is_one = false;
    new_graph(ndim, size);
    struct ruled ruled = read_op(field[LINEAR], field[SHAPES], field[GIVEN]);
    for (int i = 0; i < ruled.nin; i++)
      for (int m = 0; m < ndim; m++) {
        struct placement p = ruled.layout[i].on[m];
        is_one |= p.kind == SHARD && ruled.shape[i].size[p.dim] == 1;
      }
    int id = is_one ? NONE : op_of_line(field, &ruled);
    if (id == NONE) continue;
    struct ruling ruling = rule_of_line(field, &ruled);
    const struct op *op = &graph->op[id];
    struct def_use uses = {none(graph->nvalue), none(graph->nvalue), none(graph->nvalue),
                           none(graph->nop)};
    struct op_sharding sharding = choose_sharding(&uses, op);
    bool same = same_layout(sharding.out[0], ruling.out);
    for (int i = 0; i < op->nin; i++) same &= same_layout(sharding.in[i], ruled.layout[i]);
    must(same, "%s, mesh %s: %s, %s: tpgen takes %s and %s and leaves %s, not %s", field[RULE],
         field[MESH], field[SHAPES], field[GIVEN], layout_text(sharding.in[0]),
         layout_text(sharding.in[1]), layout_text(sharding.out[0]), layout_text(ruling.out));
    compared++;
  }
  fclose(f);
  print_message("%s: %d choices compared\n", name, compared);
  must(compared > 10, "%s: only %d choices", name, compared);
}

static void test_choices_follow_the_rules(void **state)
{
  (void)state;
  compare_choices("einop_rule.tsv");
  compare_choices("pointwise_rule.tsv");
}

/* ------------------------------------------------------------------------ what the tables lack */

/* enforced: for an equation "m0 k-", the mesh dimensions of letters; else the layout of what an
   in-place or out variant writes. */
struct example {
  const char *rule, *linear, *mesh, *shapes, *given, *enforced, *said;
};

static struct ruling rule_of_example(const struct example *e, const struct ruled *given)
{
  struct ruled op = *given;
  struct layout written;
  if (!strcmp(e->rule, "pointwise")) {
    if (e->enforced) {
      written = read_layout(e->enforced);
      op.enforce = &written;
    }
    return pointwise_rule(&op);
  }
  if (!e->enforced) return einop_rule(e->rule, &op, NULL);
  int enforce[128];
  for (int i = 0; i < 128; i++) enforce[i] = -2;
  for (const char *c = e->enforced; *c; c += c[2] ? 3 : 2)
    enforce[(int)*c] = c[1] == '-' ? NONE : c[1] - '0';
  return einop_rule(e->rule, &op, enforce);
}

static void check_examples(const struct example *list, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    const struct example *e = &list[i];
    stand_on(e->mesh);
    struct ruled op = read_op(e->linear, e->shapes, e->given);
    struct ruling ruling = rule_of_example(e, &op);
    char *said = ruling_text(&ruling, op.nin);
    must(!strcmp(said, e->said), "%s, linear %s, mesh %s: %s, %s, enforced '%s' -> %s, not %s",
         e->rule, e->linear, e->mesh, e->shapes, e->given, e->enforced ? e->enforced : "", said,
         e->said);
  }
}
#define CHECK(list) check_examples(list, sizeof(list) / sizeof *(list))

/* A mesh dimension that shards two letters: what a rank holds of the inputs cut along each decides,
   the first of equals. */
static void test_the_costliest_remains(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"mk,kn->mn", "0", "4", "8x6 | 6x8", "S(0) | S(1)", NULL, "reshard S(0) | R"},
      {"mk,kn->mn", "0", "4", "8x6 | 6x12", "S(0) | S(1)", NULL, "reshard R | S(1)"},
      /* Parts count, not the whole: 2 x 6 of 5 x 6 and 6 x 2 of 6 x 7. */
      {"mk,kn->mn", "0", "4", "5x6 | 6x7", "S(0) | S(1)", NULL, "reshard S(0) | R"},
      {"mk,kn->mn", "0", "4", "8x6 | 6x9", "S(0) | S(1)", NULL, "reshard R | S(1)"},
      /* One letter in two inputs, together larger than the first. */
      {"mk,kn,jn->mj", "0", "4", "8x6 | 6x4 | 8x4", "S(0) | S(1) | S(1)", NULL,
       "reshard R | S(1) | S(1)"},
      {"mk,kn,jn->mj", "0", "4", "8x6 | 6x4 | 8x4", "S(0) | S(1) | R", NULL,
       "reshard S(0) | R | R"},
      /* Two mesh dimensions, each with a choice of its own. */
      {"ab,cd->abcd", "0", "2x3", "4x6 | 8x6", "S(0) S(1) | S(0) S(1)", NULL,
       "reshard R R | S(0) S(1)"},
      {"ab,cd->abcd", "0", "3x2", "12x6 | 8x6", "S(0) S(1) | S(1) S(0)", NULL,
       "reshard S(0) S(1) | R R"},
      /* A letter that is met again after another. */
      {"pointwise", "0", "3", "6x6 | 6x6 | 6x6", "S(0) | S(1) | S(0)", NULL,
       "reshard S(0) | S(0) | S(0)"},
      {"pointwise", "0", "2", "4x4 | 4x4 | 4x4", "S(0) | S(1) | S(1)", NULL,
       "reshard S(1) | S(1) | S(1)"},
  };
  CHECK(list);
}

/* An in-place or out variant keeps the layout of what it writes; so may letters be marked. */
static void test_enforced(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"pointwise", "0", "4", "8x6 | 8x6", "R | S(0)", NULL, "reshard S(0) | S(0)"},
      {"pointwise", "0", "4", "8x6 | 8x6", "R | S(0)", "R", "reshard R | R"},
      {"pointwise", "0", "4", "8x6 | 8x6", "R | R", "S(1)", "reshard S(1) | S(1)"},
      {"pointwise", "0", "4", "8x6 | 6", "S(1) | S(0)", "S(1)", "out S(1)"},
      {"pointwise", "0", "4", "8x6 | 6", "S(1) | R", "S(1)", "reshard S(1) | S(0)"},
      {"pointwise", "0", "4", "8x6", "S(0)", "S(1)", "reshard S(1)"},
      /* Two ways to shard a letter are no error where it is enforced. */
      {"pointwise", "0", "2x3", "8x6 | 8x6", "R S(1) | S(1) S(0)", "R S(1)",
       "reshard R S(1) | R S(1)"},
      {"pointwise", "0", "2x3", "8x6 | 8x6", "R S(1) | S(1) S(0)", NULL,
       "error dim b sharded two different ways: over b and a"},
      /* A written dimension of size 1. */
      {"pointwise", "0", "2x3", "8x1 | 8x1", "S(1) R | R R", "S(1) R", "reshard S(1) R | S(1) R"},
      {"pointwise", "0", "2x3", "8x1 | 8x1", "S(1) R | S(1) R", "S(1) R", "out R R"},
      {"pointwise", "0", "3", "scalar | scalar", "R | R", "R", "out R"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "R R | R R", "m0 n1", "reshard S(0) R | R S(1)"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "S(0) R | R S(1)", "m0 n1", "out S(0) S(1)"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "R S(1) | R S(0)", "k-", "reshard R R | R R"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "S(0) R | R R", "m1", "reshard R S(0) | R R"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "S(1) R | R S(0)", "k0", "reshard S(1) R | S(0) R"},
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "S(1) R | R S(0)", NULL,
       "error dim k sharded two different ways: over a and b"},
      /* The sizes of an enforced letter are not compared. */
      {"mk,kn->mn", "0", "2x3", "8x6 | 5x4", "R R | R R", "k-", "out R R"},
      /* Nothing is cut along either letter yet: the first remains. */
      {"mk,kn->mn", "1", "4", "8x6 | 6x4", "R | R", "m0 k0", "reshard S(0) | R"},
      /* No input is cut along m yet: the pending sum is met first, and remains. */
      {"mk,kn->mn", "1", "2", "8x6 | 6x4", "P | P", "m0", "reshard P | P"},
      {"mk,kn->mn", "0", "2", "8x6 | 6x4", "P | P", "m0", "reshard S(0) | R"},
  };
  CHECK(list);
}

/* A stretched dimension is "1", a letter that the output may lack. */
static void test_singletons(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"pointwise", "0", "4", "8x1 | 1x6", "S(0) | R", NULL, "out S(0)"},
      {"pointwise", "0", "4", "8x1 | 1x6", "R | S(1)", NULL, "out S(1)"},
      {"pointwise", "0", "2x2", "8x1 | 1x6", "S(0) R | R S(1)", NULL, "out S(0) S(1)"},
      {"pointwise", "0", "4", "8x1 | 1x6", "S(0) | S(1)", NULL, "reshard S(0) | R"},
      {"pointwise", "0", "4", "4x8x6 | 8x1", "S(1) | S(0)", NULL, "out S(1)"},
      {"pointwise", "0", "4", "4x8x6 | 8x1", "S(1) | R", NULL, "reshard S(1) | S(0)"},
      {"pointwise", "0", "4", "4x8x6 | 8x1", "S(0) | R", NULL, "out S(0)"},
      /* A lone input has no stretched dimension, and may be cut there. */
      {"pointwise", "0", "4", "1x6", "S(0)", NULL, "out S(0)"},
      /* Cut where all have size 1: whole in the output. */
      {"pointwise", "0", "4", "1x6 | 1x6", "S(0) | S(0)", NULL, "out R"},
      /* Cut where one is stretched: to PyTorch that is a letter that the output lacks. */
      {"pointwise", "0", "4", "8x1 | 8x6", "S(1) | R", NULL, "out P"},
      {"pointwise", "0", "4", "1x1 | 8x6", "R | S(0)", NULL, "out S(0)"},
      {"pointwise", "0", "4", "1x1 | 8x6", "S(0) | R", NULL,
       "error dims 0 and 1 of one tensor both sharded over a"},
      {"ab->1b", "0", "4", "8x6", "S(0)", NULL, "out P"},
      {"ab->1b", "0", "4", "8x6", "S(1)", NULL, "out S(1)"},
      {"1b->1b", "0", "4", "1x6", "S(0)", NULL, "out R"},
  };
  CHECK(list);
}

/* Pending sums, and sums that arise. */
static void test_sums(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"abc->b", "0", "2x3", "4x8x6", "S(0) S(2)", NULL, "out P P"},
      {"abc->b", "1", "2x3", "4x8x6", "S(0) P", NULL, "out P P"},
      {"abc->b", "0", "2x3", "4x8x6", "S(0) P", NULL, "reshard S(0) R"},
      {"i,i->", "0", "4", "8 | 8", "S(0) | S(0)", NULL, "out P"},
      {"i->", "1", "2x2", "8", "P S(0)", NULL, "out P P"},
      {"pointwise", "1", "2x2", "8x6 | 8x6", "P S(0) | P S(0)", NULL, "out P S(0)"},
      {"pointwise", "1", "2x2", "8x6 | 8x6", "P S(0) | R S(0)", NULL, "reshard P S(0) | P S(0)"},
      {"pointwise", "1", "2x2", "8x6 | 8x6", "P R | P S(0)", NULL, "reshard P S(0) | P S(0)"},
      {"pointwise", "0", "2x2", "8x6 | 8x6", "P S(0) | P R", NULL, "reshard R S(0) | R S(0)"},
      {"pointwise", "1", "2x2", "8x6 | scalar", "P P | P P", NULL, "out P P"},
      /* The sum of the second input hides that the first is cut there. */
      {"mk,kn->mn", "1", "4", "8x6 | 6x4", "S(0) | P", NULL,
       "error dim 0 sharded over a, where a sum is pending too"},
      /* Linear means sums: a maximum passes through nothing. */
      {"pointwise", "1", "4", "8x6 | 8x6", "P(max) | P(max)", NULL, "reshard R | R"},
      {"pointwise", "1", "4", "8x6", "P(min)", NULL, "reshard R"},
      {"pointwise", "1", "2x2", "8x6 | 8x6", "P P(max) | P S(0)", NULL, "reshard R S(0) | R S(0)"},
  };
  CHECK(list);
}

static void test_more_inputs_and_mesh_dimensions(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"ab,bc,cd->ad", "0", "4", "8x6 | 6x4 | 4x8", "S(0) | R | R", NULL, "out S(0)"},
      {"ab,bc,cd->ad", "0", "2x3x2", "8x6 | 6x4 | 4x8", "S(0) S(1) R | R S(0) R | R R S(1)", NULL,
       "out S(0) P S(1)"},
      {"ab,bc,cd->ad", "1", "2x3x2", "8x6 | 6x4 | 4x8", "P S(1) R | P S(0) R | P R R", NULL,
       "out P P R"},
      {"ab,bc,cd->ad", "1", "2x3x2", "8x6 | 6x4 | 4x8", "P S(1) R | P S(0) R | R R R", NULL,
       "reshard P S(1) R | P S(0) R | P R R"},
      {"abcd,abed->abce", "0", "2x2x2x2", "4x4x4x4 | 4x4x4x4",
       "S(0) S(1) S(2) S(3) | S(0) S(1) R S(3)", NULL, "out S(0) S(1) S(2) P"},
      {"pointwise", "0", "2x3x2", "4x8x6 | 6 | 8x1", "S(0) R S(2) | R R S(0) | R R R", NULL,
       "out S(0) R S(2)"},
      {"pointwise", "0", "2x3x2", "4x8x6 | 6 | 8x1", "S(0) S(1) S(2) | R R S(0) | R R R", NULL,
       "reshard S(0) S(1) S(2) | R R S(0) | R S(0) R"},
      {"pointwise", "0", "2", "8x6 | 8x6 | 8x6 | 8x6", "S(1) | S(1) | S(1) | R", NULL,
       "reshard S(1) | S(1) | S(1) | S(1)"},
      {"pointwise", "0", "2x1x2x1x3x2", "2x2x2x2x2x2x2x2", "S(7) R S(0) P R S(3)", NULL,
       "reshard S(7) R S(0) R R S(3)"},
      {"pointwise", "0", "1", "8x6 | 8x6", "S(0) | S(1)", NULL, "reshard S(0) | S(0)"},
  };
  CHECK(list);
}

static void test_errors(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"ij,ij->ij", "0", "2x3", "8x6 | 8x6", "S(0) R | R S(0)", NULL,
       "error dim i sharded two different ways: over a and b"},
      {"pointwise", "0", "2x3", "8x6 | 6", "S(1) R | R S(0)", NULL,
       "error dim b sharded two different ways: over a and b"},
      {"mk,nk->mn", "0", "2x3", "8x6 | 4x6", "S(1) P | R S(1)", NULL,
       "error dim k sharded two different ways: over a and b"},
      /* Two mesh dimensions on one dimension of a tensor. */
      {"mk,kn->mn", "0", "2x3", "8x6 | 6x4", "S(0) S(0) | R R", NULL,
       "error dim 0 is sharded over both a and b"},
      {"pointwise", "0", "2x3x2", "8x6", "R S(1) S(1)", NULL,
       "error dim 1 is sharded over both b and c"},
      {"pointwise", "0", "2x3", "8x6 | 8x6", "R R | R R", "S(0) S(0)",
       "error dim 0 is sharded over both a and b"},
      /* What one input asks of the other leads to two things on one mesh dimension. */
      {"mk,nk->mn", "1", "4", "8x6 | 4x6", "P | S(1)", NULL,
       "error dim 1 sharded over a, where a sum is pending too"},
      {"ab,ab->ab", "0", "2x3", "8x6 | 8x6", "R S(1) | P S(0)", NULL,
       "error dims 0 and 1 of one tensor both sharded over b"},
      {"ij->ii", "0", "4", "8x6", "S(0)", NULL,
       "error dims 0 and 1 of one tensor both sharded over a"},
      /* A letter has one size, and an output no letter of its own. */
      {"ij,ij->ij", "0", "4", "8x6 | 8x5", "R | R", NULL, "error dim j has two sizes: 6 and 5"},
      {"pointwise", "0", "4", "8x6 | 4", "R | R", NULL, "error dim b has two sizes: 6 and 4"},
      {"ab->ac", "0", "4", "8x6", "R", NULL, "error dim c of the output is in no input"},
  };
  CHECK(list);
}

static void test_misuse(void **state)
{
  (void)state;
  static const struct example list[] = {
      {"mk,kn->mn", "0", "2", "8x6", "R", NULL,
       "error the equation 'mk,kn->mn' does not fit the inputs"},
      {"mk->m", "0", "2", "8x6 | 8x6", "R | R", NULL,
       "error the equation 'mk->m' does not fit the inputs"},
      {"mk->m", "0", "2", "8", "R", NULL, "error the equation 'mk->m' does not fit the inputs"},
      {"m->m", "0", "2", "8x6", "R", NULL, "error the equation 'm->m' does not fit the inputs"},
      {"m k->m", "0", "2", "8x6x4", "R", NULL,
       "error the equation 'm k->m' does not fit the inputs"},
      {"m+->m", "0", "2", "8x6", "R", NULL, "error the equation 'm+->m' does not fit the inputs"},
      {"mk>m", "0", "2", "8x6", "R", NULL, "error the equation 'mk>m' does not fit the inputs"},
      {"mk-m", "0", "2", "8x6", "R", NULL, "error the equation 'mk-m' does not fit the inputs"},
      {"mk-k->m", "0", "2", "8x6 | 6", "R | R", NULL,
       "error the equation 'mk-k->m' does not fit the inputs"},
      {"m->mmmmmmmmm", "0", "2", "8", "R", NULL,
       "error the equation 'm->mmmmmmmmm' does not fit the inputs"},
      {"mk->m", "0", "2", "8x6", "S(2)", NULL,
       "error dim 2 is sharded over a, of a tensor of 2 dims"},
      {"pointwise", "0", "2", "8x6 | scalar", "R | S(0)", NULL,
       "error dim 0 is sharded over a, of a tensor of 0 dims"},
  };
  CHECK(list);
}

/* The rules would take a strided shard for a plain one. */
static void test_strided_shards_are_refused(void **state)
{
  (void)state;
  stand_on("2");
  struct ruled op = read_op("0", "8x6 | 8x6", "S(0) | S(0)");
  op.layout[1].on[0].outer = 2;
  struct ruling ruling = pointwise_rule(&op);
  assert_string_equal(ruling_text(&ruling, 2), "error dim 0 is sharded over a in strides");
  op.layout[1].on[0].outer = 1;
  ruling = pointwise_rule(&op);
  assert_string_equal(ruling_text(&ruling, 2), "out S(0)");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_einop_rule),
      cmocka_unit_test(test_golden_pointwise_rule),
      cmocka_unit_test(test_choices_follow_the_rules),
      cmocka_unit_test(test_the_costliest_remains),
      cmocka_unit_test(test_enforced),
      cmocka_unit_test(test_singletons),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_more_inputs_and_mesh_dimensions),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_strided_shards_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
