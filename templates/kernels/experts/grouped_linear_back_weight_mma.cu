// Of each expert, the sum over its rows of the products of their elements: [out, in], on the tensor
// cores. A block for each expert and each tile of the result.
// launch: $e$ * (($n$ + 127) / 128) * (($d$ + 127) / 128), 256, 52224
__global__ void $name$($type_out$ *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_b$ *__restrict__ b, const int *__restrict__ counts)
{
  static_assert(GROUP_BYTES<true, true> == 52224, "the launch has other room");
  DYNAMIC_SHARED($type_a$, tiles);
  constexpr int lines = $n$, columns = $d$, across = (columns + GROUP_TILE - 1) / GROUP_TILE;
  constexpr int tiles_of_one = (lines + GROUP_TILE - 1) / GROUP_TILE * across;
  const int e = (int)blockIdx.x / tiles_of_one, tile = (int)blockIdx.x % tiles_of_one;
  const int line = tile / across * GROUP_TILE, column = tile % across * GROUP_TILE;
  const long first = first_of_group(counts, e);
  multiply_tile<true, true>(out + ((long)e * lines + line) * columns + column, columns,
                            {a + first * lines + line, lines, lines - line, counts[e]},
                            {b + first * columns + column, columns, columns - column, counts[e]},
                            tiles);
}
