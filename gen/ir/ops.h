/* clang-format off */
/* ops.h: the table of operators, whose columns are kept by hand. One row for each; every other list
   expands from here. To add an operator: a row here, its element's expression in the row or a pair
   of kernel files, a function in graph_passes/gradients*.c for its gradient, and for the tests a
   reference (tests/unit/reference.h) and sizes (instances.h, and test_grad.c for a gradient).

     OP(name, rule, linear, gradient, numbers, element, flops, fields)

   rule       Which dimension of each input is which of each output; so how the operator shards.

                rule    = operand {"," operand} "->" operand {"," operand}
                operand = {dimension} ["*"] ["+" letter {letter}] {":" word}
                dimension = letter | "..." | "(" letter {letter} ")" | "1"
                letter  = a lower-case or capital letter, [its size in digits], [mark]

     mk,kn->mn  Equal letters are one dimension. It may be cut: then every operand that has the
                letter is sharded there and the others are whole; each rank makes its part of the
                output or, where the output lacks the letter, one term of a sum over the ranks.
     ...        All the dimensions that are not named. Where the row has an element they are aligned
                at the last one as in broadcasting, and a size of 1 stretches. It may carry a mark.
     D          A capital letter means the dimensions that the operation names (op->dims),
                at any place among those of `...`.  ...D->... is a reduction.
     (gr)       One dimension made of several, the outermost first:  (bs)d->bsd splits one,
                (b8s4)d->bsd with sizes. Cut along a letter that is not the outermost, the dimension
                is a strided shard.
     1          A dimension of size 1; after a letter a blank parts them:  ab->a 1 b
     x!         Is never cut. A mark on one operand's letter holds for the letter everywhere.
     x@         May be cut, by a kernel that gets the start of its part: it leaves out indices
                outside it (an embedding's rows, say: then its output is a pending sum), or uses the
                index in the whole tensor (a causal mask). If a capital letter with this mark means
                several dimensions, none of them is cut.
     *          The operand is repeated:  ...D!*->...D!  takes any number of them, whose sizes of a
                dimension that is never cut may differ.
     e+sk       A count of places (s, k): pending where these are cut, see rows.c.
     :max :min  Of an output: what a letter that it lacks leaves, where that is not a sum.
     :i32 :bool :f32  Of an output: its type. Else it is that of the inputs.
     equation   Each operation brings its own rule.
     ""         None: the operation itself gives the layouts of its values.

   linear     Which inputs may be pending sums, so that the outputs are: alternatives, parted by
              "|"; each names inputs (a is the first; * means all) that are pending together while
              the others are replicated. "ab": f(x1 + x2, y1 + y2) = f(x1, y1) + f(x2, y2). "a|b":
              in either, not in both. "a:max": the same of pending maxima.
   gradient   The function in graph_passes/gradients*.c that writes the backward operations, or
              no_grad.
   numbers    Names of the operation's whole-number attributes, parted by blanks.
   element    How one element of the output comes about, in C; of a reduction: one of its terms. It
              may call the functions of element_functions.h.

     $a $b ...  The inputs' elements at this place.
     $a(i)      The input's element at index i of the first letter that its operand names, elsewhere
                at this place; 0 if there is no such index, or another rank has it.
     $x         The index of letter x, in the whole tensor. The other operand of == is one, too.
     $s $name   The operation's scalar, and its numbers by name.
     $noted     Where a number that is no index is noted for the use of indices `$use` of the plan.
     $random    A number in [0, 1) that depends only on the seed, the step, $stream and the place in
                the whole tensor; 1 where the step is 0: in a validation.
     $uniform   Likewise, in a validation, too. $normal: of mean 0 and deviation 1.
     $now       The step's number, as functions of elements.h take it; 0 in a validation.

              ""  with a rule: the operator has kernels of its own, NAME.c and .cu in templates
              (kernel_file.c says how they are written), unless it is a copy or a product.

   flops      How many numbers it multiplies and adds: products of the sizes of the rule's letters,
              parted by blanks, which add up; "*": of all letters. "": few beside the bytes that it
              reads and writes. Times, cost and MFU follow from it.

   fields     What few rows have, by name:
              .type      of the outputs, where the rule does not give it: "f32", of floats; "a",
                         that of the first input; "f32 a", the one or, of whole numbers, the other;
                         "given", by the operation (op->type); "given f32", so of floats;
                         "counts", of bool int32. Else that of the first input that is a float,
                         or of the first.
              .cheap     CHEAP: the backward may compute it again rather than keep it; COSTLY: it
                         may not. Otherwise it may if it works by element.
              .compares  It finds whether its inputs are the very numbers that something was made
                         of: computed again, in another kernel, they may be others in the last bit.
              .copies    It moves bytes within a rank's memory, without arithmetic.
              .product   It is calls of a library.
              .updates   It updates a parameter in place.
              .keeps     It writes a cache for a later call, and runs even if nothing reads its
                         result.
              .elements  Which numbers it makes, where all are of its first input: ALL_OF_FIRST,
                         SOME_OF_FIRST; SOME_OR_ZERO: or zero.
              .step      What it is in a redistribution, within a rank: LOCAL_STEP, from a layout to
                         another; PACKING, PIECES_PACKING: for the collective beside it.
              .suffix    Of the name of what a step makes.
              .takes_stored  It reads weights as they are stored: no cast comes before it.
              .calls     It calls a function of the program.
              .composed  It is one kernel for the operations of its body.
              .idle      Nothing runs for it.
              .shows     Its result is bytes of its input, or the other way round: memory.c.
              .sign      How expressions write it, between its inputs. */

/* ------------------------------------------------------------------------------------- products */

/* float8: rounded to it, a scale for each tensor, 1, or each row of terms, 2. */
OP(matmul,         "equation",             "a|b",          matmul_grad,        "float8", "", "*",
   .product = true, .sign = "@")

/* --------------------------------------------------------------------------- element by element */

OP(add,            "...,...->...",         "ab|a:max|b:max|a:min|b:min", add_grad, "", "$a + $b",
   "", .sign = "+")
OP(sub,            "...,...->...",         "ab|a:max|a:min", sub_grad,         "", "$a - $b", "",
   .sign = "-")
OP(mul,            "...,...->...",         "a|b",          mul_grad,           "", "$a * $b", "",
   .sign = "*")
OP(div,            "...,...->...",         "a",            div_grad,           "", "$a / $b", "",
   .sign = "/")
/* Neither greater nor less: one is not a number, and so is their sum. */
OP(maximum,        "...,...->...",         "ab:max|a:max|b:max|a:min|b:min", maximum_grad, "",
   "$a > $b ? $a : $a <= $b ? $b : $a + $b", "")
OP(minimum,        "...,...->...",         "ab:min|a:min|b:min|a:max|b:max", minimum_grad, "",
   "$a < $b ? $a : $a >= $b ? $b : $a + $b", "")
OP(pow,            "...,...->...",         "",             pow_grad,      "", "powf($a, $b)", "")
OP(power,          "...->...",             "",             power_grad,    "", "powf($a, $s)", "")
OP(neg,            "...->...",             "a",            neg_grad,           "", "-$a", "")
OP(scale,          "...->...",             "a",            scale_grad,         "", "$s * $a", "")
OP(abs,            "...->...",             "",             abs_grad,           "", "fabsf($a)", "")
OP(abs_back,       "...,...->...",         "a",            no_grad,            "",
   "$b > 0 ? $a : $b < 0 ? -$a : 0", "")
OP(exp,            "...->...",             "a:max|a:min",  exp_grad,           "", "expf($a)", "")
OP(log,            "...->...",             "",             log_grad,           "", "logf($a)", "")
OP(sqrt,           "...->...",             "",             sqrt_grad,          "", "sqrtf($a)", "")
OP(rsqrt,          "...->...",             "",             rsqrt_grad,         "", "1 / sqrtf($a)",
   "")
OP(expm1,          "...->...",             "a:max|a:min",  expm1_grad,         "", "expm1f($a)", "")
OP(expm1_back,     "...,...->...",         "a",            no_grad, "", "$a * expf($b)", "")
OP(log1p,          "...->...",             "",             log1p_grad,         "", "log1pf($a)", "")
OP(log1p_back,     "...,...->...",         "a",            no_grad, "", "$a / (1 + $b)", "")
OP(erf,            "...->...",             "a:max|a:min",  erf_grad,           "", "erff($a)", "")
OP(erf_back,       "...,...->...",         "a",            no_grad,            "",
   "$a * 1.1283792f * expf(-$b * $b)", "")
OP(erfinv,         "...->...", "",                  erfinv_grad,  "", "inverse_erf($a)", "")
OP(lgamma,         "...->...", "",                  lgamma_grad,  "", "lgammaf($a)", "")
OP(digamma,        "...->...", "",                  digamma_grad, "", "digamma($a)", "")
OP(digamma_back,   "...,...->...", "a",             no_grad,      "", "$a * trigamma($b)", "")
OP(square,         "...->...",             "",             square_grad,        "", "$a * $a", "")
OP(sin,            "...->...",             "",             sin_grad,           "", "sinf($a)", "")
OP(cos,            "...->...",             "",             cos_grad,           "", "cosf($a)", "")
OP(relu,           "...->...",             "a:max|a:min",  relu_grad,          "",
   "$a < 0 ? 0 : $a", "")
OP(relu_back,      "...,...->...",         "a",            no_grad, "", "$b <= 0 ? 0 : $a", "")
OP(sigmoid,        "...->...",             "a:max|a:min",  sigmoid_grad,       "",
   "1 / (1 + expf(-$a))", "")
OP(sigmoid_back,   "...,...->...",         "a",            no_grad,            "",
   "$a * $b * (1 - $b)", "")
OP(tanh,           "...->...",             "a:max|a:min",  tanh_grad,          "", "tanhf($a)", "")
OP(tanh_back,      "...,...->...",         "a",            no_grad, "", "$a * (1 - $b * $b)", "")
OP(silu,           "...->...",             "",             silu_grad,          "",
   "$a / (1 + expf(-$a))", "")
OP(silu_back,      "...,...->...",         "a",            no_grad,            "",
   "$a * silu_slope($b)", "")
OP(softplus,       "...->...",             "a:max|a:min",  softplus_grad,      "",
   "$a > 20 ? $a : log1pf(expf($a))", "")
OP(softplus_back,  "...,...->...",         "a",            no_grad, "", "$a / (1 + expf(-$b))", "")
OP(gelu,           "...->...",             "",             gelu_grad,          "",
   "0.5f * $a * (1 + erff(0.70710678f * $a))", "")
OP(gelu_back,      "...,...->...",         "a",            no_grad,            "",
   "$a * (0.5f * (1 + erff(0.70710678f * $b)) + 0.39894228f * $b * expf(-0.5f * $b * $b))", "")
OP(gelu_tanh,      "...->...",             "",             gelu_tanh_grad,     "",
   "0.5f * $a * (1 + tanhf(0.79788456f * $a * (1 + 0.044715f * $a * $a)))", "")
OP(gelu_tanh_back, "...,...->...",         "a",            no_grad,            "",
   "$a * gelu_tanh_slope($b)", "")
OP(where,          "...,...,...->...",     "bc|bc:max|bc:min", where_grad,     "", "$a ? $b : $c",
   "", .type = "b")
OP(eq,             "...,...->...:bool",    "",             no_grad,            "", "$a == $b", "",
   .sign = "==")
OP(ne,             "...,...->...:bool",    "",             no_grad,            "", "$a != $b", "",
   .sign = "!=")
OP(lt,             "...,...->...:bool",    "",             no_grad,            "", "$a < $b", "",
   .sign = "<")
OP(le,             "...,...->...:bool",    "",             no_grad,            "", "$a <= $b", "",
   .sign = "<=")
OP(gt,             "...,...->...:bool",    "",             no_grad,            "", "$a > $b", "",
   .sign = ">")
OP(ge,             "...,...->...:bool",    "",             no_grad,            "", "$a >= $b", "",
   .sign = ">=")
OP(logical_and,    "...,...->...:bool",    "",             no_grad,            "", "$a && $b", "",
   .sign = "&&")
OP(logical_or,     "...,...->...:bool",    "",             no_grad,            "", "$a || $b", "",
   .sign = "||")
OP(logical_not,    "...->...:bool",        "",             no_grad,            "", "!$a", "")
OP(cast,           "...->...",             "a|a:max|a:min", cast_grad,         "", "$a", "",
   .type = "given", .elements = ALL_OF_FIRST)
/* The values a. A step takes buffer b $s of the way to them, or `balances`: balance_buffers.c. */
OP(running,        "...,...->...",         "a|a:max|a:min", running_grad,      "balances", "$a", "",
   .type = "a")
/* The values a; in a validation the buffer b. Then s times a; in a validation, of one batch, a. */
OP(in_training,    "...,...->...",         "",             in_training_grad,   "",
   "is_training($now) ? $a : $b", "", .type = "a")
OP(batch_share,    "...->...", "a", no_grad, "", "is_training($now) ? $s * $a : $a", "")
OP(dropout,        "...@->...@",           "a|a:max|a:min", dropout_grad,      "stream",
   "dropped($a, $random, $s)", "")
OP(uniform_like,   "...@->...@", "", no_grad, "stream", "$uniform", "", .type = "f32")
OP(normal_like,    "...@->...@", "", no_grad, "stream", "$normal", "", .type = "f32")
OP(tril,           "...y@x@->...y@x@",     "a|a:max|a:min", tril_grad,         "diagonal",
   "$x - $y <= $diagonal ? $a : 0", "", .elements = SOME_OR_ZERO)
OP(triu,           "...y@x@->...y@x@",     "a|a:max|a:min", triu_grad,         "diagonal",
   "$x - $y >= $diagonal ? $a : 0", "", .elements = SOME_OR_ZERO)
/* Rotates pairs (x1, x2) of the last dimension by an angle with cosine b and sine c, of half as
   many elements: x1 in the first half, x2 in the second, as Hugging Face has it; or side by
   side. */
OP(rotary,         "...d!,...c!,...c!->...d!", "a",        rotary_grad,        "half",
   "$d < $half ? $a * $b($d) - $a($d + $half) * $c($d)"
   " : $a * $b($d - $half) + $a($d - $half) * $c($d - $half)", "")
OP(rotary_pairs,   "...d!,...c!,...c!->...d!", "a",        rotary_pairs_grad,  "",
   "$d % 2 ? $a * $b($d / 2) + $a($d - 1) * $c($d / 2) : $a * $b($d / 2) - $a($d + 1) * $c($d / 2)",
   "")

/* ----------------------------------------------------------------------- dimensions come and go */

/* The sum, times the scalar: a mean is one. */
OP(sum,            "...D->...",            "a",            sum_grad,           "", "$a", "",
   .type = "counts")
OP(amax,           "...D->...:max",        "a:max",        amax_grad,          "", "$a", "")
OP(amin,           "...D->...:min",        "a:min",        amin_grad,          "", "$a", "")
OP(expand,         "...->...D",            "a",            expand_grad,        "", "$s * $a", "")
OP(full,           "->...",                "",             no_grad,            "", "$s", "")
OP(index,          "->D@",                 "",             no_grad,            "", "$D", "")
OP(permute,        "equation",             "a|a:max|a:min", permute_grad,      "", "$a", "",
   .elements = ALL_OF_FIRST)
/* The same elements in another shape: no bytes move. */
OP(view,           "equation",             "a|a:max|a:min", view_grad,         "", "", "",
   .cheap = CHEAP, .copies = true, .elements = ALL_OF_FIRST, .idle = true, .shows = true)
OP(cat,            "...D!*->...D!",        "*|*:max|*:min", cat_grad,          "", "", "",
   .copies = true)
OP(narrow,         "...D!->...E!",         "a|a:max|a:min", narrow_grad,       "start",
   "$a($start + $E)", "", .elements = SOME_OF_FIRST)
OP(pad,            "...D!->...E!",         "a|a:max|a:min", pad_grad,          "before",
   "$a($E - $before)", "", .elements = SOME_OR_ZERO)
/* Every step-th, and the way back, with zeros between. */
OP(every,          "...D!->...E!",         "a|a:max|a:min", every_grad,        "step",
   "$a($E * $step)", "", .elements = SOME_OF_FIRST)
OP(spread,         "...D!->...E!",         "a|a:max|a:min", spread_grad,       "step",
   "$E % $step ? 0 : $a($E / $step)", "", .elements = SOME_OR_ZERO)

/* ----------------------------------------------------------------------- by indices of elements */

OP(gather,         "...D@,...I->...I",     "a|a:max|a:min", gather_grad,       "", "$a($b)", "",
   .type = "a", .cheap = COSTLY, .elements = SOME_OF_FIRST)
/* The same; a number that is not from 0 to below - 1, nor `ignored`, becomes -1, and ends the
   job. */
OP(index_within,   "...->...:i32",         "",             no_grad,            "below ignored use",
   "index_within($a, $below, $ignored, $noted)", "")
/* Each element at its index along a new dimension, or one of size 1, and zeros elsewhere. */
OP(place,          "...,...->...D@",       "a|a:max|a:min", place_grad,        "",
   "$D == $b ? $a : 0", "", .elements = SOME_OR_ZERO)
OP(scatter_add,    "...I,...I->...D@",     "a",            scatter_add_grad,   "", "", "",
   .type = "f32")
OP(scatter,        "...D@,...I!,...I!->...D@", "ac|ac:max|ac:min", scatter_grad, "", "", "",
   .type = "f32 a")
OP(index_select,   "...D@,I->...I",        "a|a:max|a:min", index_select_grad, "", "$a($b)", "",
   .type = "a", .cheap = COSTLY, .elements = SOME_OF_FIRST)
OP(index_add,      "...I,I->...D@",        "a",            index_add_grad,     "", "", "",
   .type = "f32")
OP(embedding,      "v@d,...->...d",        "a|a:max|a:min", embedding_grad,    "", "$a($b)", "",
   .type = "a", .cheap = COSTLY, .elements = SOME_OF_FIRST)
OP(embedding_back, "...d,...->v@d",        "a",            no_grad,            "", "", "",
   .type = "f32")
#include "ir/row_ops.h"
#include "ir/matrix_ops.h"
/* ---------------------------------------------------------------------------- along a dimension */
OP(cumsum,         "...D!->...D!",         "a",            cumsum_grad,        "reverse", "", "",
   .type = "f32")
/* The greatest so far, or with `least` the smallest, and its index: of equal ones the last. */
OP(cummax,         "...D!->...D!:f32,...D!:i32", "",       cummax_grad,        "least", "", "")
OP(argsort,        "...D!->...D!:i32",     "",             no_grad,       "descending", "", "")
OP(argmax,         "...D!->...:i32",       "",             no_grad,            "", "", "")
/* For each token: the number of its document, counted from 0 in each row, and its place in it. A
   token $eos ends a document. */
OP(documents,      "...D!->...D!:i32,...D!:i32", "",       no_grad,            "eos", "", "")

/* ------------------------------------------------------------------------------ whole operators */

/* softmax(scale q k^T) v over heads in groups that share keys and values; and the logarithm of each
   row's sum. $s is the scale. Never holds a whole matrix of scores.
     causal     A query sees the keys up to its own place.
     window     And those less than so many places away; 0: all.
     biased     A further input is added to the scores: bqk of each head, b(gr)qk, or less, with
                dimensions of size 1 but for k. -INFINITY hides a key.
     documents  Two further inputs, bq and bk: a query sees the keys with the same number.
     places     Two further inputs, q and k: places in the sequence. 1: a query sees the keys up to
                its own, 2: all; less than `reach` places away, 0: at any place.
     ring       Around the dimension ring - 1 of the mesh: ring.c. Below 0: a step of that.
     headtail   The places are in head-tail order over that dimension: a rank's block is a part at
                the head of the sequence and one at its tail.
     sinks      A further input, (gr): a score that counts in the sum of each row, and has no value.
   Such an operation has a rule of its own: the row's, with the further inputs after the others. */
OP(attention,      "b(gr)q@d!,bgk!d!,bgk!e!->b(gr)qe!,b(gr)q:f32", "", attention_grad,
   "causal window biased documents sinks places reach ring headtail", "", "bgrqkd bgrqke")
/* Takes the output's gradient, q, k, v, the output and the logarithms; makes q's, k's and v's. The
   bias, the documents and the places are further inputs. */
OP(attention_back, "b(gr)q@e!,b(gr)qd!,bgk@d!,bgke!,b(gr)qe!,b(gr)q->b(gr)qd!,bgkd!,bgke!", "a",
   no_grad, "causal window biased documents places reach ring headtail", "",
   "bgrqkd bgrqkd bgrqkd bgrqke bgrqke")
/* Takes the same, and the bias; makes the bias's gradient. */
OP(attention_back_bias, "b(gr)q@e!,b(gr)qd!,bgk@d!,bgke!,b(gr)qe!,b(gr)q,b(gr)qk->b(gr)qk:f32", "a",
   no_grad, "causal window", "", "bgrqkd bgrqke")
/* From attention over two parts of the keys, a and c, and the logarithms of its rows' sums, b and
   d, that over both; and the logarithm of its sum. Of no keys it is -INFINITY. */
OP(merge,          "...,...,...,...->...", "ac|a:max|c:max|a:min|c:min", no_grad, "",
   "$d > -3e38f ? $a + ($c - $a) / (1 + expf($b - $d)) : $a", "")
OP(merge_logs,     "...,...->...",         "a:max|b:max|a:min|b:min", no_grad, "",
   "$a > $b ? $a + log1pf(expf($b - $a)) : $b > -3e38f ? $b + log1pf(expf($a - $b)) : $b", "")
#include "ir/generate_ops.h"
OP(conv2d,         "n(gc)y!x!,(go)ck!l!->n(go)p!q!", "a|b", conv2d_grad,
   "stride_y stride_x pad_y pad_x dilation_y dilation_x", "", "ngocklpq", .type = "f32")
/* Also a transposed convolution, of the plan's. */
OP(conv2d_back_input, "n(go)p!q!,(go)ck!l!->n(gc)y!x!", "a|b", conv2d_back_input_grad,
   "stride_y stride_x pad_y pad_x dilation_y dilation_x", "", "ngocklpq", .type = "f32")
OP(conv2d_back_weight, "n(go)p!q!,n(gc)y!x!->(go)ck!l!", "a|b", no_grad,
   "stride_y stride_x pad_y pad_x dilation_y dilation_x", "", "ngocklpq", .type = "f32")
OP(max_pool2d,     "...y!x!->...p!q!",     "a:max",        max_pool2d_grad,
   "kernel_y kernel_x stride_y stride_x pad_y pad_x", "", "", .type = "f32")
OP(max_pool2d_back, "...p!q!,...y!x!,...p!q!->...y!x!", "a", no_grad,
   "kernel_y kernel_x stride_y stride_x pad_y pad_x", "", "", .type = "f32", .compares = true)
/* The plan's own operator: graph->custom. */
OP(custom,         "equation",             "",             custom_grad,        "", "", "",
   .compares = true)

/* ----------------------------------------------------------------------------- steps of a scan */

/* In a step of a scan: its slice of the scan's input, along D; its slice of the steps' combined
   output; and this output, from the slices of the first steps and the last. Gradients:
   scan_grad.c. */
OP(scan_take,      "...D!->...",           "a|a:max|a:min", no_grad,           "", "", "",
   .cheap = CHEAP, .copies = true, .elements = SOME_OF_FIRST, .shows = true)
OP(scan_put,       "...->...",             "a|a:max|a:min", no_grad,           "", "", "",
   .copies = true, .elements = ALL_OF_FIRST, .shows = true)
OP(scan_stack,     "...*->...D!",          "*|*:max|*:min", no_grad,           "", "", "",
   .copies = true, .shows = true)

/* ------------------------------------------------------------------------------- without a rule */

/* Comes after a scan, once for each carry: a, of the last step, and b, which the first step reads
   where the others read a of the step before. They get one layout, and no step lacks an operation
   because nothing reads its result. */
OP(scan_hold,      "",                     "",             no_grad,            "", "", "",
   .idle = true)

/* The sum of the squares of all gradients, those of its body, each counted once; and its root. */
OP(squares,        "",                     "",             no_grad,            "", "", "")
OP(norm,           "",                     "",             no_grad,            "", "", "")
/* A number of an optimizer that the host computes once a step. */
OP(step_number,    "",                     "",             no_grad,
   "optimizer number", "", "")
/* A parameter, its gradient, its states; where gradients are clipped their norm; what the update's
   operations made. Writes the former in place, by plan_options->optimizer[$optimizer]. */
OP(update,         "",                     "",             no_grad,            "optimizer", "", "",
   .updates = true)
/* A buffer, minus the value that takes the place of its gradient. */
OP(buffer,         "",                     "",             no_grad,            "", "", "",
   .updates = true)
/* From one layout to another. The plan and propagate ask for it; its pass makes it steps. */
OP(redistribute,   "",                     "",             redistribute_grad,  "", "", "",
   .type = "given f32", .elements = ALL_OF_FIRST)
/* The collectives that make a redistribution: on local shapes, over one group of ranks. */
#define COLLECTIVE(name, ...) OP(name, "", "", no_grad, "", "", "")
#include "ir/collectives.h"
#undef COLLECTIVE
/* A count of places, a, of no more rows than the rank has room for; b: the count as it was made. */
OP(clamp_to_capacity,      "",                     "",             no_grad,            "", "", "",
   .suffix = "_held")
/* slice: this rank's part. to_partial: a whole value, or a part, as a sum in which one rank has
   each element. pack, unpack: reorder a value so that the parts along `dim` that the members of the
   group hold in the layout `to` follow one another, and back. pack_pieces, unpack_pieces: from a
   part to the pieces that an exchange gives, by member, and from those that it got to a part. */
OP(slice,          "",                     "",             no_grad,            "", "", "",
   .cheap = CHEAP, .copies = true, .step = LOCAL_STEP, .suffix = "_cut")
OP(to_partial,     "",                     "",             no_grad,            "", "", "",
   .copies = true, .step = LOCAL_STEP)
OP(pack,           "",                     "",             no_grad,            "", "", "",
   .copies = true, .step = PACKING, .suffix = "_packed")
OP(unpack,         "",                     "",             no_grad,            "", "", "",
   .copies = true, .step = PACKING)
OP(pack_pieces,    "",                     "",             no_grad,            "", "", "",
   .copies = true, .step = PIECES_PACKING, .suffix = "_packed")
OP(unpack_pieces,  "",                     "",             no_grad,            "", "", "",
   .copies = true, .step = PIECES_PACKING)
/* Between the ranks of two stages of a pipeline, of the same other coordinates: stages.c. */
OP(send,      "", "", no_grad, "number from to", "", "")
OP(receive,   "", "", no_grad, "number from to", "", "", .type = "given", .cheap = COSTLY)
/* Calls a function once for each module of a list: outline.c. */
OP(loop,      "", "", no_grad, "", "", "", .calls = true)
/* The operations after it run when a collective is done that overlaps the operations between them:
   overlap.c. */
OP(await,     "", "", no_grad, "", "", "", .idle = true)
/* Calls a function for the module of one iteration of a loop, from elsewhere: loop_carried.c. */
OP(iteration, "", "", no_grad, "", "", "", .calls = true, .idle = true)
/* A product of matrices and what it does to its result before it stores it: epilogue.c. */
OP(epilogue,       "",                     "",             no_grad,            "", "", "",
   .composed = true)
/* Products that are one; their operands are side by side along the letter: merge_products.c. */
OP(products,       "",                     "",             no_grad,            "letter", "", "",
   .composed = true)
/* One kernel for several pointwise and reduce operations: fuse.c. */
OP(fused,          "",                     "",             no_grad,            "", "", "",
   .composed = true)
