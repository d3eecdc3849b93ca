/* Operators whose kernels are files: every such row, sharded in every way that the engine allows,
   on the parts of every rank; and kernels of a plan's own. The text of gen/kernel/kernel_file.c is
   compiled, as C by the system's compiler and as CUDA for the stand-in, and run; each rank's
   outputs must equal the references' for the same parts. Without a compiler there is no test. */
#include "lua/lua.h"
#include "check/check.h"
#include "emit/emit.h"
#include "build_files.h"
#include "instances.h"

#include <dlfcn.h>

/* ------------------------------------------------------------------------------------ the cases */

/* An operation and its whole inputs; what its parts should become, unless a reference says it. */
struct trial {
  const struct op *op;
  struct array in[MAX_INPUTS], expected[MAX_OUTPUTS];
  reference *run;
  bool tf32;
  double rounding; /* of the largest output: how far one may be off that was rounded on the way */
};

enum { MOST_TRIALS = 4096 };
static struct trial trials[MOST_TRIALS];
static int ntrials;

static const int64_t size_lists[][SIZES] = {{5, 4, 6, 3}, {1, 3, 2, 7}, {2, 1, 3, 4},
                                            {7, 2, 5, 1}, {4, 6, 2, 2}, {3, 7, 4, 6}};
enum { SIZE_LISTS = sizeof size_lists / sizeof *size_lists };

/* More than what kernels take at a time: tiles of attention, blocks of indices and of rows. */
static const struct {
  struct instance instance;
  int64_t size[SIZES];
} large[] = {
    {{OP_cumsum, .in = {"ab"}, .dims = 2}, {3, 600}},
    {{OP_cummax, .in = {"ab"}, .dims = 2}, {3, 600}},
    {{OP_cummax, .in = {"abc"}, .dims = 2, .number = {1}}, {2, 40, 37}},
    {{OP_cumsum, .in = {"abc"}, .dims = 2, .number = {1}}, {2, 40, 37}},
    {{OP_argsort, .in = {"ab"}, .dims = 2}, {2, 1030}},
    {{OP_argsort, .in = {"abc"}, .dims = 2, .number = {1}}, {1, 130, 3}},
    {{OP_argmax, .in = {"ab"}, .dims = 2}, {3, 700}},
    {{OP_argmax, .in = {"abc"}, .dims = 2}, {2, 5, 40}},
    {{OP_cached_attention, .in = {"2ab9d", "2a9d", "2a95", "3acd", "3ac5", "#2", "#2"},
      .out = {"2ab95"}, .scalar = 0.3, .number = {4}},
     {2, 3, 150, 5}},
    {{OP_cached_attention, .in = {"2ab1d", "2a1d", "2a15", "2acd", "2ac5", "#2", "#2"},
      .out = {"2ab15"}, .number = {70}},
     {2, 2, 150, 8}},
    {{OP_cached_attention, .in = {"2ab9d", "2a9d", "2a95", "3acd", "3ac5", "#2", "#2"},
      .out = {"2ab95"}, .scalar = 0.3},
     {1, 9, 150, 5}},
    {{OP_cached_latent_attention, .in = {"2ab9d", "2a9d", "3acd", "#2", "#2"}, .out = {"2ab95"},
      .scalar = 0.3, .number = {4}},
     {2, 3, 150, 7}},
    {{OP_cached_latent_attention, .in = {"2ab1d", "2a1d", "3acd", "#2", "#2"}, .out = {"2ab15"},
      .scalar = 0.3, .number = {70}},
     {1, 20, 150, 9}},
    {{OP_cached_attention_parts, .in = {"2ab9d", "2a9d", "2a95", "33acd", "33ac5", "#2", "#2"},
      .out = {"32ab95", "32ab9"}, .scalar = 0.3, .number = {4}},
     {2, 3, 50, 5}},
    {{OP_cached_attention_parts, .in = {"2ab9d", "2a9d", "2a95", "33acd", "33ac5", "#2", "#2"},
      .out = {"32ab95", "32ab9"}, .scalar = 0.3},
     {1, 9, 150, 5}},
    {{OP_recent, .in = {"29a", "3ba", "#2", "#2"}, .out = {"2ca"}}, {300, 17, 12}},
    {{OP_recent, .in = {"31a", "37a", "#3", "#3"}, .out = {"34a"}}, {5}},
    {{OP_running_max, .in = {"39a", "3ba2", "#3", "#3"}, .out = {"39a", "39a"}}, {300, 17}},
    {{OP_running_sum, .in = {"39a", "3ba", "#3", "#3"}, .out = {"39a"}}, {300, 17}},
    {{OP_all_tokens, .in = {"23a", "3ba", "#2", "#2"}, .out = {"2ba"}}, {17, 90}},
    {{OP_recall_state, .in = {"3ab", "ab", "#2", "#2"}, .out = {"2ab"}}, {17, 90}},
    {{OP_keep_state, .in = {"3ab", "2ab", "2ab", "#2"}, .out = {"2"}}, {17, 90}},
    {{OP_linear_bf16, .in = {"abc", "%dc"}}, {2, 3, 300, 70}},
    {{OP_linear_bf16, .in = {"abc", "%dc"}}, {1, 2, 300, 70}},
    {{OP_linear_bf16_transposed, .in = {"abc", "%cd"}}, {1, 7, 300, 70}},
    {{OP_linear_int8, .in = {"abc(48)", "~dc[9988]"}}, {2, 3, 9, 70}},
    {{OP_linear_int8, .in = {"abc(48)", "~dc[9988]"}}, {1, 3, 9, 70}},
    {{OP_linear_int8_transposed, .in = {"abc", "~cd[9988]"}}, {1, 2, 300, 3}},
    {{OP_documents, .in = {"#ab"}, .dims = 2, .number = {2}}, {3, 700}},
    {{OP_scatter_add, .in = {"cb", "#cb"}, .dims = 1, .out = {"ab"}}, {9, 40, 300}},
    {{OP_scatter, .in = {"ab", "#cb", "cb"}, .dims = 1}, {30, 11, 20}},
    {{OP_index_add, .in = {"cb", "#c"}, .dims = 1, .out = {"ab"}}, {9, 270, 600}},
    {{OP_index_add, .in = {"abc", "#b"}, .dims = 2, .out = {"adc"}}, {2, 300, 3, 7}},
    {{OP_embedding_back, .in = {"cb", "#c"}, .out = {"ab"}}, {20, 270, 300}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1ac5"}, .out = {"1(ab)c5", "1(ab)c"}, .scalar = 0.1,
      .number = {1}},
     {1, 2, 70, 35}},
    {{OP_attention, .in = {"2bc3", "2b9c", "2b9d"}, .out = {"2bcd", "2bc"}}, {0, 2, 3, 70}},
    {{OP_attention, .in = {"1ab3", "1ac3", "1acd"}, .out = {"1abd", "1ab"}}, {2, 33, 70, 33}},
    {{OP_attention_back, .in = {"1(ab)c5", "1(ab)cd", "1acd", "1ac5", "1(ab)c5", "1(ab)c"},
      .out = {"1(ab)cd", "1acd", "1ac5"}, .scalar = 0.1, .number = {1}},
     {1, 2, 70, 35}},
    {{OP_attention_back, .in = {"1abd", "1ab3", "1ac3", "1acd", "1abd", "1ab"},
      .out = {"1ab3", "1ac3", "1acd"}},
     {2, 33, 70, 33}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1ac5", "#1c", "#1c", "(ab)"},
      .out = {"1(ab)c5", "1(ab)c"}, .scalar = 0.1, .number = {1, 0, 0, 1, 1},
      .equation = OF_ATTENTION("bq,bk,(gr)")},
     {1, 2, 188, 9}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1ac5"}, .out = {"1(ab)c5", "1(ab)c"}, .scalar = 0.1,
      .number = {0, 20}, .softcap = 1.5},
     {1, 2, 188, 9}},
    {{OP_attention_back,
      .in = {"1(ab)c5", "1(ab)cd", "1acd", "1ac5", "1(ab)c5", "1(ab)c", "#1c", "#1c"},
      .out = {"1(ab)cd", "1acd", "1ac5"}, .scalar = 0.1, .number = {1, 0, 0, 1},
      .equation = OF_ATTENTION_BACK("bq,bk")},
     {1, 2, 188, 9}},
    {{OP_attention_back, .in = {"1(ab)c5", "1(ab)cd", "1acd", "1ac5", "1(ab)c5", "1(ab)c"},
      .out = {"1(ab)cd", "1acd", "1ac5"}, .scalar = 0.1, .number = {0, 20}, .softcap = 1.5},
     {1, 2, 188, 9}},
    {{OP_attention_back_bias,
      .in = {"2(ab)c5", "2(ab)cd", "2acd", "2ac5", "2(ab)c5", "2(ab)c", "11cc"}, .scalar = 0.1,
      .number = {1, 70}, .equation = OF_ATTENTION_BACK_BIAS("1 1 qk")},
     {1, 2, 100, 9}},
    {{OP_conv2d, .in = {"2(ab)cc", "(a3)b35"}, .out = {"2(a3)88"}, .number = {3, 3, 1, 2, 1, 1}},
     {2, 3, 24}},
    {{OP_conv2d_back_input, .in = {"2(a3)88", "(a3)b35"}, .out = {"2(ab)cc"},
      .number = {3, 3, 1, 2, 1, 1}},
     {2, 3, 24}},
    {{OP_conv2d_back_weight, .in = {"2(a3)88", "2(ab)cc"}, .out = {"(a3)b35"},
      .number = {3, 3, 1, 2, 1, 1}},
     {2, 3, 24}},
    {{OP_max_pool2d, .in = {"abb"}, .out = {"acc"}, .number = {3, 3, 2, 2, 1, 1}}, {5, 20, 10}},
    {{OP_max_pool2d_back, .in = {"acc", "abb", "acc"}, .out = {"abb"},
      .number = {3, 3, 2, 2, 1, 1}},
     {5, 20, 10}},
};

/* What no random input shows. */
static const struct {
  struct instance instance;
  double in[MAX_INPUTS][16], out[MAX_OUTPUTS][16];
} exact[] = {
    {{OP_argsort, .in = {"6"}, .dims = 1}, {{3, NAN, 1, 3, -INFINITY, NAN}}, {{4, 2, 0, 3, 1, 5}}},
    {{OP_argsort, .in = {"6"}, .dims = 1, .number = {1}},
     {{3, NAN, 1, 3, -INFINITY, NAN}},
     {{1, 5, 0, 3, 2, 4}}},
    {{OP_argmax, .in = {"6"}, .dims = 1}, {{1, 5, 0, 5, 2, 5}}, {{1}}},
    {{OP_argmax, .in = {"6"}, .dims = 1}, {{1, 9, NAN, 5, INFINITY, NAN}}, {{2}}},
    {{OP_argmax, .in = {"23"}, .dims = 2},
     {{-INFINITY, -INFINITY, -INFINITY, NAN, 1, 2}},
     {{0, 0}}},
    {{OP_scatter, .in = {"4", "#6", "6"}, .dims = 1},
     {{1, 2, 3, 4}, {2, 2, 0, -1, 4, 2}, {10, 20, 30, 40, 50, 60}},
     {{30, 2, 60, 4}}},
    {{OP_scatter_add, .in = {"6", "#6"}, .dims = 1, .out = {"4"}},
     {{1, 2, 3, 4, 5, 6}, {2, 2, 0, -1, 4, 1000}},
     {{3, 0, 3, 0}}},
    {{OP_index_add, .in = {"42", "#4"}, .dims = 1, .out = {"32"}},
     {{1, 2, 3, 4, 5, 6, 7, 8}, {2, -1, 2, 3}},
     {{0, 0, 0, 0, 6, 8}}},
    {{OP_embedding_back, .in = {"42", "#4"}, .out = {"32"}},
     {{1, 2, 3, 4, 5, 6, 7, 8}, {1, -1, 1, 3}},
     {{0, 0, 6, 8, 0, 0}}},
    {{OP_max_pool2d, .in = {"16"}, .out = {"13"}, .number = {1, 2, 1, 2}},
     {{2, 2, NAN, 1, -INFINITY, -INFINITY}},
     {{2, NAN, -INFINITY}}},
    {{OP_max_pool2d_back, .in = {"13", "16", "13"}, .out = {"16"}, .number = {1, 2, 1, 2}},
     {{5, 6, 7}, {2, 2, NAN, NAN, -INFINITY, -INFINITY}, {2, NAN, -INFINITY}},
     {{5, 0, 0, 6, 7, 0}}},
    /* Scores whose exponentials are no floats; and of which the rows see none that is more than
       minus infinity. */
    {{OP_attention, .in = {"1128", "1128", "1128"}, .out = {"1128", "112"}, .scalar = 1},
     {{1000, [8] = -1000}, {1, [8] = 0.5}, {1, [8] = 2}},
     {{1, [8] = 2}, {1000, -500}}},
    {{OP_attention, .in = {"1118", "1128", "1128"}, .out = {"1118", "111"}, .scalar = 1},
     {{-INFINITY}, {1, [8] = 2}, {1, [8] = 2}},
     {{0}, {-INFINITY}}},
    {{OP_attention_back, .in = {"1118", "1118", "1128", "1128", "1118", "111"},
      .out = {"1118", "1128", "1128"}, .scalar = 1},
     {{3}, {4}, {1, [8] = 2}, {1, [8] = 2}, {0}, {-INFINITY}},
     {{0}, {0}, {0}}},
};

/* Attention in sizes that the tensor cores take: strips and tiles that are full, or not, heads that
   share keys, queries that see few keys; and in odd ones, which they do not. */
static const struct {
  struct instance instance;
  int64_t size[SIZES];
} narrow_attention[] = {
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1acd"}, .out = {"1(ab)cd", "1(ab)c"}, .scalar = 0.3,
      .number = {1}},
     {2, 2, 66, 16}},
    {{OP_attention, .in = {"1bcd", "1bcd", "1bc8"}, .out = {"1bc8", "1bc"}, .scalar = 0.1,
      .number = {1}},
     {0, 2, 188, 64}},
    {{OP_attention, .in = {"1acb", "1adb", "1ad8"}, .out = {"1ac8", "1ac"}, .scalar = -0.1},
     {2, 128, 35, 70}},
    {{OP_attention, .in = {"1acb", "1adb", "1adb"}, .out = {"1acb", "1ac"}, .scalar = 0.05},
     {1, 256, 5, 33}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1ac5"}, .out = {"1(ab)c5", "1(ab)c"}, .scalar = 0.1,
      .number = {1}},
     {1, 2, 70, 7}},
    {{OP_attention_back, .in = {"1(ab)c5", "1(ab)cd", "1acd", "1ac5", "1(ab)c5", "1(ab)c"},
      .out = {"1(ab)cd", "1acd", "1ac5"}, .scalar = 0.1, .number = {1}},
     {1, 2, 70, 7}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1acd"}, .out = {"1(ab)cd", "1(ab)c"}, .scalar = 0.3,
      .number = {1, 20}},
     {1, 2, 188, 16}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1acd", "1(ab)cc", "(ab)"},
      .out = {"1(ab)cd", "1(ab)c"}, .scalar = 0.3, .number = {0, 40, 1, 0, 1}, .softcap = 2,
      .equation = OF_ATTENTION("b(gr)qk,(gr)")},
     {1, 2, 150, 16}},
    {{OP_attention, .in = {"1(ab)cd", "1acd", "1acd", "#1c", "#1c"}, .out = {"1(ab)cd", "1(ab)c"},
      .scalar = 0.3, .number = {1, 0, 0, 1}, .equation = OF_ATTENTION("bq,bk")},
     {1, 2, 188, 16}},
    {{OP_attention_back, .in = {"1(ab)cd", "1(ab)cd", "1acd", "1acd", "1(ab)cd", "1(ab)c"},
      .out = {"1(ab)cd", "1acd", "1acd"}, .scalar = 0.3, .number = {1, 20}, .softcap = 3},
     {1, 2, 188, 16}},
    {{OP_attention_back,
      .in = {"1(ab)cd", "1(ab)cd", "1acd", "1acd", "1(ab)cd", "1(ab)c", "1(ab)cc"},
      .out = {"1(ab)cd", "1acd", "1acd"}, .scalar = 0.3, .number = {0, 40, 1},
      .equation = OF_ATTENTION_BACK("b(gr)qk")},
     {1, 2, 150, 16}},
    {{OP_attention_back,
      .in = {"1(ab)cd", "1(ab)cd", "1acd", "1acd", "1(ab)cd", "1(ab)c", "#1c", "#1c"},
      .out = {"1(ab)cd", "1acd", "1acd"}, .scalar = 0.3, .number = {1, 0, 0, 1},
      .equation = OF_ATTENTION_BACK("bq,bk")},
     {1, 2, 188, 16}},
    {{OP_attention_back_bias,
      .in = {"2(ab)cd", "2(ab)cd", "2acd", "2acd", "2(ab)cd", "2(ab)c", "1(ab)cc"}, .scalar = 0.1,
      .number = {1, 30}, .equation = OF_ATTENTION_BACK_BIAS("1(gr)qk")},
     {1, 2, 70, 16}},
    {{OP_attention_back, .in = {"1(ab)cd", "1(ab)cd", "1acd", "1acd", "1(ab)cd", "1(ab)c"},
      .out = {"1(ab)cd", "1acd", "1acd"}, .scalar = 0.3, .number = {1}},
     {2, 2, 66, 16}},
    {{OP_attention_back, .in = {"1bc8", "1bcd", "1bcd", "1bc8", "1bc8", "1bc"},
      .out = {"1bcd", "1bcd", "1bc8"}, .scalar = 0.1, .number = {1}},
     {0, 2, 188, 64}},
    {{OP_attention_back, .in = {"1ac8", "1acb", "1adb", "1ad8", "1ac8", "1ac"},
      .out = {"1acb", "1adb", "1ad8"}, .scalar = -0.1},
     {2, 128, 35, 70}},
    {{OP_attention_back, .in = {"1acb", "1acb", "1adb", "1adb", "1acb", "1ac"},
      .out = {"1acb", "1adb", "1adb"}, .scalar = 0.05},
     {1, 136, 5, 33}},
};

/* Products of rows by expert in sizes that the tensor cores take: several tiles of an expert's
   rows, of the result's lines and of its columns, which are full, or not; more terms than are
   copied at once; experts without a row; and in odd sizes, which they do not take. */
static const struct {
  struct instance instance;
  int64_t size[SIZES];
} narrow_groups[] = {
    {{OP_grouped_linear, .in = {"cab2(d8)", "c(b8)(d8)", "#c"}}, {3, 70, 3, 5}},
    {{OP_grouped_linear, .in = {"cab2(d8)", "c(38)(d8)", "#c"}}, {1, 200, 2, 17}},
    {{OP_grouped_linear_back_input, .in = {"cab2(d8)", "c(d8)(38)", "#c"}}, {1, 200, 2, 17}},
    {{OP_grouped_linear_back_input, .in = {"cab2(d8)", "c(d8)(982)", "#c"}}, {3, 40, 5, 3}},
    {{OP_grouped_linear_back_weight, .in = {"cab2(d8)", "cab2(38)", "#c"}}, {1, 200, 2, 17}},
    {{OP_grouped_linear_back_weight, .in = {"cab2(d8)", "cab2(98)", "#c"}}, {3, 20, 5, 1}},
    {{OP_grouped_linear, .in = {"cab2d", "c(38)d", "#c"}}, {1, 20, 2, 12}},
};

/* The upper half of the nearest float whose lower half is 0: a bfloat16, and it as a number. */
static uint16_t narrow(double *x)
{
  float number = (float)*x;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&number, &bits, sizeof number);
  *x = number;
  return (uint16_t)(bits >> 16);
}

static double wide(uint16_t half)
{
  uint32_t bits = (uint32_t)half << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* An operation that takes attention back is given what attention makes. */
static void put_attention(const struct op *op, struct array *in)
{
  struct op forward = *op;
  forward.kind = OP_attention;
  struct places none = {0};
  in[4] = zeros(in[4].shape);
  in[5] = zeros(in[5].shape);
  struct array given[MAX_INPUTS] = {in[1], in[2], in[3]};
  for (int i = 6; i < op->nin; i++) given[i - 3] = in[i];
  copy_numbers(&forward, op);
  if (op->kind == OP_attention_back_bias) set_number(&forward, "biased", 1);
  must(run_attention(&forward, given, in + 4, &none), "attention does not fit");
}

/* Puts the operation's values where a random combination of choices has them. */
static void cut_somehow(const struct op *op)
{
  struct letters l;
  struct choice list[MAX_CHOICES];
  int pick[MAX_MESH] = {0};
  op_letters(op, &l);
  int n = choices(op, &l, list);
  for (int tries = 0; tries < 50; tries++) {
    for (int d = 0; d < graph->mesh.ndim; d++) pick[d] = draw_below(n);
    if (fits_together(&l, op->nin, list, pick)) break;
    memset(pick, 0, sizeof pick);
  }
  for (int d = 0; d < graph->mesh.ndim; d++) {
    for (int i = 0; i < op->nin; i++) graph->value[op->in[i]].layout.on[d] = list[pick[d]].in[i];
    for (int k = 0; k < op->nout; k++)
      graph->value[op->out + k].layout.on[d] = list[pick[d]].out[k];
  }
}

/* Whether the choice choice_cuts this input along the dimension. */
static bool choice_cuts(const struct choice *c, int input, int dim)
{
  return c->in[input].kind == SHARD && c->in[input].dim == dim && c->in[input].outer <= 1;
}

/* Puts the operation's values where the queries of attention are cut along the first dimension of
   the mesh, and of every other that goes back the keys along the last one. */
static void cut_queries(const struct op *op)
{
  static int others;
  struct letters l;
  struct choice list[MAX_CHOICES];
  bool back = op->kind != OP_attention, cuts_keys = back && others++ % 2 == 0;
  op_letters(op, &l);
  int n = choices(op, &l, list), query = 0, key = 0, last = graph->mesh.ndim - 1;
  while (query < n && !choice_cuts(&list[query], back, 2)) query++;
  while (cuts_keys && key < n && !choice_cuts(&list[key], 2, 2)) key++;
  must(query < n && key < n, "nothing choice_cuts attention");
  for (int d = 0; d <= last; d++) {
    const struct choice *c = &list[d == 0 ? query : d == last ? key : 0];
    for (int i = 0; i < op->nin; i++) graph->value[op->in[i]].layout.on[d] = c->in[i];
    for (int k = 0; k < op->nout; k++) graph->value[op->out + k].layout.on[d] = c->out[k];
  }
}

/* Lets operands whose kernel asks for it lie in some order, the last dimension innermost. */
static void lay_somehow(const struct op *op)
{
  for (int i = 0; i < op->nin + op->nout; i++) {
    struct value *v = &graph->value[i < op->nin ? op->in[i] : op->out + i - op->nin];
    int dim[MAX_DIMS], last = v->shape.ndim - 1;
    bool moved = false;
    for (int d = 0; d <= last; d++) dim[d] = d;
    for (int d = last - 1; d > 0 && takes_steps(op, i); d--) {
      int other = draw_below(d + 1), kept = dim[d];
      dim[d] = dim[other];
      dim[other] = kept;
    }
    unsigned order = 0;
    for (int d = 0; d <= last; d++) {
      order |= (unsigned)dim[d] << 3 * d;
      moved |= dim[d] != d;
    }
    v->order = moved ? order : 0;
  }
}

/* LAPACK's, on CPUs only. Vectors in its outputs may have either sign. */
static bool is_of_lapack(enum op_kind kind)
{
  return kind == OP_eigh || kind == OP_svd;
}

static struct trial *add_trial(const struct op *op)
{
  must(ntrials < MOST_TRIALS, "too many trials");
  struct trial *t = &trials[ntrials++];
  *t = (struct trial){.op = op};
  for (int k = 0; k < op->nout; k++) graph->value[op->out + k].role = BATCH;
  return t;
}

/* Whether its rule counts rows by expert. */
static bool counts_rows_of(const struct op *op)
{
  return strchr(rule_of(op), '+') || op->kind == OP_count_places;
}

/* All floating inputs are bfloat16; what it makes is float, except for rows by expert and what is
   made of them, which are bfloat16, too. */
static bool narrow_inputs(const struct op *op)
{
  for (int i = 0; i < op->nin; i++)
    if (graph->value[op->in[i]].type == F32) graph->value[op->in[i]].type = BF16;
  bool rounds = counts_rows_of(op) && op_row[op->kind].type && !strcmp(op_row[op->kind].type, "a");
  if (rounds) graph->value[op->out].type = BF16;
  return rounds;
}

/* Of every third operation; or of those where it is asked for. */
static bool narrow_somehow(const struct op *op, bool asked)
{
  bool is_other = is_attention(op) || op_row[op->kind].takes_stored;
  return !is_other && (asked || !draw_below(3)) && narrow_inputs(op);
}

static void add_instance(const struct instance *instance, const int64_t *size, bool narrows)
{
  const struct op *op = instantiate(instance, size);
  for (int i = 0; i < op->nin && strchr(rule_of(op), '+'); i++)
    if (graph->value[op->in[i]].shape.ndim > ROW_DIMS)
      graph->value[op->in[i]].counts = op->in[op->nin - 1];
  bool rounds = narrow_somehow(op, narrows);
  struct trial *t = add_trial(op);
  if (rounds) t->rounding = 0x1p-7;
  suitable_inputs(op, t->in);
  if (is_attention(op) && op->kind != OP_attention) put_attention(op, t->in);
  cut_somehow(op);
  lay_somehow(op);
}

/* Of bfloat16 weights and slopes are rounded to 8 bits before they are multiplied, and so is what
   comes out: each by 2^-9 at most, and the slopes' mean is off by as much. TF32 has 11 bits, but
   the scores' operands are rounded too, and their sums stand in an exponent. */
static void narrow_attention_of(const struct op *op)
{
  bool back = op->kind != OP_attention, of_bias = op->kind == OP_attention_back_bias;
  for (int i = 0; i < (back ? 5 : 3); i++) graph->value[op->in[i]].type = BF16;
  for (int k = 0; k < op->nout; k++)
    if (!of_bias && (back || k == 0)) graph->value[op->out + k].type = BF16;
}

static void add_narrow_attention(int which, bool tf32, void (*cut_it)(const struct op *op))
{
  const struct instance *instance = &narrow_attention[which].instance;
  const struct op *op = instantiate(instance, narrow_attention[which].size);
  struct trial *t = add_trial(op);
  bool back = op->kind != OP_attention;
  t->tf32 = tf32;
  t->rounding = tf32 ? 0x1p-8 : 0x1p-7;
  if (!tf32) narrow_attention_of(op);
  suitable_inputs(op, t->in);
  for (int i = 0; i < op->nin && !tf32; i++)
    for (int64_t n = 0; n < elements(t->in[i].shape); n++)
      if (graph->value[op->in[i]].type == BF16) narrow(&t->in[i].at[n]);
  if (back) put_attention(op, t->in);
  cut_it(op);
  lay_somehow(op);
}

static void add_exact_one(int which, bool half, bool tf32)
{
  static const int64_t none[SIZES];
  struct trial *t = add_trial(instantiate(&exact[which].instance, none));
  t->tf32 = tf32;
  if (half) narrow_attention_of(t->op);
  for (int k = 0; k < t->op->nin; k++) {
    t->in[k] = zeros(graph->value[t->op->in[k]].shape);
    memcpy(t->in[k].at, exact[which].in[k], (size_t)elements(t->in[k].shape) * sizeof(double));
  }
  for (int k = 0; k < t->op->nout; k++) {
    t->expected[k] = zeros(graph->value[t->op->out + k].shape);
    memcpy(t->expected[k].at, exact[which].out[k],
           (size_t)elements(t->expected[k].shape) * sizeof(double));
  }
}

static void add_exact(void)
{
  for (int i = 0; i < (int)(sizeof exact / sizeof *exact); i++) {
    enum op_kind kind = exact[i].instance.kind;
    bool attends = kind == OP_attention || kind == OP_attention_back;
    add_exact_one(i, false, false);
    if (attends) add_exact_one(i, true, false);
    if (attends && is_for_cuda()) add_exact_one(i, false, true);
  }
}

/* ---------------------------------------------------------------------------- a plan's own ones */

/* Asks where its part begins, how large the whole is, and calls another function. */
static const char places_c[] =
    "static float $name$_more(float x, long n)\n{\n  return x + (float)(100 * n + $whole_a$);\n}\n"
    "void $name$(float *restrict out, const float *restrict x,\n            long first_a)\n{\n"
    "  for (long i = 0; i < $a$; i++)\n"
    "    for (long j = 0; j < $s$; j++)\n"
    "      out[i * $s$ + j] = $name$_more(x[i * $s$ + j], first_a + i);\n}";
static const char places_cu[] =
    "__device__ static float $name$_more(float x, long n)\n{\n  return x + (float)(100 * n);\n}\n\n"
    "// launch: 1, 2 * (3 + 1)\n"
    "__global__ void $name$(float *__restrict__ out, const float *__restrict__ x, long "
    "first_a)\n{\n"
    "  for (long n = (long)threadIdx.x; n < (long)$a$ * $s$; n += 8)\n"
    "    out[n] = $name$_more(x[n], first_a + n / $s$);\n}\n"
    "// launch: ($a$ * $s$ + 7) / 8, 8\n"
    "__global__ void $name$_2nd(float *__restrict__ out, const float *__restrict__ x,\n"
    "    long first_a)\n{\n  (void)x, (void)first_a;\n"
    "  const int n = (int)blockIdx.x * 8 + (int)threadIdx.x;\n"
    "  if (n < $a$ * $s$) out[n] += $whole_a$;\n}\n";

static bool run_places(const struct op *op, const struct array *in, struct array *out,
                       const struct places *at)
{
  (void)op;
  int64_t wide = out->shape.size[1];
  for (int64_t i = 0, n = elements(out->shape); i < n; i++)
    out->at[i] = in[0].at[i] + (double)(100 * (i / wide + at->in[0].first[0])) +
                 (double)at->in[0].whole.size[0];
  return true;
}

/* A maximum along a dimension that may be cut, and the same elements merged into one dimension. */
static const char most_c[] =
    "void $name$(float *restrict most, float *restrict all, const float *restrict x)\n{\n"
    "  for (int i = 0; i < $a$; i++) {\n    most[i] = x[i * $b$];\n"
    "    for (int j = 0; j < $b$; j++) {\n      const float y = x[i * $b$ + j];\n"
    "      all[i * $b$ + j] = y;\n      most[i] = y > most[i] ? y : most[i];\n    }\n  }\n}\n";
static const char most_cu[] =
    "// launch: $a$, 1\n__global__ void $name$(float *__restrict__ most, float *__restrict__ all,\n"
    "    const float *__restrict__ x)\n{\n  const int i = (int)blockIdx.x;\n"
    "  most[i] = x[i * $b$];\n"
    "  for (int j = 0; j < $b$; j++) {\n    const float y = x[i * $b$ + j];\n"
    "    all[i * $b$ + j] = y;\n    most[i] = y > most[i] ? y : most[i];\n  }\n}\n";

static bool run_most(const struct op *op, const struct array *in, struct array *out,
                     const struct places *at)
{
  (void)op, (void)at;
  int64_t wide = in[0].shape.size[1];
  for (int64_t i = 0; i < out[0].shape.size[0]; i++) out[0].at[i] = -INFINITY;
  for (int64_t i = 0, n = elements(in[0].shape); i < n; i++) {
    out[1].at[i] = in[0].at[i];
    if (in[0].at[i] > out[0].at[i / wide]) out[0].at[i / wide] = in[0].at[i];
  }
  return true;
}

static int declare(struct custom custom)
{
  GROW(graph->custom, graph->ncustom, graph->custom_room);
  graph->custom[graph->ncustom] = custom;
  return graph->ncustom++;
}

static void add_custom(int custom, struct shape in, const struct shape *out, int nout,
                       reference *run)
{
  struct op op = {.kind = OP_custom, .custom = custom, .nin = 1, .module = NONE, .line = 1};
  op.in[0] = given(BATCH, "x", in, (struct layout){0});
  int made = append_op_outputs(op, out, nout);
  struct trial *t = add_trial(&graph->op[graph->value[made].op]);
  t->run = run;
  suitable_inputs(t->op, t->in);
  cut_somehow(t->op);
}

static void add_customs(void)
{
  int places = declare((struct custom){.name = "places",
                                       .rule = "a@s->a@s",
                                       .linear = "",
                                       .kernel[LANGUAGE_C] = places_c,
                                       .kernel[LANGUAGE_CUDA] = places_cu});
  int most = declare((struct custom){.name = "most",
                                     .rule = "ab->a:max,(ab)",
                                     .linear = "",
                                     .kernel[LANGUAGE_C] = most_c,
                                     .kernel[LANGUAGE_CUDA] = most_cu});
  for (int i = 0; i < 12; i++) {
    struct shape in = {2, {1 + draw_below(7), 1 + draw_below(7)}};
    add_custom(places, in, &in, 1, run_places);
    add_custom(most, in, (struct shape[]){{1, {in.size[0]}}, {1, {elements(in)}}}, 2, run_most);
  }
}

static void add_trials(void)
{
  unit_seed = 11;
  for (int i = 0; i < INSTANCES; i++) {
    if (!has_kernel(instances[i].kind) || instances[i].kind == OP_custom) continue;
    if (is_for_cuda() && is_of_lapack(instances[i].kind)) continue;
    for (int s = 0; s < SIZE_LISTS; s++)
      if (!is_for_cuda() || s == i % SIZE_LISTS || strchr(op_row[instances[i].kind].rule, '+'))
        add_instance(&instances[i], size_lists[s], false);
  }
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    add_instance(&large[i].instance, large[i].size, false);
  for (size_t i = 0; i < sizeof narrow_groups / sizeof *narrow_groups; i++)
    for (int times = 0; times < 2; times++)
      add_instance(&narrow_groups[i].instance, narrow_groups[i].size, true);
  for (int i = 0; i < (int)(sizeof narrow_attention / sizeof *narrow_attention); i++) {
    add_narrow_attention(i, false, cut_somehow);
    if (narrow_attention[i].instance.number[0]) add_narrow_attention(i, false, cut_queries);
    if (is_for_cuda()) add_narrow_attention(i, true, cut_somehow);
  }
  add_exact();
  add_customs();
  add_value(BATCH, "x", F32, (struct shape){0}, NONE, 1); /* see call_of_aligned */
  for (int v = 0; v < graph->nvalue; v++) graph->value[v].name = text("x%d", v);
}

/* ------------------------------------------------------------------------- written and compiled */

/* What a program's files say of themselves, as far as statements need it. */
static const char prelude_c[] =
    "#include <stdalign.h>\n#include <stddef.h>\n#include <string.h>\n#include \"kernels.h\"\n"
    "static struct memory all, *const m = &all;\n"
    "void start(void);\nvoid start(void)\n{\n}\n"
    "void copy(void *to, const void *from, size_t n);\n"
    "void copy(void *to, const void *from, size_t n)\n{\n  memcpy(to, from, n);\n}\n";
static const char prelude_cu[] =
    "#include \"kernels.h\"\n"
    "static struct memory *m;\nstatic cudaStream_t stream;\n"
    "#define CHECK_CUDA(call) do { if ((call) != cudaSuccess) abort(); } while (0)\n"
    "extern \"C\" void start(void)\n{\n  CHECK_CUDA(cudaStreamCreate(&stream));\n"
    "  CHECK_CUDA(cudaMalloc((void **)&m, sizeof *m));\n}\n"
    "extern \"C\" void copy(void *to, const void *from, size_t n)\n{\n"
    "  CHECK_CUDA(cudaStreamSynchronize(stream));\n"
    "  CHECK_CUDA(cudaMemcpy(to, from, n, cudaMemcpyDefault));\n}\n";
static const char prelude[] =
    "static inline long part_first(long n, int parts, int i)\n{\n"
    "  const long each = (n + parts - 1) / parts;\n  return each * i < n ? each * i : n;\n}\n"
    "static inline long part_size(long n, int parts, int i)\n{\n"
    "  return part_first(n, parts, i + 1) - part_first(n, parts, i);\n}\n";

/* The memory of a rank, each value at a multiple of 64 bytes, as in a program's arena. */
static char *aligned_memory(void)
{
  struct buffer b = {0};
  const char *c = memory_declaration();
  put_text(&b, "", 0);
  for (const char *end; *c; c = end) {
    end = c + strcspn(c, "\n");
    end += *end == '\n';
    bool is_value =
        !strncmp(c, "  float x", 9) || !strncmp(c, "  bf16 x", 8) || !strncmp(c, "  int x", 7);
    put(&b, "%s%.*s", is_value ? "  alignas(64)" : "", (int)(end - c) - is_value, c + is_value);
  }
  return b.text;
}

/* The call, where it is known that each value begins at a multiple of 64 bytes, as it does in an
   arena: of members of one struct, of several types, it is not. */
static char *call_of_aligned(const struct op *op, int rank)
{
  static struct value plain = {.role = ACTIVATION};
  int arena = graph->nvalue - 1;
  struct value last = graph->value[arena];
  must(op->out + op->nout <= arena, "no value is left for the arena");
  graph->value[arena] = plain;
  graph->memory = new_memory_plan();
  for (int i = 0; i < op->nin + op->nout; i++)
    graph->memory->of[i < op->nin ? op->in[i] : op->out + i - op->nin].storage = arena;
  char *call = file_kernel_call(op, rank);
  graph->memory = NULL;
  graph->value[arena] = last;
  return call;
}

/* The program of one rank: a function that runs a trial, one that says where a value lies. */
static char *program_of(int rank)
{
  struct buffer b = {0};
  int coordinate[MAX_MESH] = {0};
  name_values(rank);
  coordinate_of(rank, coordinate);
  const char *start = is_for_cuda() ? prelude_cu : prelude_c;
  const char *c = is_for_cuda() ? "extern \"C\" " : "";
  const char *split = strstr(start, "static struct memory");
  put(&b, "%.*s%s%s%s", (int)(split - start), start, aligned_memory(), split, prelude);
  put(&b, "static const struct { int coordinate[%d]; } one = {{", MAX_MESH);
  for (int d = 0; d < MAX_MESH; d++) put(&b, "%s%d", d ? ", " : "", coordinate[d]);
  put(&b, "}}, *rank = &one;\n%svoid *place(int value);\n%svoid *place(int value)\n{\n", c, c);
  put(&b, "  switch (value) {\n");
  for (int v = 0; v < graph->nvalue; v++)
    if (c_name(v)) put(&b, "  case %d: return %s;\n", v, c_name(v));
  put(&b, "  default: return NULL;\n  }\n}\n%svoid run(int trial);\n", c);
  put(&b, "%svoid run(int trial)\n{\n  switch (trial) {\n", c);
  for (int i = 0; i < ntrials; i++) {
    plan_options->tf32 = trials[i].tf32;
    put(&b, "  case %d:\n  %s\n  break;\n", i, call_of_aligned(trials[i].op, rank));
  }
  put(&b, "  default: break;\n  }\n}\n");
  return b.text;
}

/* fill() with what both kinds of kernel files have. */
static char *filled_template(const char *name, const char *hole, const char *with)
{
  return fill(embedded_template(name), "version", "", "plan", "", "hash", "", "plan_string", "\"\"",
              "constants", "", "includes", kernel_includes(), "weights", runtime_includes(), hole,
              with, NULL);
}

static void write_program(const char *directory)
{
  const char *suffix = is_for_cuda() ? "cu" : "c";
  for (int rank = 0; rank < world_size(); rank++)
    write_text(directory, text("rank%d.%s", rank, suffix), program_of(rank));
  write_text(directory, text("kernels.%s", suffix),
             filled_template(text("kernels.%s", suffix), "kernels", kernel_definitions()));
  static const char *const on_tensor_cores[] = {
      "add_product_of_sums", "multiply_tile<false, false>", "multiply_tile<false, true>",
      "multiply_tile<true, true>"};
  for (int i = 0; i < 4; i++)
    must(!is_for_cuda() || strstr(kernel_definitions(), on_tensor_cores[i]),
         "nothing is multiplied by %s on tensor cores", on_tensor_cores[i]);
  write_text(directory, "kernels.h",
             filled_template(is_for_cuda() ? "kernels.cuh" : "kernels.h", "prototypes",
                             kernel_prototypes()));
}

/* One library for each rank: all have the same names. */
static const char build_c[] = "blas_memory=$PWD/tests/unit/no_blas_memory.c && cc=\"${CC:-cc} "
                              "-std=c11 -O0 -fopenmp -I$PWD/runtime\" && cd $1 && "
                              "cc=\"$cc -Wall -Wextra -Wconversion -Wshadow -Werror -fPIC\" && "
                              "blas=$(pkg-config --cflags openblas | sed s/-I/-isystem/) && "
                              "$cc $blas -c kernels.c && for rank in rank*.c; do "
                              "$cc -shared -o $1/${rank%.c}.so $rank kernels.o $blas_memory "
                              "$(pkg-config --libs openblas) -lm || exit 1; done";
static const char build_cuda[] =
    "cxx=\"${MPICXX:-mpicxx} -std=c++17 -O0 -fPIC -Itests/cuda_on_cpu "
    "-Itests/cuda_on_cpu/include\" && "
    "strict=\"-Wall -Wextra -Wshadow -Werror -Wno-unknown-pragmas -Iruntime -I$1 -x c++\" && "
    "$cxx $strict -c -o $1/kernels.o $1/kernels.cu && for rank in $1/rank*.cu; do "
    "$cxx $strict -O0 -c -o $rank.o $rank && "
    "$cxx -shared -o ${rank%.cu}.so $rank.o $1/kernels.o " STAND_IN " || exit 1; done";

static void build(const char *directory)
{
  write_text(directory, "build.sh", is_for_cuda() ? build_cuda : build_c);
  command(text("sh %s/build.sh %s", directory, directory));
}

/* ---------------------------------------------------------------------------------------- a run */

struct program {
  void *(*place)(int);
  void (*run)(int), (*start)(void);
  void (*copy)(void *, const void *, size_t);
};

static struct program open_program(const char *directory, int rank)
{
  void *handle =
      dlopen(text("%s/rank%d.so", directory, rank), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  must(handle, "%s", dlerror());
  struct program p;
  *(void **)&p.place = dlsym(handle, "place");
  *(void **)&p.run = dlsym(handle, "run");
  *(void **)&p.start = dlsym(handle, "start");
  *(void **)&p.copy = dlsym(handle, "copy");
  must(p.place && p.run && p.start && p.copy, "the program lacks a function");
  p.start();
  return p;
}

static size_t bytes_of(int value, int64_t n)
{
  return (size_t)(n * type_bytes(graph->value[value].type));
}

/* Where element i of the rank's part lies. */
static int64_t lies_at(int value, int rank, int64_t i)
{
  struct shape here = local_shape(value, rank);
  int64_t stride[MAX_DIMS], at = 0;
  local_strides(value, rank, stride);
  for (int d = here.ndim; d-- > 0; i /= here.size[d]) at += i % here.size[d] * stride[d];
  return at;
}

/* Into the program's memory, and out of it; what a float cannot hold_part is rounded in the array
   too. */
static void put_array(const struct program *p, int value, int rank, struct array a)
{
  int64_t n = elements(a.shape);
  enum type type = graph->value[value].type;
  if (!n) return;
  float *number = take((size_t)n * sizeof *number);
  int *whole = (int *)number;
  uint16_t *half = (uint16_t *)number;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = lies_at(value, rank, i);
    if (type == I32)
      whole[at] = (int)a.at[i];
    else if (type == BF16)
      half[at] = narrow(&a.at[i]);
    else if (type == I8 || type == NF4)
      ((uint8_t *)number)[at] = (uint8_t)(int)a.at[i];
    else
      a.at[i] = number[at] = (float)a.at[i];
  }
  p->copy(p->place(value), number, bytes_of(value, n));
}

static struct array get_array(const struct program *p, int value, int rank, struct shape shape,
                              uint64_t *hash)
{
  struct array a = zeros(shape);
  int64_t n = elements(shape);
  if (!n) return a;
  float *number = take((size_t)n * sizeof *number);
  const int *whole = (const int *)number;
  const uint16_t *half = (const uint16_t *)number;
  enum type type = graph->value[value].type;
  p->copy(number, p->place(value), bytes_of(value, n));
  *hash = hash_bytes(*hash, number, bytes_of(value, n));
  for (int64_t i = 0; i < n; i++) {
    int64_t at = lies_at(value, rank, i);
    a.at[i] = type == I32 ? whole[at] : type == BF16 ? wide(half[at]) : (double)number[at];
  }
  return a;
}

/* ---- rows by expert: whole arrays have every expert at every place, memory the rows that there
 * are */

static bool is_by_rows(int value)
{
  return graph->value[value].counts != NONE;
}

/* By place of the rank, the expert to which it goes, of the rank's own, or NONE: by the indices
   that the operation takes, or by any. */
struct sent {
  int64_t n, experts;
  int64_t to[1024];
};

static struct sent sent_here(const struct op *op, int rank, const struct array *in)
{
  struct letters l;
  struct layout in_layout[MAX_INPUTS], out_layout[MAX_OUTPUTS];
  for (int i = 0; i < op->nin; i++) in_layout[i] = graph->value[op->in[i]].layout;
  for (int k = 0; k < op->nout; k++) out_layout[k] = graph->value[op->out + k].layout;
  op_letters(op, &l);
  struct places at = places_at(op, &l, in_layout, out_layout, rank);
  const struct indices *of = op->kind == OP_dispatch  ? &at.out[0]
                             : op->kind == OP_combine ? &at.in[0]
                                                      : &at.in[2];
  bool has_indices = op->nin == 4;
  struct sent s = {.experts = in[op->nin - 1].shape.size[0]};
  struct shape rows = in[0].shape;
  s.n = has_indices ? elements(in[1].shape) : rows.size[1] * rows.size[2] * rows.size[3];
  must(s.n <= 1024, "too many places");
  for (int64_t i = 0; i < s.n; i++) {
    int64_t e = has_indices ? (int64_t)in[1].at[i] - of->first[0]
                            : (i * 5 + rank + i / 3) % (s.experts + 1) - 1;
    s.to[i] = e < 0 || e >= s.experts ? NONE : e;
  }
  return s;
}

/* Copies the rows of a whole array to those in memory, one after the other, or back; the whole one
   becomes zero at places that other experts have. */
static void copy_rows(const struct sent *s, struct array whole, struct array memory, bool back)
{
  int64_t width = whole.shape.size[whole.shape.ndim - 1], row = 0;
  for (int64_t e = 0; e < s->experts; e++)
    for (int64_t i = 0; i < s->n; i++) {
      double *here = whole.at + (e * s->n + i) * width;
      double *there = memory.at + row * width;
      bool is_sent = s->to[i] == e;
      for (int64_t j = 0; j < width; j++) {
        if (is_sent && !back) there[j] = here[j];
        here[j] = !is_sent ? 0 : back ? there[j] : here[j];
      }
      row += is_sent;
    }
}

/* The input as memory has it. */
static struct array in_memory(const struct op *op, int i, int rank, const struct sent *s,
                              struct array whole)
{
  if (i == op->nin - 1)
    for (int64_t e = 0; e < s->experts; e++) {
      whole.at[e] = 0;
      for (int64_t k = 0; k < s->n; k++) whole.at[e] += s->to[k] == e;
    }
  if (!is_by_rows(op->in[i])) return whole;
  bool half = graph->value[op->in[i]].type == BF16;
  for (int64_t k = 0; k < elements(whole.shape); k++)
    if (half)
      narrow(&whole.at[k]);
    else
      whole.at[k] = (float)whole.at[k];
  struct array memory = zeros(local_shape(op->in[i], rank));
  if (elements(whole.shape)) copy_rows(s, whole, memory, false);
  return memory;
}

static bool is_same(double a, double b, double far)
{
  return (isnan(a) && isnan(b)) || is_near(a, b, 2e-4) || fabs(a - b) <= far;
}

static double greatest_in(struct array a)
{
  double most = 0;
  for (int64_t i = 0; i < elements(a.shape); i++)
    if (fabs(a.at[i]) > most) most = fabs(a.at[i]);
  return most;
}

static const char *described(const struct op *op)
{
  struct buffer b = {0};
  put(&b, "%s", op_name(op));
  for (int i = 0; i < op->nin; i++)
    put(&b, " %s %s", shape_text(graph->value[op->in[i]].shape),
        layout_text(graph->value[op->in[i]].layout));
  return b.text;
}

/* What a trial's outputs should be on a rank whose inputs are these. */
static void want(const struct trial *t, int rank, const struct array *in, struct array *out)
{
  const struct op *op = t->op;
  struct letters l;
  struct layout in_layout[MAX_INPUTS], out_layout[MAX_OUTPUTS];
  for (int i = 0; i < op->nin; i++) in_layout[i] = graph->value[op->in[i]].layout;
  for (int k = 0; k < op->nout; k++) {
    out_layout[k] = graph->value[op->out + k].layout;
    struct shape here = local_shape(op->out + k, rank);
    if (is_by_rows(op->out + k)) here.size[0] = in[op->nin - 1].shape.size[0];
    out[k] = t->expected[0].at ? t->expected[k] : zeros(here);
  }
  if (t->expected[0].at) return;
  op_letters(op, &l);
  struct places at = places_at(op, &l, in_layout, out_layout, rank);
  bool fits = t->run ? t->run(op, in, out, &at) : evaluate(op, in, out, &at);
  must(fits, "rank %d: %s: its parts do not fit", rank, described(op));
}

/* What lies behind a value, up to where the next one may begin, is nobody's. Numbers stand there: a
   NaN would stay one, whatever a kernel adds to it. */
enum { VALUE_ALIGNMENT = 64, NUMBER = 0x3f };

static size_t room_behind(const struct program *p, int value, int rank, char **at)
{
  size_t bytes = bytes_of(value, elements(local_shape(value, rank)));
  char *place = p->place(value);
  if (!place || bytes % VALUE_ALIGNMENT == 0) return 0;
  *at = place + bytes;
  return VALUE_ALIGNMENT - bytes % VALUE_ALIGNMENT;
}

static void fill_behind(const struct program *p, int value, int rank)
{
  char number[VALUE_ALIGNMENT], *at = NULL;
  size_t n = room_behind(p, value, rank, &at);
  memset(number, NUMBER, sizeof number);
  if (n) p->copy(at, number, n);
}

static bool is_filled_behind(const struct program *p, int value, int rank)
{
  char byte[VALUE_ALIGNMENT], *at = NULL;
  size_t n = room_behind(p, value, rank, &at);
  if (n) p->copy(byte, at, n);
  for (size_t i = 0; i < n; i++)
    if (byte[i] != NUMBER) return false;
  return true;
}

static void run_trial(const struct program *p, int which, int rank, uint64_t *hash)
{
  const struct trial *t = &trials[which];
  const struct op *op = t->op;
  struct array in[MAX_INPUTS], out[MAX_OUTPUTS];
  bool by_rows = strchr(rule_of(op), '+');
  for (int i = 0; i < op->nin; i++) {
    in[i] = cut(t->in[i], graph->value[op->in[i]].layout, rank);
    if (!by_rows) put_array(p, op->in[i], rank, in[i]);
  }
  struct sent sent = {0};
  if (by_rows) sent = sent_here(op, rank, in);
  for (int i = 0; i < op->nin && by_rows; i++)
    put_array(p, op->in[i], rank, in_memory(op, i, rank, &sent, in[i]));
  want(t, rank, in, out);
  for (int k = 0; k < op->nout; k++) fill_behind(p, op->out + k, rank);
  p->run(which);
  for (int k = 0; k < op->nout; k++) {
    must(is_filled_behind(p, op->out + k, rank), "rank %d: %s: it writes behind output %d", rank,
         described(op), k);
    bool rows = is_by_rows(op->out + k);
    struct shape here = rows ? local_shape(op->out + k, rank) : out[k].shape;
    struct array made = get_array(p, op->out + k, rank, here, hash);
    if (rows) {
      struct array memory = made;
      made = zeros(out[k].shape);
      if (elements(here)) copy_rows(&sent, made, memory, true);
      for (int64_t i = 0; i < elements(made.shape) && !elements(here); i++)
        made.at[i] = out[k].at[i];
    }
    double far = t->rounding * greatest_in(out[k]);
    for (int64_t i = 0, n = elements(made.shape); i < n; i++)
      must(is_same(made.at[i], out[k].at[i], far) ||
               (is_of_lapack(op->kind) && is_same(-made.at[i], out[k].at[i], far)),
           "rank %d: %s: element %" PRId64 " of output %d is %g, not %g", rank, described(op), i, k,
           made.at[i], out[k].at[i]);
  }
}

struct run {
  bool cuda;
  int ndim, size[MAX_MESH];
  int half; /* which trials of C: a program of all needs too much memory */
  const char *directory, *order;
  bool built;
};

/* Keeps every second trial. */
static void keep_half(int first)
{
  int kept = 0;
  for (int i = first; i < ntrials; i += 2) trials[kept++] = trials[i];
  ntrials = kept;
}

/* Tells how much was run, and a hash of all that came out. */
static void run_all(const void *with)
{
  const struct run *run = with;
  set_target(run->cuda ? "cuda" : "cpu");
  if (run->order) setenv("CUDA_ON_CPU_ORDER", run->order, 1);
  new_graph(run->ndim, run->size);
  add_trials();
  if (!run->cuda) keep_half(run->half);
  write_program(run->directory);
  if (!run->built) build(run->directory);
  uint64_t hash = HASH_START;
  size_t used = pool_used;
  for (int rank = 0; rank < world_size(); rank++) {
    struct program p = open_program(run->directory, rank);
    for (int i = 0; i < ntrials; i++, pool_used = used) run_trial(&p, i, rank, &hash);
  }
  fprintf(stderr, "%d operations on %d ranks by %d kernels: %016" PRIx64 "\n", ntrials,
          world_size(), nkernels, hash);
}

static struct ending run_somewhere(struct run run)
{
  struct ending e = run_child(run_all, &run);
  if (e.status) fail_msg("ended with %d, see %s: %s", e.status, run.directory, e.said);
  return e;
}

/* What run_all tells. A sanitizer may say before it that it does not know the stand-in's stacks. */
static const char *ending_text(const struct ending *e)
{
  const char *line = e->said;
  for (const char *c = e->said; *c; c++)
    if (*c == '\n' && c[1]) line = c + 1;
  return line;
}

static void run_on_mesh(struct run run)
{
  char directory[] = "/tmp/kernel_fileXXXXXX";
  assert_non_null(mkdtemp(directory));
  run.directory = directory;
  if (run.cuda) run.order = "forward";
  struct ending e = run_somewhere(run);
  print_message("%s: %s", run.cuda ? "CUDA" : "C", ending_text(&e));
  if (run.cuda && getenv("CASES")) {
    run.order = "backward";
    run.built = true;
    struct ending again = run_somewhere(run);
    assert_string_equal(ending_text(&e), ending_text(&again)); /* whichever thread comes first */
  }
  char remove[64];
  snprintf(remove, sizeof remove, "rm -r %s", directory);
  assert_int_equal(system(remove), 0);
}

static void test_c_kernels(void **state)
{
  (void)state;
  if (system("${CC:-cc} --version > /dev/null 2>&1")) skip();
  /* With CASES in the environment, as in CI, all are tried on both meshes; else each on one. */
  const bool all = getenv("CASES") != NULL;
  for (int half = 0; half < 2; half++) {
    if (all || half == 0) run_on_mesh((struct run){.ndim = 1, .size = {3}, .half = half});
    if (all || half == 1) run_on_mesh((struct run){.ndim = 2, .size = {2, 2}, .half = half});
  }
}

static void test_cuda_kernels(void **state)
{
  (void)state;
  if (system("${MPICXX:-mpicxx} --version > /dev/null 2>&1")) skip();
  run_on_mesh((struct run){.cuda = true, .ndim = 2, .size = {2, 2}});
}

/* ------------------------------------------------------------------------------ what is refused */

struct bad {
  const char *rule, *c, *cu;
  const char *says;
};

#define HEAD    "void $name$(float *restrict y, const float *restrict x"
#define BODY    ")\n{\n  y[0] = x[0];\n}\n"
#define CU_HEAD "__global__ void $name$(float *__restrict__ y, const float *__restrict__ x"

static const struct bad bads[] = {
    {"a->a", NULL, NULL, "names no file"},
    {"a->a", "int $name$(void)\n{\n}\n", NULL, "void $name$("},
    {"a->a", HEAD BODY HEAD BODY, NULL, "two functions"},
    {"a->a", HEAD ");\n", NULL, "no body"},
    {"a->a", HEAD ")\n{\n  y[0] = $foo$;\n}\n", NULL, "$foo$"},
    {"a->a", HEAD ")\n{\n  y[0] = $b$;\n}\n", NULL, "neither a letter of the rule a->a"},
    {"a->a", HEAD ", long first_a" BODY, NULL, "first_a"},
    {"a@->a@", HEAD ", int first_a" BODY, NULL, "int first_a"},
    {"a@->a@", HEAD ", long first_b" BODY, NULL, "first_b"},
    {"a->a", "void $name$(float *restrict y" BODY, NULL, "1 parameters for 1 outputs and 1 inputs"},
    {"a->a", "void $name$(float *restrict y, const int *restrict x" BODY, NULL, "f32"},
    {"a->a:i32", HEAD BODY, NULL, "i32"},
    {"a->a", HEAD BODY, NULL, NULL},
    {"a->a", HEAD BODY, CU_HEAD BODY, "// launch:"},
    {"a->a", HEAD BODY, "// launch: 1, 32\n" CU_HEAD BODY CU_HEAD BODY, "// launch:"},
    {"a->a", HEAD BODY, "// launch: 1, 32\nstatic " CU_HEAD BODY, "should begin with"},
    {"a->a", HEAD BODY, "// launch: 1, 32\n\n" CU_HEAD BODY, "should begin with"},
    {"a->a", HEAD BODY, "// launch: 1\n" CU_HEAD BODY, "BLOCKS, THREADS"},
    {"a->a", HEAD BODY, "// launch: 1, 32 33\n" CU_HEAD BODY, "goes on"},
    {"a->a", HEAD BODY, "// launch: (1, 32\n" CU_HEAD BODY, "not closed"},
    {"a->a", HEAD BODY, "// launch: x, 32\n" CU_HEAD BODY, "a number should stand"},
    {"a->a", HEAD BODY, "// launch: $a$ / ($a$ - 6), 32\n" CU_HEAD BODY, "divides by 0"},
    {"a->a", HEAD BODY, "// launch: 1, 2048\n" CU_HEAD BODY, "1 blocks of 2048 threads"},
    {"a->a", HEAD BODY, "// launch: $a$ * 4294967296 * 4294967296, 32\n" CU_HEAD BODY, "too large"},
    {"a->a", HEAD BODY, "// launch: 1, 32\n" CU_HEAD BODY, NULL},
};

static void apply_bad(const void *with)
{
  const struct bad *bad = with;
  set_target(bad->cu != NULL ? "cuda" : "cpu");
  new_graph(1, (int[]){1});
  struct op op = {.kind = OP_custom, .nin = 1, .module = NONE, .line = 1};
  op.custom = declare((struct custom){.name = "bad",
                                      .rule = bad->rule,
                                      .linear = "",
                                      .kernel[LANGUAGE_C] = bad->c,
                                      .kernel[LANGUAGE_CUDA] = bad->cu,
                                      .line = 7});
  op.in[0] = given(BATCH, "x", (struct shape){1, {6}}, (struct layout){0});
  int out = append_op(op);
  graph->value[out].role = BATCH;
  graph->value[out].name = "y";
  name_values(0);
  file_kernel_call(&graph->op[graph->value[out].op], 0);
}

static void test_wrong_files_are_refused(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
    if (bads[i].says)
      refused(apply_bad, &bads[i], 1, "unit.lua:", bads[i].says, NULL);
    else
      passes(apply_bad, &bads[i]);
  }
}

static void stretch(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  static const int64_t size[SIZES] = {4, 3, 2, 1};
  const struct instance one = {OP_scatter_add, .in = {"cb", "#c1"}, .dims = 1, .out = {"ab"}};
  const struct op *op = instantiate(&one, size);
  for (int v = 0; v < graph->nvalue; v++) {
    graph->value[v].role = BATCH;
    graph->value[v].name = text("x%d", v);
  }
  name_values(0);
  file_kernel_call(op, 0);
}

/* A kernel would read beyond the end of an operand that is broadcast. */
static void test_stretched_operands_are_refused(void **state)
{
  (void)state;
  refused(stretch, NULL, 1, "scatter_add", "[2, 1]", "expand it", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_c_kernels),
      cmocka_unit_test(test_cuda_kernels),
      cmocka_unit_test(test_wrong_files_are_refused),
      cmocka_unit_test(test_stretched_operands_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
