// Attention of new tokens to the tokens of a cache and to each other, where a value is the first
// numbers of its key. First the new keys are written after the cache's. Then a task has some rows
// of a group of heads that share keys: a row is a new token of a head. It goes over the keys that
// they see, tile by tile. When a row meets a larger score, its sums so far are rescaled. In a tile
// of scores the rows of one key are contiguous. One token of each sequence has fewer rows: then
// more tasks share them.
enum { $name$_ROWS = $t$ == 1 ? 16 : 64, $name$_KEYS = 64 };

void $name$(float *restrict out, const $type_q$ *restrict q, const $type_k$ *restrict k,
            $type_cache$ *restrict cache, const int *restrict slot, const int *restrict start)
{
  enum { ROWS = $name$_ROWS, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long tokens = $t$, context = $c$, window = $window$, rows = tokens * $r$;
  const long groups = (long)$b$ * $g$, tiles = (rows + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static)
  for (long at = 0; at < groups * tokens; at++) {
    // b: a sequence, g: a group of heads that share keys.
    const long b = at / tokens / $g$, g = at / tokens % $g$, t = at % tokens;
    if (slot[b] < 0 || start[b] + t >= context) continue;
    const long place = ((long)slot[b] * $g$ + g) * context + start[b] + t;
    for (long c = 0; c < DEPTH; c++)
      TILE_STORE(cache[place * DEPTH + c],
                 $float_k$(k[b * $step_k_b$ + g * $step_k_g$ + t * $step_k_t$ + c]));
  }
#pragma omp parallel for schedule(dynamic)
  for (long tile = 0; tile < groups * tiles; tile++) {
    const long b = tile / tiles / $g$, g = tile / tiles % $g$, first = tile % tiles * ROWS;
    const int here = rows - first < ROWS ? (int)(rows - first) : ROWS;
    const long begin = start[b], last = begin + (first + here - 1) / $r$ + 1;
    const long end = slot[b] < 0 ? 0 : last < context ? last : context;
    const long sees = window ? begin + first / $r$ + 1 - window : 0;
    float transposed[DEPTH][ROWS] = {{0}}, score[KEYS][ROWS], sum[ROWS][WIDTH] = {{0}};
    float most[ROWS], total[ROWS] = {0}, room[KEYS * DEPTH];
    for (int i = 0; i < here; i++) {
      const long t = (first + i) / $r$, r = (first + i) % $r$;
      most[i] = -INFINITY;
      for (int c = 0; c < DEPTH; c++)
        transposed[c][i] =
            $s$ *
            $float_q$(q[b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + t * $step_q_t$ + c]);
    }
    for (long key = sees > 0 ? sees : 0; key < end; key += KEYS) {
      const int some = end - key < KEYS ? (int)(end - key) : KEYS;
      const int wide = (here + LANES - 1) / LANES * LANES;
      const long place = ((long)slot[b] * $g$ + g) * context + key;
      const float *keys = TILE_FLOATS(cache + place * DEPTH, room, some * DEPTH);
      tile_product(score[0], ROWS, keys, DEPTH, 1, transposed[0], ROWS, some, wide, DEPTH, false);
      for (int i = 0; i < here; i++) {
        const long newest = begin + (first + i) / $r$ - key;
        for (int j = 0; j < some; j++)
          if (j > newest || (window && j + window <= newest)) score[j][i] = -INFINITY;
      }
      tile_weigh(score[0], ROWS, here, some, most, total, sum[0], WIDTH);
      tile_product(sum[0], WIDTH, score[0], 1, ROWS, keys, DEPTH, here, WIDTH, some, true);
    }
    for (int i = 0; i < here; i++) {
      const long t = (first + i) / $r$, r = (first + i) % $r$;
      const float part = total[i] > 0 ? 1 / total[i] : 0;
      for (int c = 0; c < WIDTH; c++)
        out[b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + t * $step_out_t$ + c] =
            part * sum[i][c];
    }
  }
}
