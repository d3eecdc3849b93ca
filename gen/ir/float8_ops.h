/* clang-format off */
/* float8_ops.h: a part of ops.h: what the operands of products in float8 are made by: float8.c. */
/* The largest magnitude; the factor with which numbers up to a fill the range of float8; 1 over it,
   which products take; and the numbers a times the factor b, rounded to float8. wide: E5M2, else
   E4M3. */
OP(amax_abs,       "...D->...:max",        "",             no_grad,            "", "fabsf($a)", "")
OP(float8_scale,   "...->...",             "",             no_grad,     "wide power",
   "float8_scale($a, $wide, $power)", "", .type = "f32", .cheap = COSTLY)
OP(inverse_scale,  "...->...", "", no_grad, "", "1 / $a", "", .cheap = COSTLY)
OP(to_float8,      "...,...->...",         "",             no_grad,            "wide",
   "to_float8($a * $b, $wide)", "", .type = "given")
