// Each expert's rows times its matrix of [out, in], transposed.
void $name$(float *restrict out, const float *restrict a, const float *restrict weight,
            const int *restrict counts)
{
  grouped_nn(out, a, weight, counts, $e$, $d$, $n$);
}
