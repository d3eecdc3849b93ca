// Each expert's rows times its matrix of [out, in], on the tensor cores. A block for each tile of
// an expert's rows and of the result's columns.
// launch: ($room$ / 128 + $e$) * (($n$ + 127) / 128), 256, 61440
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_weight$ *__restrict__ weight, const int *__restrict__ counts)
{
  static_assert(GROUP_BYTES<false, false> == 61440, "the launch has other room");
  DYNAMIC_SHARED($type_a$, tiles);
  constexpr int columns = $n$, terms = $d$, across = (columns + GROUP_TILE - 1) / GROUP_TILE;
  const int column = (int)blockIdx.x % across * GROUP_TILE;
  const group_rows at = rows_of_tile(counts, $e$, (int)blockIdx.x / across);
  if (!at.rows) return;
  multiply_tile<false, false>(
      out + at.first * columns + column, columns, {a + at.first * terms, terms, at.rows, terms},
      {weight + (at.group * columns + column) * terms, terms, columns - column, terms}, tiles);
}
