/* Bucketed collectives: the members and their inputs, the position of the bucket, and that every
   rank has the same result as without buckets; on groups whose ranks are not consecutive, with
   parts of unequal size and empty ones. */

#include "check/check.h"
#include "functions.h"
#include "interpreter.h"

/* The last value of the phase so far; what comes next reads it. */
static int step(struct op op, int in, enum phase phase, const char *layout)
{
  op.nin = 1;
  op.in[0] = in;
  op.phase = phase;
  int out = run_in_phase(op);
  graph->value[out].layout = parse_layout(layout);
  return out;
}

static int cast_of(int value, enum type type, enum phase phase)
{
  const char *layout = layout_text(graph->value[value].layout);
  return step((struct op){.kind = OP_cast, .type = type}, value, phase, layout);
}

/* Two units that keep their parameters cut over the mesh's first dimension. */
static void make_units(void)
{
  graph->nunit = 2;
  graph->unit = alloc(2 * sizeof *graph->unit);
  for (int i = 0; i < 2; i++) graph->unit[i] = (struct unit){.name = "", .shards = 1, .line = 5};
}

/* A parameter of a unit that is kept cut over the mesh's first dimension. */
struct kept {
  const char *shape, *cut, *whole,
      *pending; /* layouts: as it is kept, as it is used, of its gradient */
  int dim;
  bool apart; /* the parts do not lie one after the other in the whole */
  int parameter, used, gradient;
};

/* As 3 x 2 ranks have them: those of a group are [0, 2, 4] and [1, 3, 5]. */
static struct kept kept[] = {
    {"7x3", "S(0) R", "R R", "P R", 0, false, 0, 0, 0},
    {"6x6", "S(0) S(1)", "R S(1)", "P S(1)", 0, false, 0, 0, 0},
    {"4x5", "S(1) R", "R R", "P R", 1, true, 0, 0, 0},
    {"2", "S(0) R", "R R", "P R", 0, false, 0, 0, 0},
    {"3x4", "S(1) S(0)", "R S(0)", "P S(0)", 1, true, 0, 0, 0},
};
enum { KEPT = sizeof kept / sizeof *kept };

static void gather_one(struct kept *k, enum type type)
{
  int group = add_group(1);
  k->parameter = given(PARAMETER, "w", parse_shape(k->shape), parse_layout(k->cut));
  int value = type == F32 ? k->parameter : cast_of(k->parameter, type, FORWARD);
  struct op op = {.kind = OP_all_gather, .group = group, .dim = k->dim, .of_unit = true};
  value = step(op, value, FORWARD, k->whole);
  op.kind = OP_unpack;
  op.to = parse_layout(k->cut);
  if (k->apart) value = step(op, value, FORWARD, k->whole);
  k->used = step((struct op){.kind = OP_neg}, value, FORWARD, k->whole);
}

/* The gradient, which the backward computes in `type` and the ranks sum in `sums`. */
static void scatter_one(struct kept *k, enum type type, enum type sums)
{
  int group = add_group(1);
  int x = given(BATCH, "x", parse_shape(k->shape), parse_layout(k->pending));
  graph->value[x].type = type;
  int value = step((struct op){.kind = OP_neg}, x, BACKWARD, k->pending);
  if (sums != type) value = cast_of(value, sums, BACKWARD);
  struct op op = {.kind = OP_pack, .group = group, .dim = k->dim, .of_unit = true};
  op.to = parse_layout(k->cut);
  if (k->apart) value = step(op, value, BACKWARD, k->pending);
  op.kind = OP_reduce_scatter;
  value = step(op, value, BACKWARD, k->cut);
  if (sums != F32) value = cast_of(value, F32, BACKWARD);
  k->gradient = value;
  graph->value[value].role = GRADIENT;
  graph->value[value].of = k->parameter;
}

static void run_phases(struct machine *m)
{
  for (enum phase phase = FORWARD; phase <= BACKWARD; phase++) {
    const struct function *f = function_of_phase(phase);
    for (int i = 0; i < f->nop; i++) run_op(m, &graph->op[f->op[i]]);
  }
}

static void load_all(struct machine *m, const struct array *whole)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER || graph->value[i].role == BATCH) load(m, i, whole[i]);
}

static int count(enum phase phase, enum op_kind kind)
{
  const struct function *f = function_of_phase(phase);
  int n = 0;
  for (int i = 0; i < f->nop; i++) n += graph->op[f->op[i]].kind == kind;
  return n;
}

static const struct op *only(enum phase phase, enum op_kind kind)
{
  const struct function *f = function_of_phase(phase);
  must(count(phase, kind) == 1, "%d of %s", count(phase, kind), op_row[kind].name);
  for (int i = 0; i < f->nop; i++)
    if (graph->op[f->op[i]].kind == kind) return &graph->op[f->op[i]];
  return NULL;
}

static void same_parts(const struct machine *a, const struct machine *b, int value)
{
  for (int r = 0; r < a->world; r++) {
    struct array x = a->part[r][value], y = b->part[r][value];
    must(same_shape(x.shape, y.shape), "v%d on rank %d is %s, not %s", value, r,
         shape_text(y.shape), shape_text(x.shape));
    for (int64_t i = 0; i < elements(x.shape); i++)
      must(fabs(x.at[i] - y.at[i]) < 0.02, "v%d on rank %d is %g, not %g at %" PRId64, value, r,
           y.at[i], x.at[i], i);
  }
}

struct types {
  enum type used, reduced;
};

/* All of a unit's gathers are one, and all of its scatters; nothing else is left but what was
   there before. */
static void unit(const void *with)
{
  const struct types *types = with;
  new_graph(2, (int[]){3, 2});
  make_units();
  for (int k = 0; k < KEPT; k++) gather_one(&kept[k], types->used);
  for (int k = KEPT; k-- > 0;) scatter_one(&kept[k], types->used, types->reduced);
  struct array *whole = take((size_t)graph->nvalue * sizeof *whole);
  for (int i = 0; i < graph->nvalue; i++) whole[i] = random_array(graph->value[i].shape);
  struct machine before = new_machine();
  load_all(&before, whole);
  run_phases(&before);

  bucket();
  check(PASS_BUCKET);
  const struct op *gather = only(FORWARD, OP_all_gather);
  const struct op *scatter = only(BACKWARD, OP_reduce_scatter);
  must(gather->nbody == KEPT && scatter->nbody == KEPT, "%d and %d members", gather->nbody,
       scatter->nbody);
  must(gather == nth_op(FORWARD, 0), "the gather does not stand where the first did");
  must(scatter == nth_op(BACKWARD, KEPT), "the scatter does not stand where the last did");
  must(!count(FORWARD, OP_cast) && !count(FORWARD, OP_unpack), "something is left");
  must(!count(BACKWARD, OP_cast) && !count(BACKWARD, OP_pack), "something is left");
  must(moved_type(gather) == types->used && moved_type(scatter) == types->reduced, "in no type");
  for (int k = 0; k < KEPT; k++) {
    must(graph->op[gather->body[k]].in[0] == kept[k].parameter, "member %d is another", k);
    must(graph->op[scatter->body[k]].out == kept[k].gradient, "member %d is another", k);
  }
  /* 3x3, 2x3, 4x2, 1, 2x2 */
  int64_t give[3], get[3], parts = 9 + 6 + 8 + 1 + 4;
  collective_counts(gather, 5, give, get);
  must(bucket_chunk(gather, KEPT) == parts && give[0] == parts && get[2] == parts,
       "chunks of %" PRId64, give[0]);
  must(elements(graph->value[gather->buffer].shape) == 3 * parts, "another buffer");
  must(equal_parts(gather, 5) && equal_parts(scatter, 0), "chunks are unequal");
  must(collective_bytes(gather, 0) == parts * type_bytes(types->used), "another size");
  must(collective_bytes(scatter, 0) == 3 * parts * type_bytes(types->reduced), "another size");

  struct machine after = new_machine();
  load_all(&after, whole);
  run_phases(&after);
  for (int k = 0; k < KEPT; k++) {
    same_parts(&before, &after, kept[k].used);
    same_parts(&before, &after, kept[k].gradient);
  }
}

static void test_a_unit_travels_together(void **state)
{
  (void)state;
  passes(unit, &(struct types){F32, F32});
  passes(unit, &(struct types){BF16, F32});
  passes(unit, &(struct types){BF16, BF16});
  passes(unit, &(struct types){F32, BF16});
}

/* What others read of a cast, or of what is unpacked, stays. */
static void others_read(const void *with)
{
  (void)with;
  new_graph(2, (int[]){3, 2});
  make_units();
  for (int k = 0; k < 2; k++) gather_one(&kept[k], BF16);
  int cast = graph->op[graph->value[kept[0].used].op].in[0];
  cast = graph->op[graph->value[cast].op].in[0];
  step((struct op){.kind = OP_exp}, cast, FORWARD, kept[0].cut);
  bucket();
  check(PASS_BUCKET);
  must(count(FORWARD, OP_cast) == 1 && only(FORWARD, OP_all_gather)->nbody == 2, "it is gone");
  must(nth_op(FORWARD, 1)->kind == OP_cast || nth_op(FORWARD, 0)->kind == OP_cast, "it is late");
}

/* Two units stay apart, but small ones with little work between. */
struct units {
  double latency;
  bool works;
  int gathers;
};

static void two_units(const void *with)
{
  const struct units *units = with;
  new_graph(2, (int[]){3, 2});
  make_units();
  graph->mesh.bandwidth[0] = 100e9;
  graph->mesh.latency[0] = units->latency;
  for (int k = 0; k < 4; k++) {
    int x = given(BATCH, "x", parse_shape("2048x2048"), (struct layout){0});
    if (k == 2 && units->works)
      run_in_phase((struct op){
          .kind = OP_matmul, .nin = 2, .in = {x, x}, .equation = "mk,kn->mn", .phase = FORWARD});
    gather_one(&kept[k], F32);
  }
  for (int i = 0, n = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_all_gather) graph->op[i].unit = n++ / 2;
  bucket();
  check(PASS_BUCKET);
  int n = count(FORWARD, OP_all_gather);
  must(n == units->gathers, "%d gathers, not %d", n, units->gathers);
}

static void test_what_stays(void **state)
{
  (void)state;
  passes(others_read, NULL);
  passes(two_units, &(struct units){10e-6, false, 1});
  passes(two_units, &(struct units){10e-6, true, 2});
  passes(two_units, &(struct units){10e-12, false, 2});
}

/* Gathers of large units, of which the second needs what the first made: they stay two, however
   much a unit may hold_part. */
static void one_after_the_other(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  make_units();
  int x = given(PARAMETER, "w", parse_shape("4x4"), parse_layout("S(0)"));
  struct op op = {.kind = OP_all_gather, .group = add_group(1), .of_unit = true};
  int a = step(op, x, FORWARD, "R");
  int cut = step((struct op){.kind = OP_slice}, a, FORWARD, "S(0)");
  int b = step(op, cut, FORWARD, "R");
  step((struct op){.kind = OP_neg}, b, FORWARD, "R");
  bucket();
  check(PASS_BUCKET);
  must(count(FORWARD, OP_all_gather) == 2, "%d gathers", count(FORWARD, OP_all_gather));
}

static void test_what_depends_stays_apart(void **state)
{
  (void)state;
  passes(one_after_the_other, NULL);
}

static struct op gathering(void)
{
  return (struct op){.kind = OP_all_gather, .group = add_group(1), .why = "it is used whole"};
}

static int some_part(void)
{
  return given(BATCH, "x", parse_shape("4x4"), parse_layout("S(0)"));
}

/* bucketing = "greedy": four gathers that follow one another. The third takes what is computed anew
   in a place that is read, before, together with what the first makes: it cannot stand where the
   first does. They are two and two, and the report says so. */
static void split_in_two(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  plan_options->bucketing = BUCKETS_GREEDY;
  int place = some_part(), first = step(gathering(), some_part(), FORWARD, "R");
  int second = step(gathering(), some_part(), FORWARD, "R");
  int slice = step((struct op){.kind = OP_slice}, first, FORWARD, "S(0)");
  run_in_phase((struct op){.kind = OP_add, .nin = 2, .in = {slice, place}, .phase = FORWARD});
  int anew = step((struct op){.kind = OP_neg}, some_part(), FORWARD, "S(0)");
  row_in_loop(anew)->stack = place;
  int third = step(gathering(), anew, FORWARD, "R");
  int fourth = step(gathering(), anew, FORWARD, "R");
  int made[] = {first, second, third, fourth};
  bucket();
  const struct function *f = function_of_phase(FORWARD);
  int n = 0;
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    if (op->kind != OP_all_gather) continue;
    must(op->nbody == 2, "%d members", op->nbody);
    for (int k = 0; k < 2; k++)
      must(graph->op[op->body[k]].out == made[2 * n + k], "member %d of %d is another", k, n);
    must(strstr(op->why, "it is used whole; 2 of the 4 of a greedy bucket"), "%s", op->why);
    n++;
  }
  must(n == 2, "%d gathers", n);
}

/* A gather of what the first scatter makes travels with the gather before, of which the second
   scatter takes what it makes: by way of that bucket the second scatter needs the first. */
static void chosen_where_gathers_are_merged(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  plan_options->bucketing = BUCKETS_GREEDY;
  struct op scatter = {.kind = OP_reduce_scatter, .group = add_group(1), .why = "its sum is cut"};
  int whole = given(BATCH, "x", parse_shape("4x4"), parse_layout("P"));
  int first = step(gathering(), some_part(), FORWARD, "R");
  int part = step(scatter, whole, FORWARD, "S(0)");
  step(gathering(), part, FORWARD, "R");
  int pending = step((struct op){.kind = OP_to_partial}, first, FORWARD, "P");
  int other = step(scatter, pending, FORWARD, "S(0)");
  bucket();
  check(PASS_BUCKET);
  must(only(FORWARD, OP_all_gather)->nbody == 2, "the gathers are apart");
  must(count(FORWARD, OP_reduce_scatter) == 2, "the scatters are together");
  must(!strcmp(graph->op[graph->value[part].op].why, scatter.why),
       "the first is described as split");
  must(!strcmp(graph->op[graph->value[other].op].why, scatter.why),
       "the second is described as split");
}

static void test_greedy(void **state)
{
  (void)state;
  passes(split_in_two, NULL);
  passes(chosen_where_gathers_are_merged, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_unit_travels_together),
      cmocka_unit_test(test_what_stays),
      cmocka_unit_test(test_what_depends_stays_apart),
      cmocka_unit_test(test_greedy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
