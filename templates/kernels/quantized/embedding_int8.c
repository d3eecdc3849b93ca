// Rows of a table of blocks of 8 bits, as floats. Tokens whose rows are on other ranks give zeros.
void $name$(float *restrict out, const signed char *restrict table, const int *restrict token,
            long first_v)
{
  const long tokens = (long)$a$ * $b$, rows = $v$, blocks = $g$;
  for (long i = 0; i < tokens; i++) {
    const long row = token[i] - first_v;
    for (long g = 0; g < blocks; g++) {
      float *const to = out + (i * blocks + g) * BLOCK_NUMBERS;
      const struct weight_block *const from = (const struct weight_block *)table + row * blocks + g;
      for (int c = 0; c < BLOCK_NUMBERS; c++)
        to[c] = row < 0 || row >= rows ? 0 : bf16_to_float(from->scale) * (float)from->q[c];
    }
  }
}
