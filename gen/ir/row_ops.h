/* clang-format off */
/* row_ops.h: a part of ops.h: operators for rows by expert.

   Token s of sequence b has k places, each with an expert, which the second input names. Values [e,
   b, s, k, d] are stored by rows: see rows.c. A rank has only the rows of its own experts. */

/* The number of places of each expert. $s: the bound: a rank has room for $s times the rows in
   balance of its experts; 0: for all. */
OP(count_places,   "bsk->e@:i32",          "",             no_grad,            "", "", "")
/* The token's elements, times the place's weight c, to the row of each of its places; and the sum
   over a token's places of its rows, times their weights, in float32. Each is the other's
   gradient. */
OP(dispatch,       "bsd,bsk,bsk,e+bsk->e@bskd", "a|c",          dispatch_grad,      "", "", "",
   .type = "a")
OP(combine,        "e@bskd,bsk,bsk,e+bsk->bsd", "a|c",          combine_grad,       "", "", "",
   .type = "f32")
/* The product of each place's row with its token's a: the gradient of the weights. */
OP(combine_back,   "bsd,bsk,e@bskd,e+bsk->bsk", "a|c",          no_grad,            "", "", "",
   .type = "f32")
/* The product of each row with its expert's matrix, of [out, in]; and its gradients. */
OP(grouped_linear, "ebskd,end,e+bsk->ebskn", "a|b", grouped_linear_grad, "", "", "bskdn",
   .type = "a")
OP(grouped_linear_back_input, "ebskn,end,e+bsk->ebskd", "a|b", no_grad, "", "", "bskdn",
   .type = "a")
OP(grouped_linear_back_weight, "ebskn,ebskd,e+bsk->end", "a|b", no_grad, "", "", "bskdn",
   .type = "a")
#include "ir/float8_ops.h"
