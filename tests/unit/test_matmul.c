/* Products of two tensors as C and CUDA: matmul.c writes the statements of a table of equations, of
   their gradients and of random equations, whole and sharded. The system's compilers compile them,
   the CUDA text for the stand-in; their results must equal the sum over all letters. Operands have
   different dim orders, and elements of float32 or bfloat16. A second table tests the text of
   statements. Without compilers nothing is run. */
#include "lua/lua.h"
#include "emit/emit.h"
#include "unit.h"

#include "../../runtime/base/elements.h"

enum { RANKS = 2, SIZES = 3, RANDOM_CASES = 480, MOST_TERMS = 12000 };

/* `cut`: the letter that is cut over the ranks, or 0. */
struct product_case {
  char equation[40], cut;
  int64_t size[128]; /* of each letter */
  int a, b, c, op;
};

/* -------------------------------------------------------------------------- products in a graph */

static const char *letters_of(const struct product_case *p, int operand)
{
  const char *comma = strchr(p->equation, ','), *arrow = strchr(p->equation, '-');
  if (operand == 0) return text("%.*s", (int)(comma - p->equation), p->equation);
  if (operand == 1) return text("%.*s", (int)(arrow - comma - 1), comma + 1);
  return arrow + strlen("->");
}

static struct shape shape_of(const struct product_case *p, int operand)
{
  const char *letters = letters_of(p, operand);
  struct shape s = {.ndim = (int)strlen(letters)};
  for (int d = 0; d < s.ndim; d++) s.size[d] = p->size[(int)letters[d]];
  return s;
}

/* Of bfloat16 are two products of three, and the result of one of them. */
static void set_types(const struct product_case *p, int number)
{
  if (number % 3) graph->value[p->a].type = graph->value[p->b].type = BF16;
  if (number % 3 == 1) graph->value[p->c].type = BF16;
}

static struct layout operand_layout(const struct product_case *p, int operand)
{
  const char *letters = letters_of(p, operand), *at = p->cut ? strchr(letters, p->cut) : NULL;
  struct layout layout = {0};
  if (at) layout.on[0] = S((int)(at - letters));
  return layout;
}

/* Makes the values and the operation; `number` tells their names apart. */
static void add_to_graph(struct product_case *p, const char *number)
{
  p->a = given(BATCH, text("a%s", number), shape_of(p, 0), operand_layout(p, 0));
  p->b = given(BATCH, text("b%s", number), shape_of(p, 1), operand_layout(p, 1));
  p->op = make_op((struct op){.kind = OP_matmul,
                              .nin = 2,
                              .in = {p->a, p->b},
                              .equation = copy_text(p->equation),
                              .module = NONE,
                              .line = 7});
  p->c = graph->op[p->op].out;
  struct value *c = &graph->value[p->c];
  c->name = text("c%s", number);
  c->is_output = c->placed = true;
  c->layout = operand_layout(p, 2);
}

/* All operations of the graph as one function, and a place in memory for every value. */
static void place_all(void)
{
  struct function *f = graph->function = alloc(sizeof *f);
  *f = (struct function){.name = "forward", .count = 1, .upward = true};
  f->op = alloc((size_t)(graph->nop + 1) * sizeof *f->op);
  for (int i = 0; i < graph->nop; i++) f->op[f->nop++] = i;
  graph->nfunction = 1;
  memory();
}

/* ----------------------------------------------------------------------------------- statements */

/* What becomes of an equation whose letters have these sizes: "m2 k3 n4". */
struct expected {
  const char *equation, *sizes, *statement;
};

static struct product_case parse_product(const char *equation, const char *sizes, char cut)
{
  struct product_case p = {.cut = cut};
  snprintf(p.equation, sizeof p.equation, "%s", equation);
  for (char *end; *sizes; sizes = *end ? end + 1 : end)
    p.size[(int)*sizes] = strtoll(sizes + 1, &end, 10);
  return p;
}

static const char *replaced(const char *s, const char *what, const char *by)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *at; (at = strstr(s, what)); s = at + strlen(what))
    put(&b, "%.*s%s", (int)(at - s), s, by);
  put(&b, "%s", s);
  return b.text;
}

/* A call without the names of its sizes, and on one line. */
static const char *without_names(const char *s)
{
  static const char *const name[] = {
      ".m = ", ".n = ", ".k = ", ".batch = ", ".step_c = ", ".step_a = ", ".step_b = ", ".add = "};
  struct buffer b = {0};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++) s = replaced(s, name[i], "");
  put_text(&b, "", 0);
  for (; *s; s++) {
    put_text(&b, s, 1);
    if (*s == ',' && s[1 + strspn(s + 1, " ")] == '\n') {
      put(&b, " ");
      s += strspn(s + 1, " \n");
    }
  }
  return b.text;
}

/* The statement alone in its program, with A, B and C for the operands' addresses. */
static const char *statement_of(struct product_case *p, int rank)
{
  new_graph(1, (int[]){RANKS});
  add_to_graph(p, "");
  place_all();
  name_values(rank);
  name_locals(graph->function);
  const char *s = matmul_text(&graph->op[p->op], rank);
  s = replaced(s, "m->batch.a", "A");
  s = replaced(s, "m->batch.b", "B");
  return replaced(s, "m->outputs.c", "C");
}

static const struct expected expected[] = {
    {"mk,kn->mn", "m2 k3 n4", "matmul_nn(C, A, B, 2, 4, 3);"},
    {"mk,nk->mn", "m2 k3 n4", "matmul_nt(C, A, B, 2, 4, 3);"},
    {"km,kn->mn", "m2 k3 n4", "matmul_tn(C, A, B, 2, 4, 3);"},
    {"km,nk->mn", "m2 k3 n4", "matmul_tt(C, A, B, 2, 4, 3);"},
    {"mk,kn->nm", "m2 k3 n4", "matmul_tt(C, B, A, 4, 2, 3);"},
    {"abk,nk->abn", "a2 b3 k4 n5", "matmul_nt(C, A, B, 6, 5, 4);"},
    {"abn,nk->abk", "a2 b3 k4 n5", "matmul_nn(C, A, B, 6, 4, 5);"},
    {"abn,abk->nk", "a2 b3 k4 n5", "matmul_tn(C, A, B, 5, 4, 6);"},
    {"bhqd,bhkd->bhqk", "b2 h3 q4 k5 d6", "matmul_nt_batch(C, A, B, 4, 5, 6, 6, 20, 24, 30);"},
    {"bhqk,bhkd->bhqd", "b2 h3 q4 k5 d6", "matmul_nn_batch(C, A, B, 4, 6, 5, 6, 24, 20, 30);"},
    {"abmk,bkn->abmn", "a2 b3 m4 k5 n6",
     "for (int i = 0; i < 2; i++)\n"
     "    matmul_nn_batch(C + i * 72, A + i * 60, B, 4, 6, 5, 3, 24, 20, 30);"},
    {"bmk,abkn->abmn", "a2 b3 m4 k5 n6",
     "for (int i = 0; i < 2; i++)\n"
     "    matmul_nn_batch(C + i * 72, A, B + i * 90, 4, 6, 5, 3, 24, 20, 30);"},
    {"abmn,bkn->abmk", "a2 b3 m4 k5 n6",
     "for (int i = 0; i < 2; i++)\n"
     "    matmul_nt_batch(C + i * 60, A + i * 72, B, 4, 5, 6, 3, 20, 24, 30);"},
    {"abmn,abmk->bkn", "a2 b3 m4 k5 n6",
     "for (int i = 0; i < 2; i++)\n"
     "    gemm_batch('t', 'n', C, 6, 30, B + i * 60, 5, 20, A + i * 72, 6,\n"
     "        24, 5, 6, 4, 3, i > 0);"},
    {"abmn,abkn->bmk", "a2 b3 m4 k5 n6",
     "for (int i = 0; i < 2; i++)\n"
     "    gemm_batch('n', 't', C, 5, 20, A + i * 72, 6, 24, B + i * 90, 6,\n"
     "        30, 4, 5, 6, 3, i > 0);"},
    {"amk,kn->amn", "a2 m3 k4 n5", "matmul_nn(C, A, B, 6, 5, 4);"},
    {"mk,akn->amn", "a2 m3 k4 n5", "matmul_nn_batch(C, A, B, 3, 5, 4, 2, 15, 0, 20);"},
    {"bqhd,bkhd->bhqk", "b2 h3 q4 k5 d6",
     "for (int b = 0; b < 2; b++)\n"
     "    gemm_batch('n', 't', C + b * 60, 5, 20, A + b * 72, 18, 6,\n"
     "        B + b * 90, 18, 6, 4, 5, 6, 3, false);"},
    {"bhqk,bkhd->bqhd", "b2 h3 q4 k5 d6",
     "for (int b = 0; b < 2; b++)\n"
     "    gemm_batch('n', 'n', C + b * 72, 18, 6, A + b * 60, 5, 20,\n"
     "        B + b * 90, 18, 6, 4, 6, 5, 3, false);"},
    {"bqgrd,bkgd->bgrqk", "b2 g3 r2 q4 k5 d6",
     "for (int b = 0; b < 2; b++)\n"
     "    for (int r = 0; r < 2; r++)\n"
     "      gemm_batch('n', 't', C + b * 120 + r * 20, 5, 40, A + b * 144 + r * 6,\n"
     "          36, 12, B + b * 90, 18, 6, 4, 5, 6, 3, false);"},
    {"bhqd,bhkd->bhqk", "b2 h3 q1 k5 d6", "matmul_nt_batch(C, A, B, 1, 5, 6, 6, 5, 6, 30);"},
    {"mk,k->m", "m3 k4", "matmul_nn(C, A, B, 3, 1, 4);"},
    {"k,kn->n", "k3 n4", "matmul_nn(C, A, B, 1, 4, 3);"},
    {"m,n->mn", "m3 n4", "matmul_nn(C, A, B, 3, 4, 1);"},
    {"k,k->", "k5", "matmul_nn(C, A, B, 1, 1, 5);"},
    {"mk,mk->", "m3 k4", "matmul_nn(C, A, B, 1, 1, 12);"},
    {"bm,bm->b", "b3 m4", "matmul_nn_batch(C, A, B, 1, 1, 4, 3, 1, 4, 4);"},
    {"bm,b->bm", "b3 m4", "matmul_nn_batch(C, A, B, 4, 1, 1, 3, 4, 4, 1);"},
    {"b,b->b", "b5", "matmul_nn_batch(C, A, B, 1, 1, 1, 5, 1, 1, 1);"},
    {"ab,ab->ba", "a2 b3",
     "for (int i = 0; i < 2; i++)\n"
     "    matmul_nn_batch(C + i, A + i * 3, B + i * 3, 1, 1, 1, 3, 2, 1, 1);"},
    {"mk,nk->mn", "m1 k3 n4", "matmul_nt(C, A, B, 1, 4, 3);"},
    {"mk,nk->mn", "m2 k3 n1", "matmul_nt(C, A, B, 2, 1, 3);"},
    {"mk,nk->mn", "m1 k1 n1", "matmul_nt(C, A, B, 1, 1, 1);"},
    {"mk,kn->mn", "m2 k1 n4", "matmul_nn(C, A, B, 2, 4, 1);"},
    {"pmqk,kn->pmqn", "p2 m3 q4 k5 n6", "matmul_nn(C, A, B, 24, 6, 5);"},
    {"pkmq,knq->pnm", "p2 m3 q4 k5 n6",
     "for (int k = 0; k < 5; k++)\n"
     "    gemm_batch('n', 't', C, 3, 18, B + k * 24, 4, 0, A + k * 12, 4,\n"
     "        60, 6, 3, 4, 2, k > 0);"},
    {"bqhd,bkhd->bhqk", "b1 h3 q4 k5 d6",
     "gemm_batch('n', 't', C, 5, 20, A, 18, 6, B, 18, 6, 4, 5, 6, 3, false);"},
    {"kmb,kb->mb", "k4 m4 b3",
     "for (int b = 0; b < 3; b++)\n"
     "    gemm_batch('t', 'n', C + b, 1, 3, A + b, 12, 3, B + b, 3, 0, 1, 1,\n"
     "        4, 4, false);"},
    {"kmb,kb->mb", "k3 m4 b3",
     "for (int k = 0; k < 3; k++)\n"
     "    gemm_batch('n', 'n', C, 3, 1, A + k * 12, 3, 1, B + k * 3, 1, 1,\n"
     "        4, 1, 1, 3, k > 0);"},
    {"mk,n->mn", "m3 k4 n5",
     "for (int k = 0; k < 4; k++)\n"
     "    gemm('n', 'n', C, 5, A + k, 4, B, 5, 3, 5, 1, k > 0);"},
    {"mk,kn->mn", "m2000 k3 n4", "matmul_nn(C, A, B, 2000, 4, 3);"},
};

static void check_statements(const void *with)
{
  (void)with;
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const struct expected *e = &expected[i];
    struct product_case p = parse_product(e->equation, e->sizes, 0);
    const char *statement = statement_of(&p, 0);
    must(!strcmp(without_names(statement), without_names(e->statement)),
         "%s of %s is\n  %s\nnot\n  %s", e->equation, e->sizes, statement, e->statement);
  }
}

/* The three types of operands and result; with gaps, and in a batch. */
static const struct expected of_types[] = {
    {"mk,kn->mn", "m2 k3 n4", "matmul_nn(C, A, B, 2, 4, 3);"},
    {"mk,kn->mn", "m2 k3 n4", "matmul_nn_bf16(C, A, B, 2, 4, 3);"},
    {"mk,kn->mn", "m2 k3 n4", "matmul_nn_bf16_f32(C, A, B, 2, 4, 3);"},
    {"bmk,kbn->bmn", "m2 k3 n4 b5",
     "gemm_batch('n', 'n', C, 4, 8, A, 3, 6, B, 20, 4, 2, 4, 3, 5, false);"},
    {"bmk,kbn->bmn", "m2 k3 n4 b5",
     "gemm_batch_bf16('n', 'n', C, 4, 8, A, 3, 6, B, 20, 4, 2, 4, 3, 5, false);"},
    {"bmk,bkn->bmn", "m2 k3 n4 b5",
     "gemm_batch_bf16_f32('n', 'n', C, 4, 8, A, 3, 6, B, 4, 12, 2, 4, 3, 5, false);"},
};

static void check_types_told(const void *with)
{
  (void)with;
  for (size_t i = 0; i < sizeof of_types / sizeof *of_types; i++) {
    const struct expected *e = &of_types[i];
    struct product_case p = parse_product(e->equation, e->sizes, 0);
    statement_of(&p, 0);
    set_types(&p, (int)i);
    const char *s = replaced(matmul_text(&graph->op[p.op], 0), "m->batch.a", "A");
    s = replaced(replaced(s, "m->batch.b", "B"), "m->outputs.c", "C");
    must(!strcmp(without_names(s), without_names(e->statement)), "%zu: %s is\n  %s\nnot\n  %s", i,
         e->equation, s, e->statement);
  }
}

static void test_types_are_told(void **state)
{
  (void)state;
  passes(check_types_told, NULL);
}

static void test_statements_are_as_few_and_large_calls_as_they_can(void **state)
{
  (void)state;
  passes(check_statements, NULL);
}

/* Which dimension of a, b and the output lies outermost, and how many calls that takes. */
static const struct {
  struct expected is;
  int front[3];
  double calls;
} orders[] = {
    {{"abk,nk->abn", "a2 b3 k4 n5", "matmul_nt(C, A, B, 6, 5, 4);"}, {1, 0, 1}, 1},
    {{"abk,nk->abn", "a2 b3 k4 n5",
      "gemm_batch('n', 't', C, 6, 3, B, 4, 0, A, 8, 4, 5, 3, 4, 2, false);"},
     {1, 0, 2},
     2},
    {{"abk,nk->abn", "a2 b3 k4 n5", "matmul_tn(C, A, B, 6, 5, 4);"}, {2, 1, 0}, 1},
    {{"abk,nk->abn", "a2 b3 k4 n5",
      "gemm_batch('n', 't', C, 5, 15, A, 8, 4, B, 4, 0, 3, 5, 4, 2, false);"},
     {1, 0, 0},
     2},
    {{"abn,abk->nk", "a2 b3 k4 n5", "matmul_tn(C, A, B, 5, 4, 6);"}, {1, 1, 0}, 1},
    {{"bhqd,bhkd->bhqk", "b2 h3 q4 k5 d6",
      "gemm_batch('n', 't', C, 5, 20, A, 36, 6, B, 6, 30, 4, 5, 6, 6, false);"},
     {2, 0, 0},
     6},
};

static void check_orders(const void *with)
{
  (void)with;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    const struct expected *e = &orders[i].is;
    struct product_case p = parse_product(e->equation, e->sizes, 0);
    statement_of(&p, 0);
    const int operand[] = {p.a, p.b, p.c};
    for (int o = 0; o < 3; o++) {
      struct value *v = &graph->value[operand[o]];
      v->order = moved_to_front(orders[i].front[o], v->shape.ndim);
    }
    const char *statement = matmul_text(&graph->op[p.op], 0);
    statement = replaced(replaced(statement, "m->batch.a", "A"), "m->batch.b", "B");
    statement = replaced(statement, "m->outputs.c", "C");
    double calls = matmul_calls(&graph->op[p.op], 0);
    must(!strcmp(without_names(statement), without_names(e->statement)) && calls == orders[i].calls,
         "%zu: %s of %s is %g times\n  %s\nnot\n  %s", i, e->equation, e->sizes, calls, statement,
         e->statement);
  }
}

static void test_operands_may_lie_in_another_order(void **state)
{
  (void)state;
  passes(check_orders, NULL);
}

/* A rank without a part of the output has nothing to do; a sum of nothing is zero. */
static void check_empty(const void *with)
{
  (void)with;
  struct product_case rows = parse_product("mk,kn->mn", "m1 k2 n3", 'm'),
                      sum = parse_product("mk,kn->mn", "m2 k1 n3", 'k');
  must(*statement_of(&rows, 0), "rank 0 has a row");
  must(!*statement_of(&rows, 1), "rank 1 has no row");
  const char *zero = statement_of(&sum, 1);
  must(!strcmp(zero, "memset(C, 0, 24);"), "a sum of nothing is %s", zero);
}

static void test_parts_of_size_0(void **state)
{
  (void)state;
  passes(check_empty, NULL);
}

static void check_refused(const void *with)
{
  const struct expected *e = with;
  struct product_case p = parse_product(e->equation, e->sizes, 0);
  statement_of(&p, 0);
}

static void check_type(const void *with)
{
  const enum type *type = with;
  struct product_case p = parse_product("mk,kn->mn", "m2 k3 n4", 0);
  new_graph(1, (int[]){RANKS});
  add_to_graph(&p, "");
  graph->value[p.b].type = *type;
  matmul_text(&graph->op[p.op], 0);
}

static void test_what_has_no_call_is_refused(void **state)
{
  (void)state;
  const enum type whole = I64, narrow = BF16;
  refused(check_type, &whole, 1, "unit.lua:7", type_name(I64), "float32 or bfloat16", NULL);
  refused(check_type, &narrow, 1, "unit.lua:7", "a is f32", "b is bf16", "cast", NULL);
  const struct expected twice = {.equation = "mm,mn->mn", .sizes = "m2 n3"},
                        large = {.equation = "m,n->mn", .sizes = "m3000000000 n1"};
  refused(check_refused, &twice, 1, "unit.lua:7", "mm,mn->mn", "'m' occurs twice", NULL);
  refused(check_refused, &large, 1, "unit.lua:7", "more than 2147483647", NULL);
}

/* ------------------------------------------------------------------------------------ the cases */

/* Each of these, and its two gradients, in several sizes. */
static const char *const occurring[] = {"mk,kn->mn",
                                        "mk,nk->mn",
                                        "km,kn->mn",
                                        "km,nk->mn",
                                        "mk,kn->nm",
                                        "abk,nk->abn",
                                        "bmk,bkn->bmn",
                                        "bhqd,bhkd->bhqk",
                                        "bhqk,bhkd->bhqd",
                                        "abmk,bkn->abmn",
                                        "bmk,abkn->abmn",
                                        "amk,kn->amn",
                                        "mk,akn->amn",
                                        "bqhd,bkhd->bhqk",
                                        "bhqk,bkhd->bqhd",
                                        "bqgrd,bkgd->bgrqk",
                                        "bgrqk,bkgd->bqgrd",
                                        "mk,k->m",
                                        "k,kn->n",
                                        "m,n->mn",
                                        "k,k->",
                                        "mk,mk->",
                                        "m,->m",
                                        "bm,bm->b",
                                        "bm,b->bm",
                                        "ab,ab->ba",
                                        "ab,cd->dbca",
                                        "pmqk,kn->pmqn",
                                        "pkmq,knq->pnm",
                                        "abcdefgh,cfbgij->hjadei"};
/* A letter that one operand has and nothing else is summed too. Without gradients: the output's has
   no such letter. */
static const char *const lonely[] = {"mk,n->mn", "mk,n->", "smk,kn->mn", "mk,ksn->nm", "s,t->"};

static struct product_case *product;
static int nproduct, product_room;

static int64_t terms(const struct product_case *p)
{
  int64_t n = 1;
  for (int i = 0; i < 128; i++)
    if (p->size[i]) n *= p->size[i];
  return n;
}

/* With dimensions in a random order. */
static void add_to_cases(struct product_case p)
{
  add_to_graph(&p, text("%d", nproduct));
  set_types(&p, nproduct);
  const int operand[] = {p.a, p.b, p.c};
  for (int o = 0; o < 3; o++) {
    struct value *v = &graph->value[operand[o]];
    if (v->shape.ndim > 1 && draw_below(3) == 0)
      v->order = moved_to_front(draw_below(v->shape.ndim), v->shape.ndim);
  }
  GROW(product, nproduct, product_room);
  product[nproduct++] = p;
}

/* With random sizes, and half of the time a letter that is cut. */
static void add_case(const char *equation)
{
  struct product_case p = {0};
  snprintf(p.equation, sizeof p.equation, "%s", equation);
  const char *letters = text("%s%s%s", letters_of(&p, 0), letters_of(&p, 1), letters_of(&p, 2));
  for (int most = 5; !terms(&p) || terms(&p) == 1 || terms(&p) > MOST_TERMS; most -= most > 2)
    for (const char *c = letters; *c; c++) p.size[(int)*c] = 1 + draw_below(most);
  if (draw_below(2)) p.cut = letters[draw_below((int)strlen(letters))];
  add_to_cases(p);
}

static void add_with_gradients(const char *equation)
{
  struct product_case p = {0};
  snprintf(p.equation, sizeof p.equation, "%s", equation);
  const char *a = letters_of(&p, 0), *b = letters_of(&p, 1), *c = letters_of(&p, 2);
  for (int i = 0; i < SIZES; i++) {
    add_case(equation);
    add_case(text("%s,%s->%s", c, b, a));
    add_case(text("%s,%s->%s", c, a, b));
  }
}

static void put_letter(char *operand, char letter)
{
  size_t n = strlen(operand), at = (size_t)draw_below((int)n + 1);
  memmove(operand + at + 1, operand + at, n - at + 1);
  operand[at] = letter;
}

/* Up to three letters of each kind, in a random order in each operand. */
static void add_random_case(void)
{
  static const int in[] = {5, 6, 3, 7, 1, 2}; /* bits: a, b, output */
  char operand[3][32] = {"", "", ""}, letter = 'a';
  bool has_lonely = !draw_below(8);
  for (int kind = 0; kind < (has_lonely ? 6 : 4); kind++)
    for (int n = draw_below(kind < 4 ? 4 : 2); n--; letter++)
      for (int o = 0; o < 3; o++)
        if (in[kind] >> o & 1) put_letter(operand[o], letter);
  for (int o = 0; o < 3; o++)
    if (strlen(operand[o]) > MAX_DIMS) return;
  if (letter > 'a') add_case(text("%s,%s->%s", operand[0], operand[1], operand[2]));
}

static void add_all(void)
{
  unit_seed = 11;
  new_graph(1, (int[]){RANKS});
  for (size_t i = 0; i < sizeof occurring / sizeof *occurring; i++)
    add_with_gradients(occurring[i]);
  for (size_t i = 0; i < sizeof lonely / sizeof *lonely; i++)
    for (int k = 0; k < SIZES; k++) add_case(lonely[i]);
  for (int desired = nproduct + RANDOM_CASES; nproduct < desired;) add_random_case();
  /* Larger than the tiles of bfloat16, in each type. */
  for (int k = 0; k < 3; k++) add_to_cases(parse_product("mk,nk->mn", "m130 k260 n3", 0));
  for (int k = 0; k < 3; k++) add_to_cases(parse_product("kbm,kbn->bmn", "k300 b2 m3 n263", 0));
  place_all();
}

/* ------------------------------------------------------------------------- written and compiled */

static int64_t bytes_of(int value, int rank)
{
  return elements(local_shape(value, rank)) * type_bytes(graph->value[value].type);
}

static void put_place(struct buffer *b, int value, int rank)
{
  const char *at = c_name(value);
  if (at)
    put(b, "    {offsetof(struct memory, %s), %" PRId64 "},\n", at + strlen("m->"),
        bytes_of(value, rank));
}

/* One rank's products one after the other, for run_products.h to run. */
static char *program_of(int rank)
{
  struct buffer code = {0}, operands = {0}, results = {0};
  forget_products();
  name_values(rank);
  name_locals(graph->function);
  for (const struct product_case *p = product; p < product + nproduct; p++) {
    const char *statement = matmul_text(&graph->op[p->op], rank);
    put(&code, "  // %s\n%s\n", p->equation, wrapped(text("  %s", statement), ", ", "      "));
    put_place(&operands, p->a, rank);
    put_place(&operands, p->b, rank);
    put_place(&results, p->c, rank);
  }
  return fill("#include <stdalign.h>\n#include <stddef.h>\n#include <string.h>\n"
              "#include \"$math$\"\n#include \"base/elements.h\"\n\n"
              "$memory$\nstatic struct memory *m;\n$products$\n"
              "static void run(void)\n{\n$code$}\n\n"
              "struct spot {\n  size_t at, n;\n};\n"
              "static const struct spot operands[] = {\n$operands$};\n"
              "static const struct spot results[] = {\n$results$};\n\n"
              "$list$#include \"run_products.h\"\n",
              "math", is_for_cuda() ? "cuda/kernels/math.h" : "cpu/kernels/math.h", "memory",
              memory_declaration(), "code", code.text, "products", product_table(), "list",
              is_for_cuda() ? text("static const struct products products = {%s};\n"
                                   "static const struct program its = [] {\n"
                                   "  struct program made = {};\n  made.products = &products;\n"
                                   "  return made;\n}();\n"
                                   "const struct program *program = &its;\n\n",
                                   product_list())
                            : "",
              "operands", operands.text, "results", results.text, NULL);
}

static void shell(const char *command)
{
  must(system(command) == 0, "%s", command);
}

static const char cpu_compiler[] =
    "${CC:-cc} -std=c11 -O1 -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror"
    " -Iruntime -Itests/unit $(pkg-config --cflags openblas) -o $directory$/program"
    " $directory$/program.c tests/unit/no_blas_memory.c $(pkg-config --libs openblas) -lm";

static const char cuda_compiler[] =
    "${MPICXX:-mpicxx} -std=c++20 -Wall -Wextra -Werror -DTPGEN_CUDA -Iruntime -Itests/unit"
    " -Itests/cuda_on_cpu/include -o $directory$/program -x c++ $directory$/program.c"
    " runtime/cuda/kernels/products.cu -x none " STAND_IN " $(pkg-config --libs openblas) -lm";

static FILE *open_file(const char *directory, const char *name, const char *mode)
{
  FILE *f = fopen(text("%s/%s", directory, name), mode);
  must(f, "%s/%s: %s", directory, name, strerror(errno));
  return f;
}

/* Numbers that bfloat16 holds, too. */
static float *random_operand(int value, int rank, FILE *f)
{
  int64_t n = elements(local_shape(value, rank));
  float *x = alloc((size_t)(n + 1) * sizeof *x);
  bf16 *narrow = alloc((size_t)(n + 1) * sizeof *narrow);
  bool is_narrow = graph->value[value].type == BF16;
  for (int64_t i = 0; i < n; i++) {
    narrow[i] = float_to_bf16((float)draw_number());
    x[i] = bf16_to_float(narrow[i]);
  }
  size_t bytes = (size_t)bytes_of(value, rank);
  const void *from = is_narrow ? (const void *)narrow : x;
  must(fwrite(from, 1, bytes, f) == bytes, "cannot write the operands");
  return x;
}

static float *read_result(int value, int rank, FILE *f)
{
  size_t n = (size_t)elements(local_shape(value, rank)), bytes = (size_t)bytes_of(value, rank);
  float *x = alloc((n + 1) * sizeof *x);
  bf16 *narrow = alloc((n + 1) * sizeof *narrow);
  bool is_narrow = graph->value[value].type == BF16;
  must(fread(is_narrow ? (void *)narrow : x, 1, bytes, f) == bytes, "the results are too short");
  for (size_t i = 0; i < n && is_narrow; i++) x[i] = bf16_to_float(narrow[i]);
  return x;
}

/* -------------------------------------------------------------------------------- what is right */

/* Over every combination of the letters' indices; and the sum of the terms' magnitudes. */
static void sum_over_letters(const struct product_case *p, int rank, const float *a, const float *b,
                             double *c, double *magnitude)
{
  const int value[] = {p->a, p->b, p->c};
  int64_t size[128] = {0}, index[128] = {0}, stride[3][MAX_DIMS];
  for (int o = 0; o < 3; o++) {
    struct shape here = local_shape(value[o], rank);
    local_strides(value[o], rank, stride[o]);
    for (int d = 0; d < here.ndim; d++) size[(int)letters_of(p, o)[d]] = here.size[d];
  }
  const char *letters[] = {letters_of(p, 0), letters_of(p, 1), letters_of(p, 2)};
  for (int i = 0; i < 128; i++)
    if (p->size[i] && !size[i]) return;
  for (int i = 0; i < 128;) {
    int64_t at[3] = {0};
    for (int o = 0; o < 3; o++)
      for (int d = 0; letters[o][d]; d++) at[o] += stride[o][d] * index[(int)letters[o][d]];
    double term = (double)a[at[0]] * b[at[1]];
    c[at[2]] += term;
    magnitude[at[2]] += fabs(term);
    for (i = 0; i < 128 && (!size[i] || ++index[i] == size[i]); i++) index[i] = 0;
  }
}

static void check_result(const struct product_case *p, int rank, const float *a, const float *b,
                         const float *c)
{
  int64_t n = elements(local_shape(p->c, rank));
  double *right = alloc((size_t)(n + 1) * sizeof *right);
  double *magnitude = alloc((size_t)(n + 1) * sizeof *magnitude);
  sum_over_letters(p, rank, a, b, right, magnitude);
  /* A result of bfloat16 is rounded by each call that adds to it. */
  double rounding = graph->value[p->c].type == BF16 ? 0x1p-8 : 0;
  if (rounding > 0) rounding *= matmul_calls(&graph->op[p->op], rank);
  for (int64_t i = 0; i < n; i++)
    must(fabs(c[i] - right[i]) <= 1e-4 * (1 + fabs(right[i])) + rounding * magnitude[i],
         "rank %d: %s of %s and %s with %d, %d, %d outermost: element %" PRId64
         " is %g, not %g:\n  %s",
         rank, p->equation, shape_text(local_shape(p->a, rank)),
         shape_text(local_shape(p->b, rank)), dimension_at(p->a, 0), dimension_at(p->b, 0),
         dimension_at(p->c, 0), i, (double)c[i], right[i], matmul_text(&graph->op[p->op], rank));
}

/* ----------------------------------------------------------------------------------- and is run */

static void run_rank(int rank, const char *directory, const char *compiler)
{
  FILE *f = open_file(directory, "program.c", "w");
  must(fputs(program_of(rank), f) >= 0 && !fclose(f), "cannot write the program");
  shell(fill(compiler, "directory", directory, NULL));
  float **a = alloc((size_t)nproduct * sizeof *a), **b = alloc((size_t)nproduct * sizeof *b);
  f = open_file(directory, "operands", "wb");
  for (int i = 0; i < nproduct; i++) {
    a[i] = random_operand(product[i].a, rank, f);
    b[i] = random_operand(product[i].b, rank, f);
  }
  must(!fclose(f), "cannot write the operands");
  shell(fill("$directory$/program $directory$/operands $directory$/results", "directory", directory,
             NULL));
  f = open_file(directory, "results", "rb");
  for (int i = 0; i < nproduct; i++)
    check_result(&product[i], rank, a[i], b[i], read_result(product[i].c, rank, f));
  must(fgetc(f) == EOF, "the results are too long");
  fclose(f);
}

/* How many of a rank's products are one call, loops around one, or nothing. */
static void count_statements(int rank, int count[3])
{
  for (int i = 0; i < nproduct; i++) {
    const char *s = matmul_text(&graph->op[product[i].op], rank);
    bool calls = strstr(s, "matmul") || strstr(s, "gemm");
    count[!calls ? 2 : strchr(s, '\n') ? 1 : 0]++;
  }
}

static void run_all(const void *with)
{
  const char *directory = with, *compiler = is_for_cuda() ? cuda_compiler : cpu_compiler;
  int count[3] = {0};
  add_all();
  for (int rank = 0; rank < RANKS; rank++) {
    run_rank(rank, directory, compiler);
    count_statements(rank, count);
  }
  printf("%s: %d products on %d ranks: %d are one call, %d loops around one, %d nothing or zero\n",
         is_for_cuda() ? "CUDA" : "CPU", nproduct, RANKS, count[0], count[1], count[2]);
}

static void run_on(bool cuda, const char *needs)
{
  char directory[] = "/tmp/productsXXXXXX";
  if (system(needs)) skip();
  assert_non_null(mkdtemp(directory));
  set_target(cuda ? "cuda" : "cpu");
  struct ending e = run_child(run_all, directory);
  set_target("cpu");
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", directory);
  if (!e.status) assert_int_equal(system(command), 0);
  if (e.status) fail_msg("ended with %d, see %s: %s", e.status, directory, e.said);
}

static void test_c_computes_the_sum(void **state)
{
  (void)state;
  run_on(false, "${CC:-cc} --version > /dev/null 2>&1 && pkg-config openblas");
}

static void test_cuda_computes_the_sum(void **state)
{
  (void)state;
  run_on(true, "${MPICXX:-mpicxx} --version > /dev/null 2>&1 && pkg-config openblas");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_statements_are_as_few_and_large_calls_as_they_can),
      cmocka_unit_test(test_types_are_told),
      cmocka_unit_test(test_operands_may_lie_in_another_order),
      cmocka_unit_test(test_parts_of_size_0),
      cmocka_unit_test(test_what_has_no_call_is_refused),
      cmocka_unit_test(test_c_computes_the_sum),
      cmocka_unit_test(test_cuda_computes_the_sum),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
