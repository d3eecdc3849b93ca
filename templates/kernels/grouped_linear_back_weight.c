// Of each expert, the sum over its rows of the products of their elements: [out, in].
void $name$(float *restrict out, const float *restrict a, const float *restrict b,
            const int *restrict counts)
{
  grouped_tn(out, a, b, counts, $e$, $n$, $d$);
}
