// Each expert's rows times its matrix of [out, in].
void $name$(float *restrict out, const float *restrict a, const float *restrict weight,
            const int *restrict counts)
{
  grouped_nt(out, a, weight, counts, $e$, $n$, $d$);
}
