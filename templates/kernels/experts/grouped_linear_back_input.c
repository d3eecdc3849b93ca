// Each expert's rows times its matrix of [out, in], transposed.
void $name$($type_out$ *restrict out, const $type_a$ *restrict a,
            const $type_weight$ *restrict weight, const int *restrict counts)
{
  grouped_nn$suffix_a$(out, a, weight, counts, $e$, $d$, $n$);
}
