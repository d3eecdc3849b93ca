/* ops.h: the table of operators. One row for each; every other list expands from here.

     OP(name, dimensions, linear, gradient, expression)

   dimensions   which dimension of each input is which of the output, so how the operator shards:
     "equation"   each operation brings its own, as an einsum does: "mk,nk->mn". A letter is a
                  dimension. A letter may be sharded: then every operand that has it is sharded on
                  it, the others are replicated, and an output that lacks it is a partial sum.
     "pointwise"  the inputs are broadcast to the output's shape; equal places have equal letters.
     "reduce"     as pointwise, but the first input's dimensions in `dims` vanish from the output
                  (or stay with size 1 where `keep` says so): sharded, they leave a partial sum.
     "create"     no inputs: any rank can make any part.
     "-"          no rule: the operation itself says where its values lie.
   linear       which inputs may be pending sums, P(sum), leaving the output one:
     NEVER        none        relu(a + b) is not relu(a) + relu(b)
     EACH         any one of them, while the others are replicated       matmul, mul
     TOGETHER     all of them at once                                    add, sub
     FIRST        only the first, while the others are replicated        relu_grad
   gradient     the function in grad.c that writes the backward operations, or NONE_GRAD
   expression   of a pointwise or reduce operator: the value of one element, in C. $a $b $c are the
                inputs' elements and $s the operation's scalar. A reduction sums its expression and
                multiplies the sum by the scalar.  */

OP(matmul,         "equation",  EACH,     matmul_grad,         "")
OP(add,            "pointwise", TOGETHER, add_grad,            "$a + $b")
OP(sub,            "pointwise", TOGETHER, sub_grad,            "$a - $b")
OP(mul,            "pointwise", EACH,     mul_grad,            "$a * $b")
OP(div,            "pointwise", FIRST,    div_grad,            "$a / $b")
OP(neg,            "pointwise", FIRST,    neg_grad,            "-$a")
OP(scale,          "pointwise", FIRST,    scale_grad,          "$s * $a")
OP(relu,           "pointwise", NEVER,    relu_grad,           "$a < 0 ? 0 : $a")
OP(relu_back,      "pointwise", FIRST,    no_grad,             "$b <= 0 ? 0 : $a")
OP(sigmoid,        "pointwise", NEVER,    sigmoid_grad,        "1 / (1 + expf(-$a))")
OP(sigmoid_back,   "pointwise", FIRST,    no_grad,             "$a * $b * (1 - $b)")
OP(tanh,           "pointwise", NEVER,    tanh_grad,           "tanhf($a)")
OP(tanh_back,      "pointwise", FIRST,    no_grad,             "$a * (1 - $b * $b)")
OP(silu,           "pointwise", NEVER,    silu_grad,           "$a / (1 + expf(-$a))")
OP(silu_back,      "pointwise", FIRST,    no_grad,
   "$a * (1 + $b * (1 - 1 / (1 + expf(-$b)))) / (1 + expf(-$b))")
OP(exp,            "pointwise", NEVER,    exp_grad,            "expf($a)")
OP(square,         "pointwise", NEVER,    square_grad,         "$a * $a")
OP(expand,         "pointwise", FIRST,    expand_grad,         "$s * $a")
OP(sum,            "reduce",    FIRST,    sum_grad,            "$a")
/* The variance about a mean that is given, $s = 1 / (n - 1). The mean must be the first input's:
   then its own gradient is zero, which is why variance_grad leaves none for it. */
OP(variance,       "reduce",    NEVER,    variance_grad,       "($a - $b) * ($a - $b)")
OP(variance_back,  "pointwise", FIRST,    no_grad,             "2 * $s * $a * ($b - $c)")
OP(full,           "create",    NEVER,    no_grad,             "$s")
/* w, its gradient, and AdamW's two averages: writes w and the averages in place. */
OP(adamw,          "-",         NEVER,    no_grad,             "")
OP(sgd,            "-",         NEVER,    no_grad,             "")
/* From one layout to another. The plan and propagate ask for it, the pass of its name makes
   it collectives and local work. */
OP(redistribute,   "-",         NEVER,    redistribute_grad,   "")
/* What a redistribution becomes: on local shapes, over one group of ranks. */
OP(all_reduce,     "-",         NEVER,    no_grad,             "")
OP(all_gather,     "-",         NEVER,    no_grad,             "")
OP(reduce_scatter, "-",         NEVER,    no_grad,             "")
OP(all_to_all,     "-",         NEVER,    no_grad,             "")
/* slice: this rank's part. to_partial: a whole value as a sum of which the first rank has all.
   pack, unpack: reorder a value so that the parts along `dim` lie one after the other, and back. */
OP(slice,          "-",         NEVER,    no_grad,             "")
OP(to_partial,     "-",         NEVER,    no_grad,             "")
OP(pack,           "-",         NEVER,    no_grad,             "")
OP(unpack,         "-",         NEVER,    no_grad,             "")
/* Calls a function once for each module of a list: outline.c. */
OP(loop,           "-",         NEVER,    no_grad,             "")
/* One kernel for several pointwise and reduce operations: fuse.c. */
OP(fused,          "-",         NEVER,    no_grad,             "")
