// Of each expert, the sum over its rows of the products of their elements: [out, in].
void $name$($type_out$ *restrict out, const $type_a$ *restrict a, const $type_b$ *restrict b,
            const int *restrict counts)
{
  grouped_tn$suffix_a$$suffix_out$(out, a, b, counts, $e$, $n$, $d$);
}
