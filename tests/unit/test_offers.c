/* Completeness, exhaustively: of all shardings of an operation over one dimension of a mesh, with
   inputs replicated, sharded or pending, the engine offers all correct ones, except for the list
   below, which gives the reason for each.

   A sharding is correct if it gives the right result twice on two ranks and once on three, with
   large enough tensors and new random numbers each time. The list omits shardings that a better one
   implies: a replicated value is also a pending maximum and minimum.

   Then the same on a mesh of two dimensions, which both cut or reduce in the same way, but in
   either order: a sharding that is correct in the order opposite to the mesh's is offered, too, to
   inputs in that order. */
#include "function_passes/function_passes.h"
#include "force.h"

/* ----------------------------------------------------------------------------- what is left out */

/* Why. */
#define TURNS     "turns maxima into minima: a row names one reduction for what it takes and gives"
#define TRUTHS    "truths about a pending value: it is finished before they are asked"
#define EXTREMES  "no pending maxima or minima come here"
#define POSITIVE  "right for positive numbers alone"
#define UNLIKE    "the outputs lie in different ways, and a row names one for all"
#define PARTS     "right where no part splits what belongs together: depends on the number of ranks"
#define DRAWN     "random numbers: what they are drawn for is finished before"
#define POINTLESS "sines and cosines are never pending"

#define BOTH             "P(max) -> P(max); P(min) -> P(min)"
#define BACK_OF_EXTREMES "P(max),R -> P(max); P(min),R -> P(min)"

/* The ways of a row, in the order of the search. */
static const struct left_out {
  const char *row, *ways, *why;
} left_out[] = {
    {"sub", "R,P(max) -> P(min); R,P(min) -> P(max)", TURNS},
    {"power", "P(min) -> P(min)", POSITIVE},
    {"neg", "P(max) -> P(min); P(min) -> P(max)", TURNS},
    {"scale", BOTH, POSITIVE},
    {"float8_scale", "P(max) -> P(min); P(min) -> P(max)", TURNS},
    {"batch_share", BOTH, EXTREMES},
    {"log", "P(min) -> P(min)", POSITIVE},
    {"log1p", "P(min) -> P(min)", POSITIVE},
    {"digamma", "P(min) -> P(min)", POSITIVE},
    {"uniform_like", "P(sum) -> R; P(max) -> R; P(min) -> R", DRAWN},
    {"normal_like", "P(sum) -> R; P(max) -> R; P(min) -> R", DRAWN},
    {"sqrt", "P(min) -> P(min)", POSITIVE},
    {"rsqrt", "P(min) -> P(max)", TURNS},
    {"running",
     "R,P(sum) -> R; R,P(max) -> R; R,P(min) -> R; P(sum),P(sum) -> P(sum); P(sum),P(max) -> "
     "P(sum); P(sum),P(min) -> P(sum); P(max),P(sum) -> P(max); P(max),P(max) -> P(max); "
     "P(max),P(min) -> P(max); P(min),P(sum) -> P(min); P(min),P(max) -> P(min); P(min),P(min) -> "
     "P(min); S(0),P(sum) -> S(0); S(0),P(max) -> S(0); S(0),P(min) -> S(0)",
     "a buffer is never pending"},
    {"in_training",
     "R,P(sum) -> R; R,P(max) -> R; R,P(min) -> R; P(sum),P(sum) -> P(sum); P(sum),P(max) -> "
     "P(sum); P(sum),P(min) -> P(sum); P(max),P(sum) -> P(max); P(max),P(max) -> P(max); "
     "P(max),P(min) -> P(max); P(min),P(sum) -> P(min); P(min),P(max) -> P(min); P(min),P(min) -> "
     "P(min); S(0),P(sum) -> S(0); S(0),P(max) -> S(0); S(0),P(min) -> S(0)",
     "a buffer is never pending"},
    {"log1p_back", "R,P(min) -> P(max); P(max),R -> P(max); P(min),R -> P(min)", EXTREMES},
    {"lt", "R,P(max) -> P(max); R,P(min) -> P(min); P(max),R -> P(min); P(min),R -> P(max)",
     TRUTHS},
    {"le", "R,P(max) -> P(max); R,P(min) -> P(min); P(max),R -> P(min); P(min),R -> P(max)",
     TRUTHS},
    {"gt", "R,P(max) -> P(min); R,P(min) -> P(max); P(max),R -> P(max); P(min),R -> P(min)",
     TRUTHS},
    {"ge", "R,P(max) -> P(min); R,P(min) -> P(max); P(max),R -> P(max); P(min),R -> P(min)",
     TRUTHS},
    {"logical_and", "R,P(max) -> P(max); P(max),R -> P(max); P(min),P(min) -> P(min)", TRUTHS},
    {"logical_or", "R,P(min) -> P(min); P(max),P(max) -> P(max); P(min),R -> P(min)", TRUTHS},
    {"logical_not", "P(max) -> P(min); P(min) -> P(max)", TRUTHS},
    {"cast", BOTH, "to bf16: nobody needs it; " TRUTHS},
    {"rotary", "R,P(sum),P(sum) -> P(sum)", POINTLESS},
    {"rotary_pairs", "R,P(sum),P(sum) -> P(sum); S(2),S(1),S(1) -> S(2)", POINTLESS "; " PARTS},
    {"expand", BOTH, POSITIVE},
    {"every", "S(1) -> S(1); S(0) -> S(0)", PARTS},
    {"spread", "S(1) -> S(1)", PARTS},
    {"attention",
     "R,R,P(sum) -> P(sum),R; R,R,S(3) -> S(3),R; R,R,P(sum),R -> P(sum),R; R,R,S(3),R -> S(3),R; "
     "R,R,P(sum),R,R -> P(sum),R; R,R,S(3),R,R -> S(3),R; R,R,P(sum),R,R,R -> P(sum),R; "
     "R,R,S(3),R,R,R -> S(3),R",
     UNLIKE},
    {"cached_attention",
     "R,R,P(sum),R,P(sum),R,R -> P(sum); R,R,S(3),R,S(3),R,R -> S(4); "
     "S(0),S(0),S(0),R,R,S(0),S(0) -> S(0)",
     "a cache is neither pending nor cut in width, and ranks with all slots write them all"},
    {"cached_latent_attention", "S(0),S(0),R,S(0),S(0) -> S(0)",
     "ranks with all slots write them all"},
    {"cached_attention_parts",
     "R,R,P(sum),R,P(sum),R,R -> P(sum),R; R,R,S(3),R,S(4),R,R -> S(5),R; "
     "S(0),S(0),S(0),R,R,S(0),S(0) -> S(1),S(1)",
     "a cache is neither pending nor cut in width, and ranks with all slots write them all"},
    {"recent",
     "P(sum),P(sum),R,R -> P(sum); P(max),P(max),R,R -> P(max); P(min),P(min),R,R -> P(min); "
     "S(0),R,S(0),S(0) -> S(0)",
     "a cache is not pending, and ranks with all slots write them all"},
    {"running_sum",
     "R,P(max),R,R -> P(max); R,P(min),R,R -> P(min); P(sum),P(sum),R,R -> P(sum); "
     "S(0),R,S(0),S(0) -> S(0)",
     "a cache is not pending, and ranks with all slots write them all"},
    {"running_max", "S(0),R,S(0),S(0) -> S(0),S(0); R,P(max),R,R -> P(max),P(max)",
     "a cache is not pending, and ranks with all slots write them all"},
    {"all_tokens",
     "P(sum),P(sum),R,R -> P(sum); P(max),P(max),R,R -> P(max); P(min),P(min),R,R -> P(min); "
     "S(0),R,S(0),S(0) -> S(0)",
     "a cache is not pending, and ranks with all slots write them all"},
    {"recall_state",
     "R,R,R,P(min) -> R; R,R,S(0),S(0) -> S(0); P(sum),P(sum),R,R -> P(sum); "
     "P(max),P(max),R,R -> P(max); P(min),R,R,P(min) -> P(min); P(min),P(min),R,R -> P(min); "
     "P(min),P(min),R,P(sum) -> P(min)",
     "a cache is not pending, and ranks with all slots write them all"},
    {"attention_back",
     "R,R,R,P(sum),P(sum),R -> P(sum),P(sum),R; S(3),R,R,S(3),S(3),R -> P(sum),P(sum),S(3); "
     "R,R,R,P(sum),P(sum),R,R,R -> P(sum),P(sum),R; "
     "S(3),R,R,S(3),S(3),R,R,R -> P(sum),P(sum),S(3)",
     UNLIKE "; heads are not cut in width"},
    {"attention_back_bias", "R,R,R,P(sum),P(sum),R,R -> P(sum); S(3),R,R,S(3),S(3),R,R -> P(sum)",
     UNLIKE "; heads are not cut in width"},
    {"linear_bf16", "R,P(sum) -> P(sum)", "weights are never pending"},
    {"linear_bf16_transposed", "R,P(sum) -> P(sum)", "weights are never pending"},
    {"times_row", BOTH, EXTREMES},
};
enum { LEFT_OUT = sizeof left_out / sizeof *left_out };

/* -------------------------------------------------------------------------- placements and ways */

/* A way on a mesh of one dimension, or alike on both of a mesh of two. There a cut order of 1 says
   that the second of them cuts first. */
struct simple {
  struct placement in[MAX_INPUTS], out[MAX_OUTPUTS];
};

static bool implies(struct placement a, struct placement b)
{
  return same_placement(a, b) || (a.kind == REPLICATE && b.kind == PARTIAL && b.reduction != SUM);
}

/* Whether whoever has inputs as `b` wants them and outputs as `b` makes them can do it by `a`. */
static bool serves(const struct op *op, const struct simple *a, const struct simple *b)
{
  for (int i = 0; i < op->nin; i++)
    if (!implies(b->in[i], a->in[i])) return false;
  for (int k = 0; k < op->nout; k++)
    if (!implies(a->out[k], b->out[k])) return false;
  return true;
}

static struct layout as_layout(struct placement p)
{
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) layout.on[d] = p;
  layout.on[1].cut_order = 0;
  return layout;
}

/* Whether the choices are alike on all dimensions of the mesh, but for the cut orders. */
static bool is_simple(const struct op *op, const struct choice *list, const int *pick,
                      struct simple *s)
{
  memcpy(s->in, list[pick[0]].in, sizeof s->in);
  memcpy(s->out, list[pick[0]].out, sizeof s->out);
  for (int d = 1; d < graph->mesh.ndim; d++) {
    for (int i = 0; i < op->nin; i++)
      if (!same_placement(list[pick[d]].in[i], as_layout(s->in[i]).on[d])) return false;
    for (int k = 0; k < op->nout; k++)
      if (!same_placement(list[pick[d]].out[k], as_layout(s->out[k]).on[d])) return false;
  }
  return true;
}

static bool is_offered(const struct trial *t, const struct simple *s)
{
  struct choice list[MAX_CHOICES];
  const struct op *op = t->op;
  for (int i = 0; i < op->nin; i++) graph->value[op->in[i]].layout = as_layout(s->in[i]);
  int n = choices(op, &t->letters, list), all = power(n, graph->mesh.ndim);
  for (int c = 0; c < all; c++) {
    struct simple offer = {0};
    int pick[] = {c % n, c / n};
    if (is_simple(op, list, pick, &offer) && serves(op, &offer, s) &&
        fits_together(&t->letters, op->nin, list, pick))
      return true;
  }
  return false;
}

static const char *placed_text(struct placement p)
{
  return p.cut_order ? text("%s in cut order", placement_text(p)) : placement_text(p);
}

static char *simple_text(const struct op *op, const struct simple *s)
{
  struct buffer b = {0};
  for (int i = 0; i < op->nin; i++) put(&b, "%s%s", i ? "," : "", placed_text(s->in[i]));
  put(&b, " -> ");
  for (int k = 0; k < op->nout; k++) put(&b, "%s%s", k ? "," : "", placed_text(s->out[k]));
  return b.text;
}

static struct op_sharding as_way(const struct op *op, const struct simple *s)
{
  struct op_sharding way = {0};
  for (int i = 0; i < op->nin; i++) way.in[i] = as_layout(s->in[i]);
  for (int k = 0; k < op->nout; k++) way.out[k] = as_layout(s->out[k]);
  return way;
}

/* All that a tensor of this shape can be, shards of one element aside: the sharded ones last. */
enum { MAX_PLACEMENTS = 2 * MAX_DIMS + 4, IS_PENDING = 4 };
static int placements_of(int value, struct placement *list)
{
  struct shape shape = graph->value[value].shape;
  int n = 0;
  list[n++] = R;
  /* The sum of truths is none. */
  for (int r = SUM; r <= MIN; r++)
    list[n++] = (graph->value[value].type == BOOL && r == SUM) || (graph->mesh.ndim > 1 && r != SUM)
                    ? R
                    : (struct placement){.kind = PARTIAL, .reduction = (enum reduction)r};
  for (int d = 0; d < shape.ndim; d++)
    for (int order = 0; order < graph->mesh.ndim && shape.size[d] > 1; order++) {
      list[n++] = S(d);
      list[n - 1].cut_order = order;
    }
  return n;
}

/* ----------------------------------------------------------------------------------- the search */

enum { MOST = 4096 };
static struct simple found[MOST];
static int nfound, ntried;

/* What the search works on: the inputs' parts under each of their placements. */
static struct trial trial;
static struct placement list_in[MAX_INPUTS][MAX_PLACEMENTS], list_out[MAX_OUTPUTS][MAX_PLACEMENTS];
static int n_in[MAX_INPUTS], n_out[MAX_OUTPUTS];
static struct array *part_in[MAX_INPUTS][MAX_PLACEMENTS];

/* By letter: whether the operands placed so far have it cut, or not; else NONE. Where operands
   differ the parts cannot fit. Letters whose size is not the same everywhere say nothing. */
struct cuts {
  int of[MAX_LETTERS];
};
static bool is_one_size[MAX_LETTERS];

static void compare_sizes(const struct axis *axis, int ndim, struct shape shape)
{
  for (int d = 0; d < ndim; d++)
    if (axis[d].n == 1 && shape.size[d] != trial.letters.size[axis[d].letter[0]])
      is_one_size[axis[d].letter[0]] = false;
}

static bool agrees(struct cuts *cuts, const struct axis *axis, int ndim, struct placement p)
{
  for (int d = 0; d < ndim; d++) {
    int letter = axis[d].letter[0], cut = p.kind == SHARD && p.dim == d ? 1 + p.cut_order : 0;
    if (axis[d].n != 1 || !is_one_size[letter]) continue;
    if (cuts->of[letter] != NONE && cuts->of[letter] != cut) return false;
    cuts->of[letter] = cut;
  }
  return true;
}

/* The way in the order of the mesh. */
static struct simple straight(const struct simple *s)
{
  struct simple way = *s;
  for (int i = 0; i < trial.op->nin; i++) way.in[i].cut_order = 0;
  for (int k = 0; k < trial.op->nout; k++) way.out[k].cut_order = 0;
  return way;
}

static void note(const struct simple *s)
{
  struct simple usual = straight(s);
  if (is_offered(&trial, s)) return;
  if (graph->mesh.ndim > 1 && !is_offered(&trial, &usual)) return;
  must(nfound < MOST, "too many are right and not offered");
  found[nfound++] = *s;
}

/* Outputs from the k-th on take every placement that is right for what the ranks made. */
static void sort_out(struct simple *s, struct array *const made[MAX_OUTPUTS], int k)
{
  if (k == trial.op->nout) {
    note(s);
    return;
  }
  struct placement as = s->out[k];
  for (int p = 0; p < IS_PENDING; p++) {
    if (as.kind != SHARD) s->out[k] = list_out[k][p];
    if (not_the_whole(made[k], trial.out[k], as_layout(s->out[k]), 1e-9)) {
      if (as.kind == SHARD) break;
      continue;
    }
    sort_out(s, made, k + 1);
    if (as.kind == SHARD) break;
  }
  s->out[k] = as;
}

/* On a mesh of two dimensions what is asked is who takes an input in another cut order. */
static bool has_ordered_input(const struct simple *s)
{
  int orders = 0;
  for (int i = 0; i < trial.op->nin; i++) orders += s->in[i].cut_order;
  return orders > 0;
}

static void run_way(struct simple *s, const int *pick)
{
  if (graph->mesh.ndim > 1 && !has_ordered_input(s)) return;
  struct array *part[MAX_INPUTS], *made[MAX_OUTPUTS];
  for (int i = 0; i < trial.op->nin; i++) part[i] = part_in[i][pick[i]];
  struct op_sharding way = as_way(trial.op, s);
  size_t used = pool_used;
  ntried++;
  if (run_parts(&trial, &way, part, made)) sort_out(s, made, 0);
  pool_used = used;
}

/* Outputs from the k-th on are whole or sharded in every way. */
static void place_outputs(struct simple *s, const int *pick, struct cuts cuts, int k)
{
  if (k == trial.op->nout) {
    run_way(s, pick);
    return;
  }
  for (int p = 0; p < n_out[k]; p++) {
    if (p > 0 && p < IS_PENDING) continue;
    struct cuts now = cuts;
    s->out[k] = list_out[k][p];
    if (p < IS_PENDING || agrees(&now, trial.letters.out[k], trial.letters.ndim_out[k], s->out[k]))
      place_outputs(s, pick, now, k + 1);
  }
}

static void place_inputs(struct simple *s, int *pick, struct cuts cuts, int i)
{
  if (i == trial.op->nin) {
    place_outputs(s, pick, cuts, 0);
    return;
  }
  for (pick[i] = 0; pick[i] < n_in[i]; pick[i]++) {
    struct cuts now = cuts;
    s->in[i] = list_in[i][pick[i]];
    if (agrees(&now, trial.letters.in[i], trial.letters.ndim_in[i], s->in[i]))
      place_inputs(s, pick, now, i + 1);
  }
}

static void start(const struct instance *instance, const char *ranks, int64_t size)
{
  new_mesh(ranks);
  forget();
  prepare(&trial, instantiate(instance, (int64_t[SIZES]){size, size, size, size}));
}

static void search(const struct instance *instance, const char *ranks, int64_t size)
{
  start(instance, ranks, size);
  nfound = 0;
  const struct op *op = trial.op;
  for (int i = 0; i < op->nin; i++) {
    n_in[i] = placements_of(op->in[i], list_in[i]);
    for (int p = 0; p < n_in[i]; p++)
      part_in[i][p] =
          scatter_type(trial.in[i], graph->value[op->in[i]].type, as_layout(list_in[i][p]));
  }
  memset(is_one_size, true, sizeof is_one_size);
  for (int i = 0; i < op->nin; i++)
    compare_sizes(trial.letters.in[i], trial.letters.ndim_in[i], trial.in[i].shape);
  for (int k = 0; k < op->nout; k++)
    compare_sizes(trial.letters.out[k], trial.letters.ndim_out[k], trial.out[k].shape);
  for (int k = 0; k < op->nout; k++) n_out[k] = placements_of(op->out + k, list_out[k]);
  struct simple s = {0};
  struct cuts cuts;
  int pick[MAX_INPUTS];
  memset(&cuts, 0xff, sizeof cuts);
  place_inputs(&s, pick, cuts, 0);
}

/* Keeps of what was found what is right on this mesh, with new numbers, too. */
static void confirm(const struct instance *instance, const char *ranks, int64_t size)
{
  start(instance, ranks, size);
  int n = 0;
  size_t used = pool_used;
  for (int f = 0; f < nfound; f++, pool_used = used) {
    struct op_sharding way = as_way(trial.op, &found[f]);
    if (!is_offered(&trial, &found[f]) && !unsound(&trial, &way)) found[n++] = found[f];
  }
  nfound = n;
}

static void drop_implied(void)
{
  int n = 0;
  for (int f = 0; f < nfound; f++) {
    bool implied = false;
    for (int g = 0; g < nfound; g++)
      implied |= g != f && serves(trial.op, &found[g], &found[f]) &&
                 (g < f || !serves(trial.op, &found[f], &found[g]));
    found[nfound + n] = found[f];
    n += !implied;
  }
  memmove(found, found + nfound, (size_t)n * sizeof *found);
  nfound = n;
}

/* Of one element much is right that is wrong of two. */
static bool has_ones(const struct instance *instance)
{
  for (int i = 0; i < MAX_INPUTS && instance->in[i]; i++) {
    const char *letters = instance->in[i] + strspn(instance->in[i], "?#");
    if (!*letters || strchr(letters, '1')) return true;
  }
  return false;
}

/* What is found of each row, or of each of the plan's operators. */
enum { MOST_ROWS = OP_COUNT + sizeof customs / sizeof *customs };
static struct {
  const char *row;
  char ways[1024];
} unlisted[MOST_ROWS];
static int nunlisted, nways;

static void tell(const char *row, const char *way)
{
  int i = 0;
  while (i < nunlisted && strcmp(unlisted[i].row, row)) i++;
  if (i == nunlisted) unlisted[nunlisted++].row = row;
  char *ways = unlisted[i].ways;
  if (strstr(ways, way)) return;
  nways++;
  size_t n = strlen(ways);
  snprintf(ways + n, sizeof unlisted[i].ways - n, "%s%s", n ? "; " : "", way);
}

/* Each instance has numbers of its own: a new row changes what no other is tried on. */
static void seed_by(const char *name)
{
  unit_seed = 1;
  for (; *name; name++) unit_seed = unit_seed * 31 + (unsigned char)*name;
}

/* Operations of many inputs have many ways. These are searched with parts of one element, and what
   is right for these alone goes as larger ones do not confirm it. */
static int64_t size_of_search(const struct instance *instance)
{
  int n = 0;
  while (n < MAX_INPUTS && instance->in[n]) n++;
  return n > 4 ? 2 : 4;
}

static void tell_all(const struct instance *instance)
{
  seed_by(instance->custom ? instance->custom : op_row[instance->kind].name);
  search(instance, "2", size_of_search(instance));
  if (nfound) confirm(instance, "2", 4);
  if (nfound) confirm(instance, "3", 6);
  drop_implied();
  for (int f = 0; f < nfound; f++)
    tell(instance->custom ? instance->custom : op_row[instance->kind].name,
         simple_text(trial.op, &found[f]));
}

static const char *why_left_out(const char *row, const char *ways)
{
  for (int i = 0; i < LEFT_OUT; i++)
    if (!strcmp(left_out[i].row, row) && !strcmp(left_out[i].ways, ways)) return left_out[i].why;
  /* A derivative times the gradient of the output, which is never a pending maximum. */
  size_t n = strlen(row), end = strlen("_back");
  bool is_back = n > end && !strcmp(row + n - end, "_back");
  return is_back && !strcmp(ways, BACK_OF_EXTREMES) ? EXTREMES : NULL;
}

static int left_out_of(const char *row)
{
  for (int i = 0; i < LEFT_OUT; i++)
    if (!strcmp(left_out[i].row, row)) return i;
  return NONE;
}

static void test_right_ways_are_offered(void **state)
{
  (void)state;
  int wrong = 0;
  for (int i = 0; i < INSTANCES; i++) {
    if (strchr(op_row[instances[i].kind].rule, '+')) continue; /* references do not read counts */
    if (op_row[instances[i].kind].keeps) continue; /* its result says nothing of what it writes */
    if (is_tried(instances[i].kind) && !has_ones(&instances[i])) tell_all(&instances[i]);
  }
  for (int i = 0; i < nunlisted; i++) {
    const char *why = why_left_out(unlisted[i].row, unlisted[i].ways);
    int other = left_out_of(unlisted[i].row);
    if (why) {
      print_message("%s: %s: %s\n", unlisted[i].row, unlisted[i].ways, why);
      continue;
    }
    wrong++;
    print_error(
        "%s: right, and not offered: %s\n  left_out[] has: %s\n  the row's inputs in which it "
        "is linear offer it, or left_out[] says why not\n",
        unlisted[i].row, unlisted[i].ways, other == NONE ? "nothing" : left_out[other].ways);
  }
  for (int i = 0; i < LEFT_OUT && !getenv("TPGEN_ROWS"); i++) {
    bool is_found = false;
    for (int k = 0; k < nunlisted; k++) is_found |= !strcmp(unlisted[k].row, left_out[i].row);
    if (is_found) continue;
    wrong++;
    print_error("%s: offered now, or wrong: take it off the list: %s\n", left_out[i].row,
                left_out[i].ways);
  }
  print_message("%d ways tried; %d of %d rows are right and not offered\n", ntried, nways,
                nunlisted);
  assert_int_equal(wrong, 0);
}

/* What of an operation is tried in other cut orders: tensors that are large take too long. */
static bool is_small_instance(const struct instance *instance, int64_t size)
{
  int64_t n = 0;
  new_mesh("2x2");
  const struct op *op = instantiate(instance, (int64_t[SIZES]){size, size, size, size});
  for (int i = 0; i < op->nin; i++) n += elements(graph->value[op->in[i]].shape);
  return n <= 1100;
}

static void test_right_ways_in_cut_order_are_offered(void **state)
{
  (void)state;
  int tried = 0, more = 0;
  ntried = 0;
  for (int i = 0; i < INSTANCES; i++) {
    if (!is_tried(instances[i].kind) || has_ones(&instances[i]) ||
        !is_small_instance(&instances[i], 8))
      continue;
    tried++;
    search(&instances[i], "2x2", 8);
    if (nfound) confirm(&instances[i], "2x2", 8);
    if (nfound) confirm(&instances[i], "2x3", 12);
    drop_implied();
    for (int f = 0; f < nfound; f++)
      print_error("%s: right, and not offered: %s\n", op_row[instances[i].kind].name,
                  simple_text(trial.op, &found[f]));
    more += nfound;
  }
  print_message("%d operations, %d ways tried; %d are right and not offered\n", tried, ntried,
                more);
  assert_int_equal(more, 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_right_ways_are_offered),
      cmocka_unit_test(test_right_ways_in_cut_order_are_offered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
