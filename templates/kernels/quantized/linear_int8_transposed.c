// Weights in blocks of 8 bits, [in, out]: see cpu/kernels/weights.h.
void $name$(float *restrict out, const float *restrict x, const signed char *restrict w)
{
  linear_of_int8_transposed(out, x, (const struct weight_block *)w, (long)$a$ * $b$, $g$, $k$);
}
