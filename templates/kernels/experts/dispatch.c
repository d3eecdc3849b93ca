// Each token's elements, times the place's weight, to the row of each of its places. The rows of
// the first expert come first, each expert's in the order of the tokens; places of experts that
// this rank does not have are left out.
void $name$($type_out$ *restrict out, const $type_a$ *restrict a, const int *restrict expert,
            const $type_weight$ *restrict weight, const int *restrict counts, long first_e)
{
  static _Thread_local long space[$b$ * $s$ * $k$], next[$e$], end[$e$];
  const long tokens = $b$ * $s$, places = $k$, width = $d$, experts = $e$;
  long *const row = space;
  rows_of_places(row, next, end, expert, tokens * places, counts, experts, first_e);
#pragma omp parallel for schedule(static) if (tokens * places * width >= 16384)
  for (long i = 0; i < tokens * places; i++) {
    if (row[i] < 0) continue;
    const $type_a$ *const from = a + i / places * width;
    $type_out$ *const to = out + row[i] * width;
    const float by = $float_weight$(weight[i]);
    for (long j = 0; j < width; j++) to[j] = $from_float_out$(by * $float_a$(from[j]));
  }
}
