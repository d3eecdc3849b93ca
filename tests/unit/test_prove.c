/* The proof that no program hangs: sequences of collectives that complete are accepted, and every
   sequence with a fault, of any kind and anywhere, is refused with the fault's name. */
#include "check/check.h"
#include "unit.h"

/* ---------------------------------------------------------------- sequences as ranks issue them */

static int value_as(const char *shape, const char *layout)
{
  return given(ACTIVATION, "x", parse_shape(shape), parse_layout(layout));
}

/* A collective along one dimension of the mesh, from one layout of a value to another. */
static void collective(struct function *f, enum op_kind kind, unsigned dims, const char *from,
                       const char *to, int dim, int dim_to)
{
  struct op op = {.kind = kind,
                  .nin = 1,
                  .module = NONE,
                  .dim = dim,
                  .dim_to = dim_to,
                  .group = add_group(dims),
                  .line = 100 + f->nop};
  op.in[0] = value_as("7x5", from);
  GROW(graph->op, graph->nop, graph->op_room);
  op.out = value_as("7x5", to);
  graph->op[graph->nop] = op;
  f->op[f->nop++] = graph->nop++;
}

/* An exchange over the dimensions of the mesh in this order. */
static void exchange(struct function *f, int n, const int *dim, const char *from, const char *to)
{
  struct move m = {.kind = OP_exchange, .n = n, .from = parse_layout(from), .to = parse_layout(to)};
  memcpy(m.dim, dim, (size_t)n * sizeof *dim);
  int group = add_ordered_group(n, dim);
  GROW(graph->exchange, graph->nexchange, graph->exchange_room);
  graph->exchange[graph->nexchange++] = (struct exchange){parse_shape("7x5"), F32, m, group};
  collective(f, OP_exchange, 1, from, to, 0, 0);
  graph->op[graph->nop - 1].group = group;
  graph->op[graph->nop - 1].exchange = graph->nexchange - 1;
}

/* A program with every kind of collective over several groups of a 2x3 mesh. */
static struct sequence *good_program(void)
{
  new_graph(2, (int[]){2, 3});
  struct function *f = graph->function = alloc(sizeof *f);
  graph->nfunction = 1;
  f->name = "forward";
  f->count = 1;
  f->op = alloc(16 * sizeof *f->op);
  collective(f, OP_all_reduce, 1, "P R", "R R", 0, 0);
  collective(f, OP_all_gather, 2, "R S(0)", "R R", 0, 0);
  collective(f, OP_reduce_scatter, 2, "R P", "R S(1)", 1, 0);
  collective(f, OP_all_to_all, 2, "R S(0)", "R S(1)", 0, 1);
  collective(f, OP_all_reduce, 3, "P P", "R R", 0, 0);
  collective(f, OP_all_reduce, 2, "S(0) P", "S(0) R", 0, 0);
  exchange(f, 2, (int[]){0, 1}, "S(0) S(1)", "S(1) S(0)");
  exchange(f, 2, (int[]){1, 0}, "S(0) S(0)", "R S(0)");
  struct sequence *of_rank = alloc(6 * sizeof *of_rank);
  for (int r = 0; r < 6; r++) of_rank[r] = issued_by(f->op, f->nop, r);
  return of_rank;
}

/* A copy of the sequences in which rank `rank`'s may be spoiled. */
static struct sequence *copy_for(const struct sequence *of_rank, int world, int rank)
{
  struct sequence *copy = alloc((size_t)world * sizeof *copy);
  memcpy(copy, of_rank, (size_t)world * sizeof *copy);
  size_t n = (size_t)of_rank[rank].n;
  copy[rank].issue = alloc((n + 1) * sizeof *copy[rank].issue);
  memcpy(copy[rank].issue, of_rank[rank].issue, n * sizeof *copy[rank].issue);
  return copy;
}

static void test_equal_sequences_are_let_through(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program();
  assert_int_equal(of_rank[0].n, 8);
  assert_null(prove_order(of_rank));
  prove();
}

static void test_what_is_issued(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program();
  const struct issue *x = &of_rank[4].issue[3];
  assert_int_equal(x->kind, OP_all_to_all);
  assert_int_equal(x->line, 103);
  assert_int_equal(graph->group[x->group].dims, 2);
  /* Rank 4 is the second of its three: it holds 3 rows of 7, and 2 columns of 5. */
  int64_t give[] = {3 * 2, 3 * 2, 3 * 1}, get[] = {3 * 2, 3 * 2, 1 * 2};
  assert_memory_equal(x->give, give, sizeof give);
  assert_memory_equal(x->get, get, sizeof get);
  int64_t parts[] = {3 * 5, 3 * 5, 1 * 5}, columns[] = {7 * 2, 7 * 2, 7 * 1}, both[] = {35, 35};
  assert_memory_equal(of_rank[4].issue[1].give, parts, sizeof parts);
  assert_memory_equal(of_rank[4].issue[2].give, columns, sizeof columns);
  assert_memory_equal(of_rank[4].issue[0].give, both, sizeof both);
}

/* Counts as a rank's program states them, of which one is another. */
struct stated {
  int op, rank;
  int64_t give[6], get[6];
  bool equal;
};

static void state_counts(const void *with)
{
  const struct stated *s = with;
  check_counts(&graph->op[s->op], s->rank, s->give, s->get, s->equal);
}

/* All ranks could agree on counts that are those of no parts. */
static void test_counts_are_those_of_parts(void **state)
{
  (void)state;
  good_program();
  const struct function *f = &graph->function[0];
  int faults = 0;
  for (int k = 0; k < f->nop; k++)
    for (int rank = 0; rank < 6; rank += 4) {
      const struct op *op = &graph->op[f->op[k]];
      struct stated right = {.op = f->op[k], .rank = rank};
      int n = group_size(op->group);
      collective_counts(op, rank, right.give, right.get);
      right.equal = equal_parts(op, rank);
      passes(state_counts, &right);
      for (int m = 0; m < n; m++) {
        struct stated wrong = right;
        wrong.give[m]++;
        refused(state_counts, &wrong, -SIGABRT, "prove", "parts", NULL);
        if (!collective_row[op->kind].pairwise) continue;
        wrong = right;
        wrong.get[m]++;
        refused(state_counts, &wrong, -SIGABRT, "prove", "have in common", NULL);
        faults++;
      }
      struct stated wrong = right;
      wrong.equal = true;
      bool tells = op->kind != OP_exchange; /* a rank of an exchange may have equal ones alone */
      if (!right.equal && tells)
        refused(state_counts, &wrong, -SIGABRT, "they are not equal", NULL), faults++;
    }
  assert_true(faults > 30);
}

static void test_no_collectives(void **state)
{
  (void)state;
  new_graph(1, (int[]){3});
  struct sequence none[3] = {{0}};
  assert_null(prove_order(none));
}

/* Of a 7x5 tensor rank 4, at (1, 1), has rows 4 to 6 and columns 2 and 3; and comes to have rows 3
   to 5 and columns 3 and 4. */
static void test_what_an_exchange_issues(void **state)
{
  (void)state;
  const struct issue *x = &good_program()[4].issue[6];
  assert_int_equal(x->kind, OP_exchange);
  assert_false(x->equal);
  int64_t give[] = {0, 2, 1, 0, 2, 1}, get[] = {0, 0, 0, 0, 0, 0};
  struct piece list[6];
  for (int i = 0, n = pieces_got(&graph->exchange[0].move, graph->exchange[0].whole, 4, list);
       i < n; i++)
    get[list[i].member] = elements(list[i].part.shape);
  assert_memory_equal(x->give, give, sizeof give);
  assert_memory_equal(x->get, get, sizeof get);
  int64_t sum = 0;
  for (int i = 0; i < 6; i++) sum += x->get[i];
  assert_int_equal(sum, 3 * 2);
  /* The members of the other stand in another order: of rank 1 it is the third. */
  int member[6];
  assert_int_equal(group_members(good_program()[0].issue[7].group, 0, member), 6);
  assert_int_equal(member[2], 1);
}

/* Groups of the same ranks in two orders are two communicators. */
static void test_groups_of_two_orders(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program(), *spoilt = copy_for(of_rank, 6, 2);
  spoilt[2].issue[7].group = spoilt[2].issue[6].group;
  assert_true(of_rank[2].issue[7].group != of_rank[2].issue[6].group);
  must(prove_order(spoilt), "two orders of one group are let through");
}

/* -------------------------------------------------------------------------- one fault, anywhere */

enum fault { KIND, FORM, TYPE, REDUCTION, GIVE, GET, OTHER_GROUP, LEAVE_OUT, TWICE, SWAP, FAULTS };

static int64_t *one_more(const int64_t *counts, int n)
{
  int64_t *copy = alloc((size_t)n * sizeof *copy);
  memcpy(copy, counts, (size_t)n * sizeof *copy);
  copy[n - 1]++;
  return copy;
}

/* Puts the fault into place i; false where it would be none. */
static bool spoil(struct sequence *s, int i, enum fault fault)
{
  struct issue *x = &s->issue[i];
  int n = group_size(x->group);
  size_t rest = (size_t)(s->n - i - 1) * sizeof *x;
  switch (fault) {
  case KIND:
    x->kind = x->kind == OP_all_reduce ? OP_all_gather : OP_all_reduce;
    return true;
  case FORM:
    x->equal = !x->equal;
    return true;
  case TYPE:
    x->type = BF16;
    return true;
  case REDUCTION:
    x->reduction = MAX;
    return true;
  case GIVE:
    x->give = one_more(x->give, n);
    return true;
  case GET:
    x->get = one_more(x->get, n);
    return x->kind == OP_all_to_all || x->kind == OP_exchange;
  case OTHER_GROUP:
    x->group = x->group ? 0 : 1;
    return true;
  case LEAVE_OUT:
    memmove(x, x + 1, rest);
    s->n--;
    return true;
  case TWICE:
    memmove(x + 1, x, rest + sizeof *x);
    s->n++;
    return true;
  case SWAP:
    /* Of two groups the other ranks may let both pass: only neighbours in one group must not swap.
     */
    if (i + 1 == s->n || x[0].group != x[1].group) return false;
    struct issue first = x[0];
    x[0] = x[1];
    x[1] = first;
    return true;
  default:
    return false;
  }
}

static void test_every_fault_is_refused(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program();
  int tried = 0;
  for (int rank = 0; rank < 6; rank++)
    for (int i = 0; i < of_rank[rank].n; i++)
      for (enum fault fault = KIND; fault < FAULTS; fault++) {
        struct sequence *spoilt = copy_for(of_rank, 6, rank);
        if (!spoil(&spoilt[rank], i, fault)) continue;
        tried++;
        must(prove_order(spoilt), "fault %d in collective %d of rank %d is let through", (int)fault,
             i, rank);
      }
  print_message("%d faults\n", tried);
  assert_true(tried > 300);
}

static void says(const char *why, const char *word)
{
  must(why && strstr(why, word), "'%s' is not in: %s", word, why ? why : "nothing");
}

static void test_messages(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program(), *spoilt = copy_for(of_rank, 6, 4);
  spoil(&spoilt[4], 2, SWAP);
  const char *why = prove_order(spoilt);
  says(why, "rank 3 enters reduce_scatter of f32 over b (line 102)");
  says(why, "rank 4 enters all_to_all of f32 over b (line 103)");

  spoilt = copy_for(of_rank, 6, 5);
  spoilt[5].n -= 3;
  why = prove_order(spoilt);
  says(why, "rank 3 waits in all_reduce of f32 over b (line 105)");
  says(why, "rank 5 has no more collectives");

  spoilt = copy_for(of_rank, 6, 1);
  spoil(&spoilt[1], 1, GIVE);
  why = prove_order(spoilt);
  says(why, "elements 15 15 5");
  says(why, "elements 15 15 6");
}

/* Each rank's own counts agree with themselves, but what one sends is not what the other awaits. */
static void test_two_ends_of_an_exchange(void **state)
{
  (void)state;
  struct sequence *of_rank = good_program(), *spoilt = copy_for(of_rank, 6, 2);
  struct issue *x = &spoilt[2].issue[3];
  int64_t give[] = {2, 2, 1}, get[] = {2, 2, 1};
  assert_memory_equal(x->give, give, sizeof give);
  get[0] = 3;
  x->get = get;
  says(prove_order(spoilt), "all_to_all");
}

/* ----------------------------------------------------------------------- the program's own text */

/* A phase that sums, calls a loop, and sums again; in its body, before the call or behind it one
   sum among ranks whose parts are not equal, as no pass may leave it. */
static void faulty_program(const void *with)
{
  const int *where = with;
  new_graph(2, (int[]){2, 3});
  struct function *f = graph->function = alloc(2 * sizeof *f);
  graph->nfunction = 2;
  for (int i = 0; i < 2; i++)
    f[i] = (struct function){.name = i ? "body" : "forward",
                             .count = i ? 126 : 1,
                             .upward = true,
                             .op = alloc(16 * sizeof *f->op)};
  for (int place = 0; place < 3; place++) {
    bool fault = place == *where;
    collective(&f[place == 1], OP_all_reduce, 2, fault ? "R S(0)" : "R P", fault ? "R S(0)" : "R R",
               0, 0);
    if (place != 1) continue;
    GROW(graph->op, graph->nop, graph->op_room);
    graph->op[graph->nop] = (struct op){.kind = OP_loop, .out = NONE, .function = 1};
    f->op[f->nop++] = graph->nop++;
  }
  prove();
}

static void test_faults_of_the_program(void **state)
{
  (void)state;
  int where = NONE;
  passes(faulty_program, &where);
  for (where = 0; where < 3; where++)
    refused(faulty_program, &where, -SIGABRT, "prove", "the programs could hang: rank 0 enters",
            "while rank 2 enters all_reduce", "elements 15 15 15", "elements 5 5 5", NULL);
}

/* --------------------------------------------------------------------------- between the groups */

static struct sequence two_issues(int first, int second)
{
  static const int64_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  struct sequence s = {.n = 2, .issue = alloc(2 * sizeof *s.issue)};
  for (int i = 0; i < 2; i++)
    s.issue[i] = (struct issue){.group = i ? second : first,
                                .kind = OP_all_reduce,
                                .give = one,
                                .get = one,
                                .line = 10 + i};
  return s;
}

/* Ranks 0 and 2 of a 2x2 mesh meet along the first dimension and, with all, along both. */
static void test_groups_in_two_orders(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 2});
  int a = add_group(1), ab = add_group(3);
  struct sequence of_rank[4];
  for (int r = 0; r < 4; r++) of_rank[r] = two_issues(a, ab);
  assert_null(prove_order(of_rank));
  of_rank[2] = two_issues(ab, a);
  says(prove_order(of_rank), "for ranks that wait in other groups");
}

/* Of a 2x2 mesh each rank may go along its row first or along its column first. They wait in a ring
   only where each one's first partner prefers its other one. */
static void test_rings(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 2});
  int column = add_group(1), row = add_group(2), rings = 0;
  for (int which = 0; which < 16; which++) {
    struct sequence of_rank[4];
    bool row_first[4];
    for (int r = 0; r < 4; r++) {
      row_first[r] = which >> r & 1;
      of_rank[r] = row_first[r] ? two_issues(row, column) : two_issues(column, row);
    }
    bool ring = row_first[0] != row_first[1] && row_first[1] != row_first[3] &&
                row_first[3] != row_first[2] && row_first[2] != row_first[0];
    const char *why = prove_order(of_rank);
    must(ring == (why != NULL), "order %d: %s", which, why ? why : "let through");
    if (!ring) continue;
    rings++;
    says(why, "rank 0 waits in all_reduce of f32 over ");
    says(why, "for ranks that wait in other groups");
  }
  assert_int_equal(rings, 2);
}

/* A ring of six over a mesh of three dimensions, while the other two ranks are long done. */
static void test_ring_of_six(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 2, 2});
  int along[3] = {add_group(1), add_group(2), add_group(4)};
  /* The ring 0 1 3 7 6 4 0: from each to the next along this dimension of the mesh. */
  static const int ring[] = {0, 1, 3, 7, 6, 4}, dim[] = {2, 1, 0, 2, 1, 0};
  struct sequence of_rank[8] = {{0}};
  for (int i = 0; i < 6; i++) of_rank[ring[i]] = two_issues(along[dim[i]], along[dim[(i + 5) % 6]]);
  says(prove_order(of_rank), "for ranks that wait in other groups");
  of_rank[ring[0]] = two_issues(along[dim[5]], along[dim[0]]);
  assert_null(prove_order(of_rank));
}

/* Groups without a rank in common need not agree. */
static void test_strangers_may_differ(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 2});
  int row = add_group(2), column = add_group(1);
  struct sequence of_rank[4] = {{0}};
  of_rank[0] = of_rank[1] = two_issues(row, row);
  assert_null(prove_order(of_rank));
  of_rank[2] = two_issues(column, column);
  says(prove_order(of_rank), "rank 2 waits");
}

/* ------------------------------------------------------------------------ stages of a pipeline */

/* Stages of which each passes something on, and gets its gradient. */
static void new_stages(const struct pipeline *p)
{
  struct pipeline_stages *s = graph->stages = alloc(sizeof *s);
  *s = (struct pipeline_stages){.n = p->stages, .coordinate = p->rank_of};
  for (int i = 0; i + 1 < s->n; i++) {
    add_stage_edge((struct stage_edge){i, i + 1, STAGE_FORWARD, STAGE_FORWARD});
    add_stage_edge((struct stage_edge){i + 1, i, STAGE_BACKWARD, STAGE_BACKWARD});
  }
}

/* What the pass asks, and what the proof finds in another way: one answer. */
static const char *wait_for_each_other(const struct pipeline *p)
{
  const char *run = stages_wait(p), *proved = waits_forever(p);
  assert_int_equal(!run, !proved);
  if (run) assert_string_equal(run, proved);
  return proved;
}

static struct pipeline *several_stages_of(const char *schedule, int ranks, int stages,
                                          int microbatches)
{
  const char *why;
  struct pipeline *p = pipeline_order(schedule, ranks, stages, microbatches, &why);
  if (p) new_stages(p), find_spare_slots(p);
  return p;
}

static struct pipeline *stages_of(const char *schedule, int ranks, int microbatches)
{
  return several_stages_of(schedule, ranks, 1, microbatches);
}

/* The place of the rank's action of that kind for the micro-batch. */
static int action_at(const struct pipeline *p, int rank, enum action_kind kind, int microbatch)
{
  int i = 0;
  while (p->order[rank].at[i].kind != kind || p->order[rank].at[i].microbatch != microbatch) i++;
  return i;
}

static void swap(struct pipeline *p, int rank, int a, int b)
{
  struct action kept = p->order[rank].at[a];
  p->order[rank].at[a] = p->order[rank].at[b];
  p->order[rank].at[b] = kept;
}

static void test_stages_end(void **state)
{
  static const char *const schedule[] = {
      "gpipe",           "1f1b",      "looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble",
      "zbv_zero_bubble", "dualpipe_v"};
  int proved = 0, waited = 0;
  (void)state;
  new_graph(1, (int[]){1});
  for (int s = 0; s < 7; s++)
    for (int ranks = 1; ranks <= 8; ranks++)
      for (int stages = 1; stages <= 3; stages++)
        for (int n = 1; n <= 24; n++) {
          const struct pipeline *p = several_stages_of(schedule[s], ranks, stages, n);
          if (!p) continue;
          const int spare = graph->stages->spare_slots;
          graph->stages->spare_slots = 0;
          if (n % 8 == 0) waited += wait_for_each_other(p) != NULL;
          graph->stages->spare_slots = spare;
          const char *why = wait_for_each_other(p);
          if (why)
            printf("%s on %d ranks of %d stages, %d micro-batches: %s\n", schedule[s], ranks,
                   stages, n, why);
          assert_null(why);
          proved++;
        }
  assert_true(proved > 1500 && waited > 0);
}

/* The most that a rank has in flight at once, by a count of its own: the forward of a stage's
   micro-batch has begun, and its backward has not ended. */
static int counted_in_flight(const struct actions *actions)
{
  int now = 0, most = 0;
  for (int i = 0; i < actions->n; i++) {
    const enum action_kind kind = actions->at[i].kind;
    now += kind == ACTION_F;
    if (now > most) most = now;
    now -= kind == ACTION_B || kind == ACTION_W;
  }
  return most;
}

/* The stages of a rank share its slots: as many as are in flight at once. */
static void test_slots_are_shared(void **state)
{
  static const struct {
    const char *schedule;
    int ranks, stages, n, slots; /* slots: of rank 0 */
  } rows[] = {
      {"interleaved_1f1b", 4, 5, 16, 23}, {"1f1b", 4, 1, 16, 4}, {"interleaved_1f1b", 2, 2, 8, 5},
      {"zbv_zero_bubble", 4, 2, 16, 8},   {"gpipe", 4, 1, 6, 6}, {"looped_bfs", 2, 3, 4, 12},
  };
  (void)state;
  new_graph(1, (int[]){1});
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    const struct pipeline *p =
        several_stages_of(rows[k].schedule, rows[k].ranks, rows[k].stages, rows[k].n);
    graph->stages->spare_slots = 0;
    graph->stages->nedge = 0;
    for (int r = 0; r < p->ranks; r++) {
      const struct actions actions = actions_of(p, r);
      assert_int_equal(slots_of_rank(&actions).n, counted_in_flight(&actions));
    }
    const struct actions actions = actions_of(p, 0);
    assert_int_equal(slots_of_rank(&actions).n, rows[k].slots);
  }
}

/* A forward behind a backward that needs it, on another stage; an action that is left out. */
static void test_stages_that_wait(void **state)
{
  (void)state;
  new_graph(1, (int[]){1});
  struct pipeline *p = stages_of("1f1b", 2, 4);
  swap(p, 0, action_at(p, 0, ACTION_F, 1), action_at(p, 0, ACTION_B, 0));
  assert_null(wait_for_each_other(p)); /* later than it could be, but it ends */
  p = stages_of("1f1b", 2, 4);
  swap(p, 0, action_at(p, 0, ACTION_F, 0), action_at(p, 0, ACTION_B, 0));
  says(wait_for_each_other(p), "rank 0 in 0B0, rank 1 in 1F0");
  p = stages_of("1f1b", 2, 4);
  swap(p, 1, action_at(p, 1, ACTION_B, 0), action_at(p, 1, ACTION_F, 3));
  says(wait_for_each_other(p), "rank 0 in 0B0, rank 1 in 1F3");
  p = stages_of("gpipe", 3, 3);
  p->order[1].at[action_at(p, 1, ACTION_B, 2)].kind = ACTION_IDLE;
  says(wait_for_each_other(p), "rank 0 in 0B2");
}

/* ------------------------------------------------ collectives that ranks of several stages join */

/* The program of a place, with sums over stages and within one; which of the shapes each sums. */
static const char *joins(struct pipeline_stages *s, const char *first, const char *second)
{
  static const char *const reduced[] = {"P R", "R P"};
  new_graph(2, (int[]){2, 3});
  graph->stages = s;
  struct function *f = graph->function = alloc(sizeof *f);
  graph->nfunction = 1;
  *f = (struct function){.name = "update", .phase = UPDATE, .count = 1, .upward = true};
  f->op = alloc(8 * sizeof *f->op);
  const char *const shape[] = {first, second};
  for (int k = 0; k < 2; k++) {
    collective(f, OP_all_reduce, 2, reduced[1], "R R", 0, 0);
    if (!shape[k]) continue;
    collective(f, OP_all_reduce, 1, reduced[0], "R R", 0, 0);
    graph->value[graph->op[graph->nop - 1].in[0]].shape = parse_shape(shape[k]);
  }
  return unlike_joins();
}

static void test_what_stages_join_in(void **state)
{
  (void)state;
  for (int wrong = 0; wrong < 4; wrong++) {
    struct pipeline_stages s = {.n = 2, .here = NONE};
    s.joins = alloc(sizeof *s.joins);
    assert_null(joins(&s, "7x5", "3"));
    assert_null(joins(&s, "7x5", "3"));
    if (wrong == 0) says(joins(&s, "3", "7x5"), "in another order");
    if (wrong == 1) says(joins(&s, "7x5", NULL), "other collectives");
    if (wrong == 2) says(joins(&s, "7x5", "4"), "other collectives");
    if (wrong == 3) says(joins(&s, NULL, NULL), "other collectives");
  }
  graph->stages = NULL;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_sequences_are_let_through),
      cmocka_unit_test(test_what_is_issued),
      cmocka_unit_test(test_what_an_exchange_issues),
      cmocka_unit_test(test_groups_of_two_orders),
      cmocka_unit_test(test_counts_are_those_of_parts),
      cmocka_unit_test(test_no_collectives),
      cmocka_unit_test(test_every_fault_is_refused),
      cmocka_unit_test(test_messages),
      cmocka_unit_test(test_two_ends_of_an_exchange),
      cmocka_unit_test(test_faults_of_the_program),
      cmocka_unit_test(test_groups_in_two_orders),
      cmocka_unit_test(test_rings),
      cmocka_unit_test(test_ring_of_six),
      cmocka_unit_test(test_strangers_may_differ),
      cmocka_unit_test(test_stages_end),
      cmocka_unit_test(test_slots_are_shared),
      cmocka_unit_test(test_stages_that_wait),
      cmocka_unit_test(test_what_stages_join_in),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
