/* Operator by operator against PyTorch (TPGEN_GOLDEN, or tests/golden, op_propagation.tsv): the
   sharding of each on a mesh of one dimension, with all placements of its inputs.

   If PyTorch runs an operator with its inputs as they are, so does tpgen: no bytes move, and the
   output has the same layout, or the one that tests/golden/op_better.tsv lists with a reason. If
   PyTorch moves inputs, tpgen moves no more bytes, in all operations of the operator. tpgen may
   accept what PyTorch refuses. tpgen accepts what PyTorch accepts, with one exception: PyTorch
   replicates a sharded input if nothing else is possible; in tpgen a plan has to ask for that, does
   so here, and moves no more bytes.

   The operators are a plan's: op_propagation.lua. The backward's are rows of the table. */
#include "lua/lua.h"
#include "graph_passes/graph_passes.h"
#include "unit.h"

#include <fnmatch.h>
#include <sys/mman.h>

enum { RANKS = 4, MOST_TENSORS = 8, MOST_OUTPUTS = 16 };

/* -------------------------------------------------------------------------- a line, taken apart */

struct line {
  const char *name;      /* "mm.default" */
  const char *arguments; /* as the table has them */
  const char *given_text;
  char kind[64]; /* "mm" */
  char lua[512]; /* the arguments as a plan has them, tensors as t[1], t[2] ... */
  int ntensor, nnumber;
  struct shape shape[MOST_TENSORS];
  int64_t number[MAX_NUMBERS]; /* whole ones among the arguments */
  struct placement given[MOST_TENSORS], expected[MOST_TENSORS];
  int nout;
  char *out[MOST_OUTPUTS]; /* "-": no tensor */
  bool error, as_given;
};

/* "P(avg)" is a sum whose terms were divided before it, "P(masked)" one of which all but one are 0;
   "_S(0, 4)" is strided. */
static struct placement placement_of(const char *s)
{
  if (!strncmp(s, "_S(", 3)) {
    char *end;
    struct placement p = {.kind = SHARD, .dim = (int)strtol(s + 3, &end, 10)};
    p.outer = strtol(end + strspn(end, ", "), NULL, 10);
    return p;
  }
  struct placement p = parse_placement(s);
  if (!strcmp(s, "P(max)")) p.reduction = MAX;
  if (!strcmp(s, "P(min)")) p.reduction = MIN;
  must(*s == 'R' || *s == 'S' || *s == 'P', "no placement: '%s'", s);
  return p;
}

/* Splits "R | S(0)"; gives how many. */
static int split_bars(char *s, char **part, int most)
{
  int n = 0;
  while (s && n < most) {
    part[n++] = s;
    s = strstr(s, " | ");
    if (!s) break;
    *s = 0;
    s += strlen(" | ");
  }
  return n;
}

__attribute__((format(printf, 2, 3))) static void add_lua(struct line *l, const char *format, ...)
{
  size_t at = strlen(l->lua);
  va_list list;
  va_start(list, format);
  vsnprintf(l->lua + at, sizeof l->lua - at, format, list);
  va_end(list);
}

static const char *scan_tensor(struct line *l, const char *c)
{
  char shape[64];
  size_t n = strspn(c, "0123456789x");
  must(l->ntensor < MOST_TENSORS && n < sizeof shape, "%s: too much: %s", l->name, c);
  snprintf(shape, sizeof shape, "%.*s", (int)n, c);
  l->shape[l->ntensor++] = parse_shape(shape);
  add_lua(l, "t[%d]", l->ntensor);
  return c + n;
}

/* A word: a number, True, None, torch.float32, or a name. */
static const char *scan_word(struct line *l, const char *c)
{
  static const char *const known[][2] = {{"True", "true"}, {"False", "false"}, {"None", "nil"}};
  char word[64], *end;
  size_t n = strcspn(c, " ,]");
  snprintf(word, sizeof word, "%.*s", (int)n, c);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(word, known[i][0])) {
      add_lua(l, "%s", known[i][1]);
      return c + n;
    }
  long number = strtol(word, &end, 10);
  if (!*end && l->nnumber < MAX_NUMBERS) l->number[l->nnumber++] = number;
  strtod(word, &end);
  bool dotted = !strncmp(word, "torch.", strlen("torch."));
  if (*end)
    add_lua(l, "\"%s\"", word + (dotted ? strlen("torch.") : 0));
  else
    add_lua(l, "%s", word);
  return c + n;
}

/* "@8x12 [1,1] None [@8x12,@8x12] 0" */
static void scan_arguments(struct line *l)
{
  for (const char *c = l->arguments; *c;) {
    if (*c == '@')
      c = scan_tensor(l, c + 1);
    else if (*c == '[' || *c == ']')
      add_lua(l, "%c", *c++ == '[' ? '{' : '}');
    else if (*c == ' ' || *c == ',')
      add_lua(l, "%c", (c++, ','));
    else
      c = scan_word(l, c);
  }
}

static void read_kind(struct line *l)
{
  snprintf(l->kind, sizeof l->kind, "%.*s", (int)strcspn(l->name, "."), l->name);
  size_t n = strlen(l->kind);
  if (n > 1 && l->kind[n - 1] == '_') l->kind[n - 1] = 0; /* in place */
}

static struct line line_of(char **field)
{
  struct line l = {.name = field[0], .arguments = field[1], .given_text = strdup(field[2])};
  char *given[MOST_TENSORS], *expected[MOST_TENSORS];
  read_kind(&l);
  scan_arguments(&l);
  int n = split_bars(field[2], given, MOST_TENSORS),
      m = split_bars(field[3], expected, MOST_TENSORS);
  l.nout = split_bars(field[4], l.out, MOST_OUTPUTS);
  l.error = !strcmp(l.out[0], "error");
  must(n == l.ntensor && (l.error || m == n), "%s %s: %d tensors, %d placements, %d expected",
       l.name, l.arguments, l.ntensor, n, m);
  l.as_given = !l.error;
  for (int i = 0; i < n; i++) {
    l.given[i] = placement_of(given[i]);
    l.expected[i] = l.error ? l.given[i] : placement_of(expected[i]);
    l.as_given &= same_placement(l.given[i], l.expected[i]);
  }
  return l;
}

/* The whole table. It is read before anything runs: a child that ends moves its parent's reader. */
static struct line line[4096];
static int nline;

static void read_table(void)
{
  FILE *f = open_golden("op_propagation.tsv");
  char text[2048], *field[5];
  for (int n; (n = golden_line(f, text, sizeof text, field, 5));) {
    must(n == 5, "op_propagation.tsv: '%s' has %d fields", text, n);
    must(nline < (int)(sizeof line / sizeof *line), "op_propagation.tsv is too long");
    for (int i = 0; i < n; i++) field[i] = strdup(field[i]);
    line[nline++] = line_of(field);
  }
  fclose(f);
}

/* ----------------------------------------------------------------------------------- running it */

/* What a child finds out, in memory that it shares with the test. */
struct outcome {
  bool ran;
  double bytes, theirs; /* what moves here, and what PyTorch moves */
  bool there[MOST_OUTPUTS];
  struct placement out[MOST_OUTPUTS];
};
static struct outcome *outcome;

struct run {
  const struct line *line;
  bool whole; /* the plan makes whole what PyTorch makes whole */
};

static bool made_whole(const struct run *run, int i)
{
  const struct line *l = run->line;
  return run->whole && l->given[i].kind == SHARD && l->expected[i].kind == REPLICATE;
}

static char plan_path[] = "/tmp/op_propagation-XXXXXX";

static char *known_operators(void)
{
  static char text[1 << 15];
  FILE *f = fopen("tests/unit/op_propagation.lua", "r");
  must(f, "tests/unit/op_propagation.lua: %s", strerror(errno));
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  return text;
}

static void write_plan(const struct run *run)
{
  FILE *f = fopen(plan_path, "w");
  must(f, "%s: %s", plan_path, strerror(errno));
  fprintf(f, "%s\nreturn program(\"%s\", {", known_operators(), run->line->kind);
  for (int i = 0; i < run->line->ntensor; i++) {
    fprintf(f, "{");
    for (int d = 0; d < run->line->shape[i].ndim; d++)
      fprintf(f, "%" PRId64 ",", run->line->shape[i].size[d]);
    fprintf(f, "},");
  }
  fprintf(f, "}, {");
  for (int i = 0; i < run->line->ntensor; i++)
    fprintf(f, "%s,", made_whole(run, i) ? "true" : "false");
  fprintf(f, "}, function(t) return %s end)\n", run->line->lua);
  fclose(f);
}

/* The graph of a plan, and its inputs and outputs by their names. */
static void read_plan(const struct run *run, int *in, int *out)
{
  static char number[8];
  static struct definition ranks = {"ranks", number};
  snprintf(number, sizeof number, "%d", RANKS);
  write_plan(run);
  options.plan = plan_path;
  options.definition = &ranks;
  options.ndefinition = 1;
  graph_open();
  lua();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH) in[atoi(v->name + 1) - 1] = i;
    if (v->is_output && atoi(v->name + 1) <= MOST_OUTPUTS) out[atoi(v->name + 1) - 1] = i;
  }
}

static const struct row_operator {
  const char *kind;
  enum op_kind row;
} rows[] = {
    {"threshold_backward", OP_relu_back},
    {"silu_backward", OP_silu_back},
    {"gelu_backward", OP_gelu_back},
    {"sigmoid_backward", OP_sigmoid_back},
    {"tanh_backward", OP_tanh_back},
    {"native_dropout", OP_dropout},
    {"embedding_dense_backward", OP_embedding_back},
};

static const struct row_operator *row_of(const struct line *l)
{
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].kind, l->kind)) return &rows[i];
  return NULL;
}

static int make_whole(int value)
{
  return append_op((struct op){
      .kind = OP_redistribute, .nin = 1, .in = {value}, .asked = 1, .module = NONE, .line = 1});
}

/* One row of the table of operators, as grad writes it. */
static void apply_row(const struct run *run, enum op_kind row, int *in, int *out)
{
  const struct line *l = run->line;
  struct op op = {.kind = row, .nin = l->ntensor, .scalar = 0.5, .module = NONE, .line = 1};
  new_graph(1, (int[]){RANKS});
  for (int i = 0; i < l->ntensor; i++) in[i] = given(BATCH, "x", l->shape[i], (struct layout){0});
  if (row == OP_embedding_back) graph->value[in[1]].type = I32;
  for (int i = 0; i < l->ntensor; i++) op.in[i] = made_whole(run, i) ? make_whole(in[i]) : in[i];
  if (row != OP_embedding_back) {
    out[0] = append_op(op);
    return;
  }
  struct shape table = {.ndim = 2, .size = {l->number[0], l->shape[0].size[l->shape[0].ndim - 1]}};
  out[0] = append_op_shaped(op, table);
}

static double bytes_moved(void)
{
  double bytes = 0;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->kind != OP_redistribute) continue;
    const struct value *v = &graph->value[op->in[0]];
    bytes += move_cost(cost_model_of_graph(), v->shape, v->type, v->layout,
                       graph->value[op->out].layout);
  }
  return bytes;
}

static void run_line(const void *with)
{
  const struct run *run = with;
  const struct line *l = run->line;
  const struct row_operator *row = row_of(l);
  int in[MOST_TENSORS] = {0}, out[MOST_OUTPUTS];
  for (int k = 0; k < MOST_OUTPUTS; k++) out[k] = NONE;
  if (row)
    apply_row(run, row->row, in, out);
  else
    read_plan(run, in, out);
  for (int i = 0; i < l->ntensor; i++) {
    graph->value[in[i]].layout = (struct layout){.on = {l->given[i]}};
    graph->value[in[i]].placed = true;
  }
  propagate_from(0);
  outcome->bytes = bytes_moved();
  for (int i = 0; i < l->ntensor; i++) {
    const struct value *v = &graph->value[in[i]];
    outcome->theirs += move_cost(cost_model_of_graph(), v->shape, v->type, v->layout,
                                 (struct layout){.on = {l->expected[i]}});
  }
  for (int k = 0; k < MOST_OUTPUTS; k++) {
    outcome->there[k] = out[k] != NONE;
    if (out[k] != NONE) outcome->out[k] = graph->value[out[k]].layout.on[0];
  }
  outcome->ran = true;
}

/* ------------------------------------------------------------------------------- what is better */

/* A line of op_better.tsv: for which lines of the table an output may lie as it says. */
struct better {
  char *name, *arguments, *given, *theirs, *ours;
  double bytes; /* that move here */
  bool matched, used;
};
static struct better better[64];
static int nbetter;

static void read_better(void)
{
  FILE *f = fopen("tests/golden/op_better.tsv", "r");
  must(f, "tests/golden/op_better.tsv: %s", strerror(errno));
  char text[1024], *field[7];
  for (int n; (n = golden_line(f, text, sizeof text, field, 7));) {
    must(n == 7 && *field[6], "op_better.tsv: '%s' has no reason", text);
    must(nbetter < (int)(sizeof better / sizeof *better), "op_better.tsv is too long");
    for (int i = 0; i < n; i++) field[i] = strdup(field[i]);
    better[nbetter++] = (struct better){.name = field[0],
                                        .arguments = field[1],
                                        .given = field[2],
                                        .theirs = field[3],
                                        .ours = field[4],
                                        .bytes = atof(field[5])};
  }
  fclose(f);
}

static bool says(const char *pattern, const char *text)
{
  return fnmatch(pattern, text, FNM_NOESCAPE) == 0;
}

/* The line that lets the k-th output lie as it does instead of as PyTorch has it, or lets bytes
   move for it that PyTorch does not move; or NULL. */
static struct better *excuse(const struct line *l, int k)
{
  struct placement ours = outcome->out[k];
  struct better *found = NULL;
  for (int i = 0; i < nbetter; i++) {
    struct better *b = &better[i];
    if (!says(b->name, l->name) || !says(b->arguments, l->arguments) ||
        !says(b->given, l->given_text) || !says(b->theirs, l->out[k]))
      continue;
    b->matched = true;
    bool as_theirs = same_placement(ours, placement_of(l->out[k]));
    if ((as_theirs && outcome->bytes == 0) || outcome->bytes > b->bytes ||
        !same_placement(ours, placement_of(b->ours)))
      continue;
    b->used = true;
    found = b;
  }
  return found;
}

/* ------------------------------------------------------------------------------- the comparison */

static struct counts {
  int lines, as_given, better, fewer, equal, asked, errors, wrong;
} count;

static const char *place_name(struct placement p)
{
  static const char *const reduction[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  static char text[4][32];
  static int next;
  char *s = text[next++ % 4];
  if (p.kind == SHARD && p.outer > 1)
    snprintf(s, sizeof *text, "_S(%d, %" PRId64 ")", p.dim, (int64_t)p.outer);
  else if (p.kind == SHARD)
    snprintf(s, sizeof *text, "S(%d)", p.dim);
  else if (p.kind == PARTIAL)
    snprintf(s, sizeof *text, "P(%s)", reduction[p.reduction]);
  else
    snprintf(s, sizeof *text, "R");
  return s;
}

__attribute__((format(printf, 2, 3))) static void wrong(const struct line *l, const char *format,
                                                        ...)
{
  char what[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  print_message("%s %s, given %s: %s\n", l->name, l->arguments, l->given_text, what);
  count.wrong++;
}

static void compare_outputs(const struct line *l)
{
  const struct better *other = NULL;
  if (!outcome->there[0]) wrong(l, "it makes nothing");
  for (int k = 0; k < l->nout; k++) {
    if (!outcome->there[k] || !strcmp(l->out[k], "-")) continue;
    const struct better *here = excuse(l, k);
    if (here)
      other = here;
    else if (!same_placement(outcome->out[k], placement_of(l->out[k])))
      wrong(l, "output %d is %s, not %s", k, place_name(outcome->out[k]), l->out[k]);
  }
  if (outcome->bytes > 0 && !other)
    wrong(l, "%g bytes move, but PyTorch moves nothing", outcome->bytes);
  count.better += other != NULL;
  count.as_given += other == NULL;
}

static void compare(const struct line *l, bool asked)
{
  if (l->as_given) {
    compare_outputs(l);
    return;
  }
  if (outcome->bytes > outcome->theirs)
    wrong(l, "%g bytes move, and %g with PyTorch", outcome->bytes, outcome->theirs);
  count.fewer += outcome->bytes < outcome->theirs;
  count.equal += outcome->bytes == outcome->theirs;
  count.asked += asked;
}

static struct ending run_with(const struct line *l, bool whole)
{
  struct run run = {l, whole};
  memset(outcome, 0, sizeof *outcome);
  return run_child(run_line, &run);
}

static bool is_refusal(const struct ending *e)
{
  return e->status == 1 && strstr(e->said, "allows no cut");
}

static bool replicates(const struct line *l)
{
  for (int i = 0; i < l->ntensor; i++)
    if (l->given[i].kind == SHARD && l->expected[i].kind == REPLICATE) return true;
  return false;
}

static void try_line(const struct line *l)
{
  count.lines++;
  struct ending e = run_with(l, false);
  if (l->error && (outcome->ran || is_refusal(&e))) {
    count.errors++;
    return;
  }
  bool asked = is_refusal(&e) && replicates(l);
  if (asked) e = run_with(l, true);
  if (outcome->ran)
    compare(l, asked);
  else
    wrong(l, "ended with %d: %s", e.status, e.said);
}

static void test_operators(void **state)
{
  (void)state;
  read_better();
  read_table();
  for (int i = 0; i < nline; i++) try_line(&line[i]);
  for (int i = 0; i < nbetter; i++)
    if (better[i].matched && !better[i].used) {
      print_message("op_better.tsv: %s %s is not needed\n", better[i].name, better[i].given);
      count.wrong++;
    }
  print_message(
      "%d lines: %d run as given, %d otherwise; %d move fewer bytes than PyTorch, %d equally "
      "many (%d of these where the plan asks for it); %d that PyTorch refuses\n",
      count.lines, count.as_given, count.better, count.fewer, count.equal, count.asked,
      count.errors);
  must(count.lines > 0 && count.wrong == 0, "%d are wrong", count.wrong);
}

int main(void)
{
  outcome = mmap(NULL, sizeof *outcome, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int file = mkstemp(plan_path);
  if (file < 0) return 1;
  close(file);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(plan_path);
  return failed;
}
