// A weight's numbers, from NF4 blocks: a thread for each.
// launch: ($n$ * $g$ * 64 + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const unsigned char *__restrict__ table,
                       const float *__restrict__ nested, long first_n, long first_g)
{
  const long i = (long)blockIdx.x * 256 + threadIdx.x, k = i / NF4_NUMBERS, n = k / $g$;
  const struct nf4_block *const block = (const struct nf4_block *)table + k;
  if (n >= $n$) return;
  const long at = $begin$L + (first_n + n) * $whole_g$ + first_g + k % $g$;
  const float size = nf4_size(block, nested, at);
  out[i] = nf4_number(block, nested, size, (int)(i % NF4_NUMBERS));
}
