// A weight's numbers, from blocks of 8 bits.
void $name$(float *restrict out, const signed char *restrict table)
{
  const long blocks = (long)$n$ * $g$;
#pragma omp parallel for schedule(static)
  for (long i = 0; i < blocks; i++) {
    const struct weight_block *const from = (const struct weight_block *)table + i;
    const float scale = bf16_to_float(from->scale);
    for (int c = 0; c < BLOCK_NUMBERS; c++) out[i * BLOCK_NUMBERS + c] = scale * (float)from->q[c];
  }
}
