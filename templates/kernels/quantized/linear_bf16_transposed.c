// Weights of bfloat16, [in, out]: see cpu/kernels/weights.h.
void $name$(float *restrict out, const float *restrict x, const $type_w$ *restrict w)
{
  linear_of_bf16_transposed(out, x, w, (long)$a$ * $b$, $n$, $k$);
}
