/* Whole programs: random models, with repeated layers and random layouts on random meshes, go
   through every pass; the result of memory.c is run on simulated ranks, each with its own arena,
   with loops, kernels and collectives like those of the generated C. The loss and every gradient
   must equal those of the dense model, before any sharding, fusion, folding or arena assignment. */

#include "driver/driver.h"
#include "interpreter.h"

/* ------------------------------------------------------------------------------- a random model */

enum { MOST_LAYERS = 4, MOST_RECIPE = 6 };

/* What is done in a layer, the same in each. */
struct recipe {
  int n;
  struct {
    int kind, module;
    bool viewed; /* the weight, before it is used */
    struct placement to[MAX_MESH];
    enum op_kind unary;
  } step[MOST_RECIPE];
};
enum step {
  LINEAR,
  BIAS,
  UNARY,
  RESIDUAL,
  CENTRE,
  MOVE,
  OUTSIDE,
  LESS_OUTSIDE,
  OF_FIRST,
  TIED,
  FLAT,
  TRANSPOSED,
  HEADS,
  VIEWED_OUTSIDE,
  PEAK,
  HALVES,
  TRIANGLE,
  DROPOUT,
  ATTENTION,
  STEPS
};

static int width, rows;
static int outside;  /* a value made before the layers */
static int of_first; /* one that the first layer makes, or NONE */
static int tied;     /* a weight of the first layer, or NONE */
static int streams;  /* of random numbers, so far */

static struct layout random_layout(int ndim)
{
  struct placement list[MAX_DIMS + 2];
  int n = every_placement(ndim, false, list);
  struct layout layout = nth_layout(list, n, draw_below(power(n, graph->mesh.ndim)));
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (graph->mesh.size[d] == 1) layout.on[d] = R;
    if (layout.on[d].kind == SHARD) layout.on[d].cut_order = draw_below(2);
  }
  return usual_cut_order(layout);
}

static int apply(enum op_kind kind, int a, int b, int module)
{
  return append_op((struct op){.kind = kind,
                               .nin = b == NONE ? 1 : 2,
                               .in = {a, b},
                               .scalar = 0.5,
                               .module = module,
                               .line = 1});
}

static int parameter(const char *name, int module, struct shape shape, struct layout layout)
{
  const char *path = graph->module[module].path;
  int p = given(PARAMETER, *path ? text("%s.%s", path, name) : name, shape, layout);
  graph->value[p].module = module;
  return p;
}

static struct shape matrix(int64_t m, int64_t n)
{
  return (struct shape){.ndim = 2, .size = {m, n}};
}

static int centred(int x, int module)
{
  int mean = append_op((struct op){.kind = OP_sum,
                                   .nin = 1,
                                   .in = {x},
                                   .dims = 2,
                                   .keepdim = true,
                                   .scalar = 1.0 / width,
                                   .module = module,
                                   .line = 2});
  return apply(OP_sub, x, mean, module);
}

static int multiply(int x, int weight, int module, int line)
{
  return append_op((struct op){.kind = OP_matmul,
                               .nin = 2,
                               .in = {x, weight},
                               .equation = "mk,nk->mn",
                               .module = module,
                               .line = line});
}

/* As a style's request. */
static int move(int x, const struct placement *to, int module, int line)
{
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {x},
                  .module = module,
                  .line = line,
                  .asked = (1u << graph->mesh.ndim) - 1,
                  .why = "a style"};
  for (int d = 0; d < graph->mesh.ndim; d++) op.to.on[d] = graph->mesh.size[d] > 1 ? to[d] : R;
  return append_op(op);
}

static int by_equation(enum op_kind kind, int x, int module, const char *equation)
{
  return append_op((struct op){
      .kind = kind, .nin = 1, .in = {x}, .equation = equation, .module = module, .line = 4});
}

/* The same by way of another shape. */
static int viewed(int x, int64_t m, int module)
{
  x = by_equation(OP_view, x, module, "ab->(ab)");
  return by_equation(OP_view, x, module,
                     text("(a%" PRId64 "b%d)->a%" PRId64 "b%d", m, width, m, width));
}

/* Each element by itself, seen as one row; and back. */
static int flat(int x, enum op_kind unary, int module)
{
  x = apply(unary, by_equation(OP_view, x, module, "ab->(ab)"), NONE, module);
  return by_equation(OP_view, x, module, text("(a%db%d)->a%db%d", rows, width, rows, width));
}

static int transposed(int x, enum op_kind unary, int module)
{
  x = apply(unary, by_equation(OP_permute, x, module, "ab->ba"), NONE, module);
  return by_equation(OP_permute, x, module, "ab->ba");
}

/* The columns as pairs, in another order. */
static int heads(int x, int module)
{
  if (width % 2) return x;
  x = by_equation(OP_view, x, module, text("m(a%db2)->ma%db2", width / 2, width / 2));
  x = by_equation(OP_permute, x, module, "mab->mba");
  return by_equation(OP_view, x, module, "mba->m(ba)");
}

/* The columns from `first` to `last`. */
static int columns(int x, int64_t first, int64_t last, int module)
{
  struct op op = {.kind = OP_narrow,
                  .nin = 1,
                  .in = {x},
                  .number = {first},
                  .dims = 2,
                  .module = module,
                  .line = 5};
  return append_op_shaped(op, matrix(rows, last - first));
}

/* The left and the right half change places. */
static int halves(int x, int module)
{
  if (width < 2) return x;
  int left = columns(x, 0, width / 2, module), right = columns(x, width / 2, width, module);
  struct op op = {
      .kind = OP_cat, .nin = 2, .in = {right, left}, .dims = 2, .module = module, .line = 5};
  return append_op_shaped(op, matrix(rows, width));
}

/* Less the largest of each row. */
static int peak(int x, int module)
{
  int most = append_op((struct op){.kind = OP_amax,
                                   .nin = 1,
                                   .in = {x},
                                   .dims = 2,
                                   .keepdim = true,
                                   .scalar = 1,
                                   .constant = true,
                                   .module = module,
                                   .line = 6});
  return apply(OP_sub, x, most, module);
}

static int numbered(enum op_kind kind, int x, int64_t number, int module)
{
  return append_op((struct op){.kind = kind,
                               .nin = 1,
                               .in = {x},
                               .scalar = 0.3,
                               .number = {number},
                               .module = module,
                               .line = 7});
}

/* Two heads that attend to themselves. */
static int attention(int x, int module)
{
  if (width % 2) return x;
  int h = apply(OP_tanh, x, NONE, module); /* the reference knows no large scores */
  h = by_equation(OP_view, h, module, text("q(h2d%d)->1 qh2d%d", width / 2, width / 2));
  h = by_equation(OP_permute, h, module, "aqhd->ahqd");
  h = append_op((struct op){.kind = OP_attention,
                            .nin = 3,
                            .in = {h, h, h},
                            .scalar = 0.7,
                            .number = {1},
                            .module = module,
                            .line = 8});
  h = by_equation(OP_permute, h, module, "ahqd->aqhd");
  return by_equation(OP_view, h, module, "1 qhd->q(hd)");
}

/* The i-th step of a layer on x; `parameter` is the layer's for this step, and `residual` what the
   layer began with. */
static int take_step(const struct recipe *r, int i, int x, int parameter, int module, int residual)
{
  switch (r->step[i].kind) {
  case LINEAR:
    if (r->step[i].viewed) parameter = viewed(parameter, width, module);
    return multiply(x, parameter, module, 10 + i);
  case BIAS:
    return apply(OP_add, x, parameter, module);
  case UNARY:
    return apply(r->step[i].unary, x, NONE, module);
  case RESIDUAL:
    return apply(OP_add, x, residual, module);
  case CENTRE:
    return centred(x, module);
  case OUTSIDE:
    return apply(OP_mul, x, outside, module);
  case LESS_OUTSIDE:
    return apply(OP_sub, x, outside, module);
  case OF_FIRST:
    return of_first == NONE ? x : apply(OP_sub, x, of_first, module);
  case FLAT:
    return flat(x, r->step[i].unary, module);
  case TRANSPOSED:
    return transposed(x, r->step[i].unary, module);
  case HEADS:
    return heads(x, module);
  case VIEWED_OUTSIDE:
    return apply(OP_add, x, viewed(outside, rows, module), module);
  case PEAK:
    return peak(x, module);
  case HALVES:
    return halves(x, module);
  case TRIANGLE:
    return numbered(OP_tril, x, i - 2, module);
  case DROPOUT:
    return numbered(OP_dropout, x, streams++, module);
  case ATTENTION:
    return attention(x, module);
  case TIED:
    return tied == NONE ? x : multiply(x, tied, module, 10 + i);
  default:
    return move(x, r->step[i].to, module, 10 + i);
  }
}

static struct recipe random_recipe(void)
{
  static const enum op_kind unary[] = {OP_relu, OP_tanh, OP_sigmoid, OP_silu, OP_scale, OP_neg};
  struct recipe r = {.n = 1 + draw_below(MOST_RECIPE)};
  for (int i = 0; i < r.n; i++) {
    r.step[i].kind = draw_below(3) ? draw_below(STEPS) : LINEAR;
    r.step[i].module = draw_below(2);
    r.step[i].viewed = !draw_below(4);
    r.step[i].unary = unary[draw_below(6)];
    for (int d = 0; d < MAX_MESH; d++) {
      r.step[i].to[d] = draw_below(2) ? R : S(draw_below(2));
      r.step[i].to[d].cut_order = draw_below(2);
      if (!draw_below(8)) r.step[i].to[d] = P;
    }
  }
  return r;
}

/* Layers of one recipe in a list, each with a module of its own inside; gives what the last
   makes. */
static int add_layers(int x, int root, int count, const struct recipe *r)
{
  int list = add_module("layers", "ModuleList", root, 1), layer[MOST_LAYERS], inner[MOST_LAYERS];
  int weight[MOST_LAYERS][MOST_RECIPE];
  struct layout layout[MOST_RECIPE][2];
  for (int i = 0; i < r->n; i++) {
    layout[i][0] = random_layout(1);
    layout[i][1] = random_layout(2);
  }
  for (int l = 0; l < count; l++) {
    layer[l] = add_module(text("%d", l), "Layer", list, 1);
    inner[l] = add_module("inner", "Inner", layer[l], 1);
    for (int module = 0; module < 2; module++)
      for (int i = 0; i < r->n; i++) {
        if (r->step[i].module != module || r->step[i].kind > BIAS) continue;
        bool bias = r->step[i].kind == BIAS;
        struct shape shape = bias ? (struct shape){1, {width}} : matrix(width, width);
        weight[l][i] =
            parameter(text("w%d", i), module ? inner[l] : layer[l], shape, layout[i][!bias]);
      }
  }
  int first_weight = draw_below(r->n), first_value = draw_below(r->n);
  bool twice = !draw_below(4);
  if (r->step[first_weight].kind == LINEAR) tied = weight[0][first_weight];
  if (tied != NONE && draw_below(2)) tied = viewed(tied, width, root);
  for (int again = 0; again <= twice; again++)
    for (int l = 0; l < count; l++) {
      int residual = x;
      for (int i = 0; i < r->n; i++) {
        x = take_step(r, i, x, r->step[i].kind <= BIAS ? weight[l][i] : NONE,
                      r->step[i].module ? inner[l] : layer[l], residual);
        if (!again && l == 0 && i == first_value) of_first = x;
      }
    }
  return x;
}

static void random_mesh(void)
{
  static const char *const mesh[] = {"1", "2", "3", "2x2", "2x3", "1x2"};
  int size[MAX_MESH];
  new_graph(parse_mesh(mesh[draw_below(6)], size), size);
}

static int mean_of(int x, int module)
{
  return append_op((struct op){.kind = OP_sum,
                               .nin = 1,
                               .in = {x},
                               .dims = 3,
                               .scalar = 1.0 / (width * rows),
                               .module = module,
                               .line = 3});
}

static void add_loss(int x, int module)
{
  int target = given(BATCH, "target", matrix(rows, width), random_layout(2));
  int d = apply(OP_sub, x, target, module);
  d = apply(OP_sub, d, mean_of(d, module), module);
  graph->loss = mean_of(apply(OP_square, d, NONE, module), module);
}

/* The result, and something on the way to it. */
static void add_outputs(int x)
{
  int probe = graph->op[graph->order[draw_below(graph->norder)]].out;
  graph->value[probe].is_output = true;
  graph->value[probe].name = "probe";
  if (draw_below(2)) x = by_equation(OP_view, x, graph->value[x].module, "ab->(ab)");
  graph->value[x].is_output = true;
  graph->value[x].name = "result";
}

static void random_model(bool trained)
{
  random_mesh();
  use_sgd();
  width = 1 + draw_below(9);
  rows = 2 + draw_below(9);
  int root = add_module("", "Model", NONE, 1), first = add_module("first", "Linear", root, 1);
  int in = given(BATCH, "input", matrix(rows, width), random_layout(2));
  bool from_view = draw_below(2);
  int w = parameter("weight", first, matrix(width, width), random_layout(2));
  struct recipe tail = random_recipe(), layers = random_recipe();
  if (from_view) in = viewed(in, rows, first);
  int x = outside = multiply(in, w, first, 1);
  of_first = tied = NONE;
  streams = 0;
  x = add_layers(x, root, draw_below(4) ? 2 + draw_below(MOST_LAYERS - 1) : 1, &layers);
  for (int i = 0; i < tail.n; i++)
    if (tail.step[i].kind > BIAS) x = take_step(&tail, i, x, NONE, root, outside);
  if (trained)
    add_loss(x, root);
  else
    add_outputs(x);
}

/* -------------------------------------------------------------------------------- ranks' memory */

/* Of each rank: the arena, a word of four bytes an element, and the places of what has one of its
   own. */
static struct machine machine;
static double **arena, ***own;

/* Values with a place of their own lie in the order of the parameters, without gaps, a role at a
   time. */
static void lay_out(enum role role, int rank)
{
  bool of_parameters = role == PARAMETER || role == GRADIENT;
  for (int p = 0; p < graph->nvalue; p++) {
    if (graph->value[p].role != PARAMETER && of_parameters) continue;
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role != role || (role == ACTIVATION && !v->is_output)) continue;
      if (role == GRADIENT ? v->of != p : i != p) continue;
      /* Parts without elements take no room, as in the generated structs. */
      int64_t n = elements(local_shape(i, rank));
      own[rank][i] = pool + pool_used;
      must(pool_used + (size_t)n < POOL, "the interpreter's memory is full");
      pool_used += (size_t)n;
    }
  }
}

static void make_memory(void)
{
  machine = new_machine();
  arena = alloc((size_t)machine.world * sizeof *arena);
  own = alloc((size_t)machine.world * sizeof *own);
  for (int r = 0; r < machine.world; r++) {
    arena[r] = take((size_t)graph->memory->arena_bytes * 2 + 8);
    for (int64_t i = 0; i < graph->memory->arena_bytes / 4; i++) arena[r][i] = NAN;
    own[r] = alloc((size_t)graph->nvalue * sizeof **own);
    lay_out(PARAMETER, r);
    lay_out(GRADIENT, r);
    lay_out(BATCH, r);
    lay_out(LOSS, r);
    lay_out(ACTIVATION, r);
  }
}

/* The member of a value's stack at a module; the value itself if it has none. */
static int member(int stack, int index)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (in_loop(i)->stack == stack && in_loop(i)->index == index && !in_loop(i)->step) return i;
  return stack;
}

/* The arena at the value of a stack that a module makes; `value` is the first module's. */
static double *slot(int rank, int value, int index)
{
  struct allocation a = allocation_of(value);
  return arena[rank] + (a.offset + index % a.depth * arena_stride(a.storage)) / 4;
}

/* Where a value lies for a rank in the function f, in the round of module l: ir/loops.h. */
static double *address(int rank, int value, const struct function *f, int l)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->step) {
    int neighbour = l + loop->step;
    if (neighbour < 0 || neighbour >= f->count) {
      struct allocation first = allocation_of(loop->initial);
      if (!in_arena(first.storage)) return own[rank][first.storage];
      return arena[rank] + first.offset / 4;
    }
    return slot(rank, loop->stack, neighbour);
  }
  bool each = f->count > 1 && loop->stack == value;
  struct allocation a = allocation_of(value);
  if (in_arena(a.storage)) return each ? slot(rank, value, l) : arena[rank] + a.offset / 4;
  int place = a.storage;
  if (each) place = member(in_loop(place)->stack == NONE ? place : in_loop(place)->stack, l);
  must(own[rank][place], "v%d has no place", value);
  return own[rank][place];
}

static struct array at(int rank, int value, const struct function *f, int l)
{
  struct array a = {.shape = local_shape(value, rank)};
  const struct value *v = &graph->value[value];
  if (v->op != NONE && !v->stored) {
    /* A constant that is written where it is read. */
    must(graph->op[v->op].kind == OP_full, "v%d is read and not stored", value);
    a = zeros(a.shape);
    for (int64_t i = 0; i < elements(a.shape); i++) a.at[i] = graph->op[v->op].scalar;
    return a;
  }
  /* The parts of a concat buffer count as contiguous, one after the other. */
  a.at = address(rank, value, f, l) + bytes_before(value) / type_bytes(v->type);
  return a;
}

/* -------------------------------------------------------------------------------------- kernels */

/* What a kernel holds of the element it is at. */
struct element_state {
  int n;
  int value[256];
  double x[256];
  int64_t at[256]; /* which element of the value it is */
};

static void keep(struct element_state *held, int value, double x, int64_t at)
{
  held->value[held->n] = value;
  held->at[held->n] = at;
  held->x[held->n++] = x;
}

static const double *held_of(const struct element_state *held, int value)
{
  for (int i = 0; i < held->n; i++)
    if (held->value[i] == value) return &held->x[i];
  return NULL;
}

/* One element of an operator that looks at that element of its inputs alone. */
static double plain_element(const struct op *op, const struct element_state *held,
                            const struct array *in, struct shape space, const int64_t *index)
{
  double x[MAX_INPUTS], y;
  for (int k = 0; k < op->nin; k++) {
    int64_t own_index[MAX_DIMS];
    const double *here = held_of(held, op->in[k]);
    reduced_index(op, space.ndim, index, own_index);
    x[k] = here                    ? *here
           : op->kind == OP_expand ? in[k].at[place_in_array(in[k].shape, own_index)]
                                   : broadcast_element(op, in[k], space, index);
  }
  must(element(op->kind, x, op->scalar, &y), "no reference for %s", op_row[op->kind].name);
  return y;
}

/* One element of any operator, from its inputs as they are now. Of what the kernel holds it finds
   the element at hand alone. */
static double any_element(const struct op *op, const struct element_state *held, struct array *in,
                          struct shape space, int64_t flat_index, int rank)
{
  struct layout in_layout[MAX_INPUTS], out_layout[1] = {graph->value[op->out].layout};
  struct letters l;
  size_t used = pool_used;
  op_letters(op, &l);
  for (int k = 0; k < op->nin; k++) {
    in_layout[k] = graph->value[op->in[k]].layout;
    const double *here = held_of(held, op->in[k]);
    if (!here) continue;
    in[k] = zeros(local_shape(op->in[k], rank));
    for (int64_t i = 0; i < elements(in[k].shape); i++)
      in[k].at[i] = i == held->at[here - held->x] ? *here : NAN;
  }
  struct array out = zeros(space);
  struct places at = places_at(op, &l, in_layout, out_layout, rank);
  must(evaluate(op, in, &out, &at), "%s: the parts do not fit", op_name(op));
  pool_used = used;
  return out.at[flat_index];
}

/* In a loop's body each module draws from a stream of its own. */
static struct op in_round(const struct op *op, int l)
{
  struct op o = *op;
  if (o.kind == OP_dropout) o.number[0] += l * o.stream_growth;
  return o;
}

static double element_now(const struct op *of, const struct element_state *held, struct shape space,
                          int64_t flat_index, const struct function *f, int l, int rank)
{
  double x[MAX_INPUTS] = {0}, y;
  struct op op = in_round(of, l);
  struct array in[MAX_INPUTS] = {{{0}, NULL}};
  int64_t index[MAX_DIMS];
  indices_of(space, flat_index, index);
  for (int k = 0; k < op.nin; k++)
    if (!held_of(held, op.in[k])) in[k] = at(rank, op.in[k], f, l);
  if (op.kind != OP_permute && element(op.kind, x, 1, &y))
    return plain_element(&op, held, in, space, index);
  return any_element(&op, held, in, space, flat_index, rank);
}

static void reduce_into(const struct op *op, double *sum, double x)
{
  *sum = op->kind == OP_sum ? *sum + op->scalar * x
                            : reduce_two(op->kind == OP_amax ? MAX : MIN, *sum, x);
}

/* A kernel by rows while it runs, on one rank. */
struct by_rows {
  const struct op *kernel;
  const struct stages *stages;
  const struct function *f;
  int l, rank;
  struct shape space;
  struct array *sum;
};

/* Computes body[k] at an element of its space; what is reduced adds it to its sum, at `to` of
   it. */
static void run_member(const struct by_rows *b, int k, struct element_state *held, int64_t i,
                       int64_t to)
{
  const struct op *op = &graph->op[b->kernel->body[k]];
  double y = element_now(op, held, local_shape(space_of(op), b->rank), i, b->f, b->l, b->rank);
  if (is_reduce(op->kind)) {
    reduce_into(op, &b->sum[k].at[to], y);
    return;
  }
  keep(held, op->out, y, i);
  if (graph->value[op->out].stored) address(b->rank, op->out, b->f, b->l)[i] = y;
}

/* Goes through one row in one stage: element by element what is made, then what is reduced. */
static void run_row_once(const struct by_rows *b, const struct element_state *of_row, int stage,
                         int64_t row, int64_t n)
{
  bool made[MOST_IN_KERNEL];
  made_in_stage(b->kernel->body, b->stages, stage, made);
  for (int64_t j = 0; j < n; j++) {
    struct element_state held = *of_row;
    for (int sums = 0; sums < 2; sums++)
      for (int k = 0; k < b->kernel->nbody; k++) {
        bool reduces = is_reduce(graph->op[b->kernel->body[k]].kind);
        enum reach reach = b->stages->task[k].reach;
        if (made[k] && reduces == sums)
          run_member(b, k, &held, row * n + j, reach == OVER_COLUMN ? j : row);
      }
  }
}

static void run_by_rows(const struct by_rows *b)
{
  int64_t rows = 1, n = 1;
  for (int d = 0; d < b->space.ndim; d++) *(d < b->stages->rows ? &rows : &n) *= b->space.size[d];
  for (int64_t row = 0; row < rows; row++) {
    struct element_state held = {0};
    for (int stage = 0; stage < b->stages->count; stage++) {
      for (int k = 0; k < b->kernel->nbody; k++)
        if (b->stages->task[k].of_row && b->stages->task[k].stage == stage)
          run_member(b, k, &held, row, 0);
      run_row_once(b, &held, stage, row, n);
      for (int k = 0; k < b->kernel->nbody; k++) {
        const struct task *task = &b->stages->task[k];
        int out = graph->op[b->kernel->body[k]].out;
        if (task->reach != OVER_ROW || task->stage != stage) continue;
        keep(&held, out, b->sum[k].at[row], row);
        if (graph->value[out].stored) address(b->rank, out, b->f, b->l)[row] = b->sum[k].at[row];
      }
    }
  }
}

/* Element by element: the pointwise operations in order, then what the sums take of it. */
static void run_kernel(const struct op *kernel, const struct function *f, int l, int rank)
{
  struct stages stages;
  must(find_stages(kernel->body, kernel->nbody, &stages), "a kernel that nothing can run");
  struct shape space = local_shape(stages.space, rank);
  struct array sum[256] = {{{0}, NULL}};
  for (int k = 0; k < kernel->nbody; k++) {
    const struct op *op = &graph->op[kernel->body[k]];
    if (!is_reduce(op->kind)) continue;
    sum[k] = zeros(local_shape(op->out, rank));
    for (int64_t i = 0; i < elements(sum[k].shape) && op->kind != OP_sum; i++)
      sum[k].at[i] = op->kind == OP_amax ? -INFINITY : INFINITY;
  }
  if (stages.rows != NONE) run_by_rows(&(struct by_rows){kernel, &stages, f, l, rank, space, sum});
  for (int64_t i = 0; i < elements(space) && stages.rows == NONE; i++) {
    struct element_state held = {0};
    int64_t index[MAX_DIMS], own_index[MAX_DIMS];
    indices_of(space, i, index);
    for (int sums = 0; sums < 2; sums++)
      for (int k = 0; k < kernel->nbody; k++) {
        const struct op *op = &graph->op[kernel->body[k]];
        if (is_reduce(op->kind) != sums) continue;
        double y = element_now(op, &held, space, i, f, l, rank);
        if (sums) {
          reduced_index(op, space.ndim, index, own_index);
          reduce_into(op, &sum[k].at[place_in_array(sum[k].shape, own_index)], y);
          continue;
        }
        keep(&held, op->out, y, i);
        if (graph->value[op->out].stored) address(rank, op->out, f, l)[i] = y;
      }
  }
  for (int k = 0; k < kernel->nbody; k++)
    if (sum[k].at && graph->value[graph->op[kernel->body[k]].out].stored)
      memcpy(address(rank, graph->op[kernel->body[k]].out, f, l), sum[k].at,
             (size_t)elements(sum[k].shape) * sizeof(double));
}

/* ----------------------------------------------------------------------------------- operations */

static bool overlap(struct array a, struct array b)
{
  return a.at < b.at + elements(b.shape) && b.at < a.at + elements(a.shape);
}

/* Any other operation: from what lies in memory to what then lies in memory. */
static void run_plain(const struct op *of, const struct function *f, int l)
{
  struct op op = in_round(of, l);
  bool in_place = op.kind == OP_all_reduce || op.kind == OP_to_partial || op.kind == OP_view;
  for (int r = 0; r < machine.world; r++)
    for (int i = 0; i < op.nin; i++) machine.part[r][op.in[i]] = at(r, op.in[i], f, l);
  size_t used = pool_used;
  run_op(&machine, &op);
  for (int r = 0; r < machine.world; r++)
    for (int k = 0; k < op.nout; k++) {
      struct array out = at(r, op.out + k, f, l);
      for (int i = 0; i < op.nin; i++) {
        struct array in = machine.part[r][op.in[i]];
        must(!overlap(in, out) || (in_place && in.at == out.at), "%s writes over what it reads",
             op_row[op.kind].name);
      }
      memcpy(out.at, machine.part[r][op.out + k].at, (size_t)elements(out.shape) * sizeof(double));
    }
  pool_used = used;
}

/* One call for all: the sums lie one after the other, and what is summed lies where they will. */
static void run_bucket(const struct op *op, const struct function *f, int l)
{
  for (int r = 0; r < machine.world; r++)
    for (int k = 0; k < op->nbody; k++) {
      const struct op *inner = &graph->op[op->body[k]];
      struct array out = at(r, inner->out, f, l);
      must(at(r, inner->in[0], f, l).at == out.at, "a gradient is not summed where it lies");
      if (k + 1 == op->nbody) continue;
      must(at(r, graph->op[op->body[k + 1]].out, f, l).at == out.at + elements(out.shape),
           "gradients that are summed together do not follow each other");
    }
  for (int k = 0; k < op->nbody; k++) run_plain(&graph->op[op->body[k]], f, l);
}

/* Into the buffer, or out of it, one after the other; what lies in it anyway stays where it is. */
static void copy_members(const struct op *op, const struct function *f, int l, int rank, bool in)
{
  double *to = at(rank, op->buffer, f, l).at;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    struct array a = at(rank, in ? inner->in[0] : inner->out, f, l);
    size_t bytes = (size_t)elements(a.shape) * sizeof(double);
    must(!lies_in_buffer(op) || a.at == to, "a member is not where its bucket has it");
    if (in) memmove(to, a.at, bytes);
    if (!in) memmove(a.at, to, bytes);
    to += elements(a.shape);
  }
}

/* One call for gathers or scatters, which travel in chunks. */
static void run_chunked(const struct op *op, const struct function *f, int l)
{
  for (int r = 0; r < machine.world; r++) {
    machine.part[r][op->buffer] = at(r, op->buffer, f, l);
    for (int k = 0; k < op->nbody; k++) {
      int in = graph->op[op->body[k]].in[0];
      machine.part[r][in] = at(r, in, f, l);
    }
  }
  size_t used = pool_used;
  run_op(&machine, op);
  for (int r = 0; r < machine.world; r++)
    for (int k = 0; k < op->nbody; k++) {
      struct array out = at(r, graph->op[op->body[k]].out, f, l);
      memcpy(out.at, machine.part[r][graph->op[op->body[k]].out].at,
             (size_t)elements(out.shape) * sizeof(double));
    }
  pool_used = used;
}

/* One call for what lies in a buffer. */
static void run_packed(const struct op *op, const struct function *f, int l)
{
  for (int r = 0; r < machine.world; r++) copy_members(op, f, l, r, true);
  size_t used = pool_used;
  int64_t *begin = alloc((size_t)machine.world * sizeof *begin);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    for (int r = 0; r < machine.world; r++)
      machine.part[r][inner->in[0]] = (struct array){.shape = local_shape(inner->in[0], r),
                                                     .at = at(r, op->buffer, f, l).at + begin[r]};
    run_op(&machine, inner);
    for (int r = 0; r < machine.world; r++) {
      int64_t n = elements(machine.part[r][inner->out].shape);
      memcpy(machine.part[r][inner->in[0]].at, machine.part[r][inner->out].at,
             (size_t)n * sizeof(double));
      begin[r] += n;
    }
  }
  pool_used = used;
  for (int r = 0; r < machine.world; r++) copy_members(op, f, l, r, false);
}

/* An update of many goes over them as if they were one. */
static void check_update(const struct op *op, const struct function *f)
{
  for (int r = 0; r < machine.world; r++)
    for (int k = 0; k + 1 < op->nbody; k++)
      for (int i = 0; i < 2; i++) {
        struct array here = at(r, graph->op[op->body[k]].in[i], f, 0);
        struct array next = at(r, graph->op[op->body[k + 1]].in[i], f, 0);
        must(next.at == here.at + elements(here.shape), "what is updated together has gaps");
      }
}

static void run_function(const struct function *f, int l);

/* What runs beside a collective may come before all that the collective does, or after: they are
   run where they are begun, or where they are awaited. */
static bool late;

static void run_moving(const struct op *op, const struct function *f, int l)
{
  if (op->packed && op->kind != OP_all_reduce)
    run_chunked(op, f, l);
  else if (op->packed)
    run_packed(op, f, l);
  else if (op->nbody)
    run_bucket(op, f, l);
  else
    run_plain(op, f, l);
}

static void run_loop(const struct function *body)
{
  for (int i = 0; i < body->count; i++) run_function(body, body->upward ? i : body->count - 1 - i);
}

static void run_one(const struct op *op, const struct function *f, int l)
{
  switch (op->kind) {
  case OP_loop:
    run_loop(&graph->function[op->function]);
    break;
  case OP_fused:
    for (int r = 0; r < machine.world; r++) {
      size_t used = pool_used;
      run_kernel(op, f, l, r);
      pool_used = used;
    }
    break;
  case OP_products:
    for (int k = 0; k < op->nbody; k++) run_plain(&graph->op[op->body[k]], f, l);
    break;
  case OP_update:
  case OP_buffer:
    check_update(op, f);
    break;
  case OP_await:
    if (late) run_moving(&graph->op[op->awaits], f, l);
    break;
  default:
    if (!late || !scheduled(op)->overlapped) run_moving(op, f, l);
  }
}

static void run_function(const struct function *f, int l)
{
  for (int k = 0; k < f->nop; k++) run_one(&graph->op[f->op[k]], f, l);
}

/* ------------------------------------------------------------------------------- addresses in C */

/* "l", "l - 1", "2" */
static int module_in_c(const char *c, int l)
{
  if (*c != 'l') return atoi(c);
  return c[1] == ' ' ? l + (c[2] == '-' ? -1 : 1) : l;
}

/* The offset that a row of the table of activations says: "ROTATING(float, x, 64, 256, 2)". */
static int64_t offset_in_table(const char *table, const char *name, int module)
{
  const char *row = strstr(table, text("(float, %s, ", name));
  long long offset, stride;
  int kept, n;
  must(row, "%s is not in the table", name);
  n = sscanf(strstr(row, name) + strlen(name), ", %lld, %lld, %d)", &offset, &stride, &kept);
  return offset + (n < 2 ? 0 : (n < 3 ? module : module % kept) * stride);
}

/* The offset in the arena that an address in the generated C has in the round of module l, or NONE
   where it lies elsewhere. */
static int64_t offset_in_c(const char *table, const char *c, int l)
{
  const char *question = strstr(c, " ? "), *end = strchr(c, ';');
  if (question && question < end) {
    bool holds = strncmp(c, "l > ", 4) ? l < atoi(c + 4) : l > atoi(c + 4);
    const char *colon = strstr(c, " :");
    return offset_in_c(table, holds ? question + 3 : colon + 2 + strspn(colon + 2, " \n"), l);
  }
  if (strncmp(c, "at_", 3) != 0) return NONE;
  size_t n = strcspn(c, "(");
  return offset_in_table(table, text("%.*s", (int)n - 3, c + 3), module_in_c(c + n + 1, l));
}

/* "m->w.layers[l].w0" in the round of module l: "m->w.layers[2].w0" */
static const char *name_in_round(const char *name, int l)
{
  const char *at = strstr(name, "[l]");
  return at ? text("%.*s[%d]%s", (int)(at - name), name, l, at + 3) : name;
}

/* The value whose place of its own is at an address, or NONE. */
static int owner(int rank, const double *place)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (own[rank][i] == place && elements(local_shape(i, rank))) return i;
  return NONE;
}

/* What is behind the "=": where the line is too long, on the next. */
static const char *value_in_c(const char *line)
{
  const char *c = strstr(line, " =") + 2;
  if (!strncmp(c, " // ", 4)) c = strchr(c, '\n') + 1;
  return c + strspn(c, " ");
}

static void check_address(int rank, int value, const struct function *f, const char *declarations,
                          const char **fixed)
{
  const char *name = c_name(value);
  if (!name) return;
  const char *table = activation_table();
  const char *line = strstr(declarations, text(" *const %s =", name));
  for (int l = 0; l < f->count; l++) {
    const double *expected = address(rank, value, f, l);
    int place = owner(rank, expected);
    if (!line) {
      must(place != NONE && fixed[place] && !strcmp(name_in_round(name, l), fixed[place]),
           "v%d in round %d of %s is %s, not %s", value, l, f->name, name,
           place == NONE ? "in the arena" : fixed[place]);
      continue;
    }
    int64_t offset = offset_in_c(table, value_in_c(line), l);
    int64_t there = place == NONE ? (expected - arena[rank]) * 4 : NONE;
    must(offset == there, "v%d in round %d of %s lies at %" PRId64 ", not %" PRId64, value, l,
         f->name, offset, there);
  }
}

/* The values that a function reads and writes. */
static bool *used_in(const struct function *f)
{
  bool *used = alloc((size_t)graph->nvalue);
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int *list = alloc((size_t)op_width(op) * sizeof *list);
    for (int n = op_reads(op, list); n--;) used[list[n]] = true;
    for (int n = op_writes(op, list); n--;) used[list[n]] = true;
  }
  for (int i = 0; i < graph->nvalue; i++)
    used[i] &= graph->value[i].stored && graph->value[i].role != STATE;
  return used;
}

/* A view of what the function uses too goes by the same name. */
static void check_view(int value, const bool *used)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || graph->op[v->op].kind != OP_view) return;
  int in = graph->op[v->op].in[0];
  if (!used[in] || !same_place(in, value) || !c_name(value)) return;
  must(!strcmp(c_name(in), c_name(value)), "v%d is %s, but shows %s", value, c_name(value),
       c_name(in));
}

/* What the generated C calls each value, and where that is, round by round. */
static void check_names(int rank)
{
  name_values(rank);
  const char **fixed = alloc((size_t)graph->nvalue * sizeof *fixed);
  for (int i = 0; i < graph->nvalue; i++) fixed[i] = own[rank][i] ? c_name(i) : NULL;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    const bool *used = used_in(f);
    struct buffer code = {0};
    put_text(&code, "", 0);
    name_locals(f);
    for (int v = 0; v < graph->nvalue; v++)
      if (used[v] && c_name(v)) put(&code, "%s ", c_name(v));
    const char *declarations = local_declarations(code.text);
    for (int v = 0; v < graph->nvalue; v++)
      if (used[v]) check_address(rank, v, f, declarations, fixed), check_view(v, used);
  }
}

/* ------------------------------------------------------------------------------------ the trial */

static void compare(int value, struct array whole)
{
  for (int r = 0; r < machine.world; r++)
    machine.part[r][value] = (struct array){local_shape(value, r), own[r][value]};
  const char *why = not_held(&machine, value, whole, 1e-9);
  must(!why, "%s (v%d): %s", graph->value[value].name, value, why);
}

/* What the program has, given to the parent by the exit status. */
enum { LOOPS = 16, EXCHANGES = 32, BESIDE = 64, CHUNKS = 128 };
static int traits(void)
{
  bool loops = false, chunks = false;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    loops |= f->count > 1;
    for (int k = 0; k < f->nop; k++)
      chunks |= graph->op[f->op[k]].packed && graph->op[f->op[k]].kind != OP_all_reduce;
  }
  return (loops ? LOOPS : 0) + (graph->nexchange ? EXCHANGES : 0) +
         (graph->schedule->nevent ? BESIDE : 0) + (chunks ? CHUNKS : 0);
}

/* What the program must end with: the loss, the gradients, the outputs, each as a whole. */
struct results {
  int n;
  struct {
    enum role role;
    int of;
    const char *name;
    struct array whole;
  } list[64];
};

/* Runs the program as it is before anything is cut, on random numbers. */
static struct results run_uncut(struct array *whole)
{
  struct results results = {0};
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].op == NONE) whole[i] = random_array(graph->value[i].shape);
  run_whole(whole);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != LOSS && v->role != GRADIENT && !v->is_output) continue;
    must(results.n < 64, "many results");
    results.list[results.n].role = v->role;
    results.list[results.n].of = v->of;
    results.list[results.n].name = v->name;
    results.list[results.n++].whole = whole[i];
  }
  return results;
}

/* The value that is a result now. */
static int result_value(const struct results *results, int which)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    bool same = v->role == results->list[which].role && v->of == results->list[which].of;
    bool output = v->is_output && !strcmp(v->name, results->list[which].name);
    if (same && (v->role != ACTIVATION || output)) return i;
  }
  give_up("%s is lost", results->list[which].name);
  return NONE;
}

/* What is gathered or reduced in one module, or anywhere, travels together, whatever it is. */
static void give_units(void)
{
  enum { NO_UNITS, ONE_UNIT, BY_MODULE, WAYS } way = draw_below(WAYS);
  for (int i = 0; i < graph->norder && way != NO_UNITS; i++) {
    struct op *op = &graph->op[graph->order[i]];
    if (is_collective(op->kind))
      op->of_unit = true, op->unit = way == ONE_UNIT ? 0 : 1 + op->module;
  }
  graph->nunit = graph->nmodule + 1;
  graph->unit = alloc((size_t)graph->nunit * sizeof *graph->unit);
  for (int i = 0; i < graph->nunit; i++) graph->unit[i] = (struct unit){.name = "", .shards = 1};
  /* Mostly by unit; under caps that some of these programs reach. */
  plan_options->bucketing = draw_below(3) ? BUCKETS_BY_UNIT : (enum bucketing)draw_below(3);
  plan_options->ncap = draw_below(3);
  for (int i = 0; i < plan_options->ncap; i++) plan_options->cap[i] = 1 << (6 + draw_below(8));
}

static void make_local(void)
{
  run_passes(PASS_OPTIMIZE, PASS_REDISTRIBUTE);
  give_units();
  fold_modules();
  run_passes(PASS_OUTLINE + 1, PASS_LAST);
  prove();
}

static void load_parts(const struct array *whole)
{
  for (int i = 0; i < graph->nvalue; i++) {
    enum role role = graph->value[i].role;
    if (role != PARAMETER && role != BATCH) continue;
    for (int r = 0; r < machine.world; r++) {
      struct array part = cut(whole[i], graph->value[i].layout, r);
      memcpy(own[r][i], part.at, (size_t)elements(part.shape) * sizeof(double));
    }
  }
}

enum { TRAINED, BY_ADAMW, INFERRED, ROW_KINDS };
struct trial {
  uint64_t seed;
  int kind;
};

/* Ends with the program's traits. */
static void try_model(const void *with)
{
  const struct trial *trial = with;
  unit_seed = trial->seed;
  random_model(trial->kind != INFERRED);
  if (trial->kind == BY_ADAMW) use_averages();
  check(PASS_PLAN);
  run_passes(PASS_PROPAGATE, PASS_GRAD);
  struct array *whole = take((size_t)graph->nvalue * sizeof *whole);
  struct results results = run_uncut(whole);
  make_local();

  make_memory();
  load_parts(whole);
  late = trial->seed / ROW_KINDS % 2;
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].count == 1) run_function(&graph->function[i], 0);
  for (int i = 0; i < results.n; i++) compare(result_value(&results, i), results.list[i].whole);
  check_names(0);
  if (world_size() > 1) check_names(world_size() - 1);
  exit(traits());
}

static void test_random_programs(void **state)
{
  (void)state;
  int programs = 0, with_loops = 0, with_exchanges = 0, with_streams = 0, with_chunks = 0;
  int not_sharded = 0, wrong = 0;
  for (uint64_t seed = 1; seed <= 600; seed++, programs++) {
    struct ending e = run_child(try_model, &(struct trial){seed, (int)(seed % ROW_KINDS)});
    bool ran = e.status >= 0 && !(e.status & ~(LOOPS | EXCHANGES | BESIDE | CHUNKS));
    bool refused = e.status == 1 && strstr(e.said, "cannot be sharded");
    with_loops += ran && e.status & LOOPS;
    with_exchanges += ran && e.status & EXCHANGES;
    with_streams += ran && e.status & BESIDE;
    with_chunks += ran && e.status & CHUNKS;
    not_sharded += refused;
    if (ran || refused) continue;
    if (wrong++ < 5) print_error("seed %d ended with %d: %s", (int)seed, e.status, e.said);
  }
  print_message("%d programs, %d with loops, %d with exchanges, %d with streams, %d with chunks, "
                "%d not sharded\n",
                programs, with_loops, with_exchanges, with_streams, with_chunks, not_sharded);
  assert_int_equal(wrong, 0);
  assert_true(with_loops > 50);
  assert_true(with_exchanges > 50);
  assert_true(with_streams > 50);
  assert_true(with_chunks > 50);
  assert_true(not_sharded < programs / 10);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_programs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
