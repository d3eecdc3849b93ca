// A weight's numbers, from NF4 blocks.
void $name$(float *restrict out, const unsigned char *restrict table, const float *restrict nested,
            long first_n, long first_g)
{
#pragma omp parallel for schedule(static)
  for (long n = 0; n < $n$; n++)
    for (long g = 0; g < $g$; g++) {
      const struct nf4_block *const block = (const struct nf4_block *)table + n * $g$ + g;
      const long at = $begin$L + (first_n + n) * $whole_g$ + first_g + g;
      const float size = nf4_size(block, nested, at);
      float *const to = out + (n * $g$ + g) * NF4_NUMBERS;
      for (int i = 0; i < NF4_NUMBERS; i++) to[i] = nf4_number(block, nested, size, i);
    }
}
