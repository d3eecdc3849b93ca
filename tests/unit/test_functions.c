/* The functions of F: their shapes (tests/functions/shapes.lua, which checks them itself), their
   values (values.lua, run by the references of reference.h, against values.tsv), and their messages
   for misuse (misuse.tsv). */
#include "lua/lua.h"
#include "graph_passes/graph_passes.h"
#include "unit.h"

#include "interpreter.h"

static void read_plan(const char *path)
{
  graph_open();
  options.plan = path;
  lua();
}

static void read_whole(const void *path)
{
  read_plan(path);
  must(graph->norder > 0, "%s makes nothing", (const char *)path);
}

/* Every function comes to the shape and the type that it should. */
static void test_shapes(void **state)
{
  (void)state;
  passes(read_whole, "tests/functions/shapes.lua");
}

/* ------------------------------------------------------------------------------------- numbers */

/* What every input holds, as the makers of values.tsv have it: a function of its name. */
static struct array input(const struct value *v)
{
  struct array a = zeros(v->shape);
  int64_t key = 0, from = (int64_t)v->init.a, range = (int64_t)v->init.b - from;
  for (const char *c = v->name; *c; c++) key += *c;
  for (int64_t i = 0; i < elements(v->shape); i++) {
    if (is_floating(v->type))
      a.at[i] = (double)((i * 7919 + 13 * key + 11) % 1009) / 504.5 - 1;
    else
      a.at[i] = (double)(from + (i * 7 + 3 + key) % range);
  }
  return a;
}

static int output_named(const char *name)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].is_output && !strcmp(graph->value[i].name, name)) return i;
  return NONE;
}

static void compare(const struct array *whole, const char *name, const char *shape, const char *c)
{
  int value = output_named(name);
  must(value != NONE, "the plan has no output '%s'", name);
  struct array a = whole[value];
  must(same_shape(a.shape, parse_shape(shape)), "%s: shape %s, not %s", name, shape_text(a.shape),
       shape);
  char *end;
  for (int64_t i = 0; *c; i++, c = end) {
    double expected = strtod(c, &end);
    must(fabs(a.at[i] - expected) <= 2e-6 * (1 + fabs(expected)),
         "%s: element %d is %.9g, not %.9g", name, (int)i, a.at[i], expected);
  }
}

static void compute(const void *with)
{
  (void)with;
  read_plan("tests/functions/values.lua");
  struct array *whole = alloc((size_t)(graph->nvalue + 1) * sizeof *whole);
  int outputs = 0, compared = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    if (graph->value[i].role == BATCH) whole[i] = input(&graph->value[i]);
    outputs += graph->value[i].is_output;
  }
  run_whole(whole);
  FILE *f = fopen("tests/functions/values.tsv", "r");
  must(f, "no values.tsv");
  char line[4096], *field[3];
  while (golden_line(f, line, sizeof line, field, 3) == 3) {
    compare(whole, field[0], field[1], field[2]);
    compared++;
  }
  fclose(f);
  must(compared == outputs && outputs > 100, "%d outputs, and %d lines", outputs, compared);
}

static void test_values(void **state)
{
  (void)state;
  passes(compute, NULL);
}

/* -------------------------------------------------------------------------------------- misuse */

static char misused[64];

/* Writes a plan whose output is the expression. */
static void write_plan(const char *expression)
{
  FILE *f = fopen(misused, "w");
  assert_non_null(f);
  fprintf(f,
          "infer{model = nn.Identity(), batch = {x = randn{4, 6}, y = randn{4, 5},\n"
          "  ids = randint(4){4, 6}, q = randn{2, 4, 6, 8}}, outputs = function(_, b)\n"
          "  return {output = %s}\n"
          "end}\n",
          expression);
  fclose(f);
}

static void test_misuse(void **state)
{
  (void)state;
  static char room[1 << 16];
  FILE *f = fopen("tests/functions/misuse.tsv", "r");
  assert_non_null(f);
  setvbuf(f, room, _IOFBF,
          sizeof room); /* all at once: a child's exit moves the place in the file */
  snprintf(misused, sizeof misused, "/tmp/tpgen_misuse_%d.lua", (int)getpid());
  char line[4096], said[4096], *field[2];
  int tried = 0;
  for (; golden_line(f, line, sizeof line, field, 2) == 2; tried++) {
    write_plan(field[0]);
    snprintf(said, sizeof said, "%s:3: error: %s\n", misused, field[1]);
    refused(read_whole, misused, 1, said, NULL);
  }
  unlink(misused);
  fclose(f);
  if (tried <= 60) fail_msg("only %d were tried", tried);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_values),
                                     cmocka_unit_test(test_misuse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
