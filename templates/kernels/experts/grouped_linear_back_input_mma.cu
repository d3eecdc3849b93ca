// Each expert's rows times its matrix of [out, in], transposed, on the tensor cores. A block for
// each tile of an expert's rows and of the result's columns.
// launch: ($room$ / 128 + $e$) * (($d$ + 127) / 128), 256, 56832
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_weight$ *__restrict__ weight, const int *__restrict__ counts)
{
  static_assert(GROUP_BYTES<false, true> == 56832, "the launch has other room");
  DYNAMIC_SHARED($type_a$, tiles);
  constexpr int columns = $d$, terms = $n$, across = (columns + GROUP_TILE - 1) / GROUP_TILE;
  const int column = (int)blockIdx.x % across * GROUP_TILE;
  const group_rows at = rows_of_tile(counts, $e$, (int)blockIdx.x / across);
  if (!at.rows) return;
  multiply_tile<false, true>(
      out + at.first * columns + column, columns, {a + at.first * terms, terms, at.rows, terms},
      {weight + at.group * terms * columns + column, columns, columns - column, terms}, tiles);
}
