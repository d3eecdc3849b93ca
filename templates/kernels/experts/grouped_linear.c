// Each expert's rows times its matrix of [out, in].
void $name$($type_out$ *restrict out, const $type_a$ *restrict a,
            const $type_weight$ *restrict weight, const int *restrict counts)
{
  grouped_nt$suffix_a$(out, a, weight, counts, $e$, $n$, $d$);
}
