// Attention of new tokens to the rank's parts of a cache and to those of the tokens themselves that
// are in them. First the new keys and values are written where they belong. Then a task has, for
// one part, some rows of a group of heads that share keys and values: a row is a new token of a
// head. It goes over the keys of the part that they see, tile by tile. When a row meets a larger
// score, its sums so far are rescaled. In a tile of scores the rows of one key are contiguous.
enum { $name$_ROWS = 64, $name$_KEYS = 64 };

void $name$(float *restrict out, float *restrict logs, const $type_q$ *restrict q,
            const $type_k$ *restrict k, const $type_v$ *restrict v,
            $type_k_cache$ *restrict k_cache, $type_v_cache$ *restrict v_cache,
            const int *restrict slot, const int *restrict start, long first_p)
{
  enum { ROWS = $name$_ROWS, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long parts = $p$, tokens = $t$, length = $c$, window = $window$, rows = tokens * $r$;
  const long groups = (long)$b$ * $g$, tiles = (rows + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static)
  for (long at = 0; at < groups * tokens; at++) {
    // b: a sequence, g: a group of heads that share keys and values.
    const long b = at / tokens / $g$, g = at / tokens % $g$, t = at % tokens;
    const long token = start[b] + t, part = token / length - first_p;
    if (slot[b] < 0 || part < 0 || part >= parts) continue;
    const long place = (((long)slot[b] * parts + part) * $g$ + g) * length + token % length;
    for (long c = 0; c < DEPTH; c++)
      TILE_STORE(k_cache[place * DEPTH + c],
                 $float_k$(k[b * $step_k_b$ + g * $step_k_g$ + t * $step_k_t$ + c]));
    for (long c = 0; c < WIDTH; c++)
      TILE_STORE(v_cache[place * WIDTH + c],
                 $float_v$(v[b * $step_v_b$ + g * $step_v_g$ + t * $step_v_t$ + c]));
  }
#pragma omp parallel for schedule(dynamic)
  for (long task = 0; task < parts * groups * tiles; task++) {
    const long part = task / tiles / groups, tile = task % (groups * tiles);
    const long b = tile / tiles / $g$, g = tile / tiles % $g$, first = tile % tiles * ROWS;
    const int here = rows - first < ROWS ? (int)(rows - first) : ROWS;
    const long begin = start[b] - (first_p + part) * length; // the first token, from the part's
    const long last = begin + (first + here - 1) / $r$ + 1;
    const long end = slot[b] < 0 ? 0 : last < length ? last : length;
    const long sees = window ? begin + first / $r$ + 1 - window : 0;
    float transposed[DEPTH][ROWS] = {{0}}, score[KEYS][ROWS], sum[ROWS][WIDTH] = {{0}};
    float most[ROWS], total[ROWS] = {0}, room[KEYS * (DEPTH > WIDTH ? DEPTH : WIDTH)];
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
      const long place = (((long)slot[b] * parts + part) * $g$ + g) * length + key;
      tile_product(score[0], ROWS, TILE_FLOATS(k_cache + place * DEPTH, room, some * DEPTH), DEPTH,
                   1, transposed[0], ROWS, some, wide, DEPTH, false);
      for (int i = 0; i < here; i++) {
        const long newest = begin + (first + i) / $r$ - key;
        for (int j = 0; j < some; j++)
          if (j > newest || (window && j + window <= newest)) score[j][i] = -INFINITY;
      }
      tile_weigh(score[0], ROWS, here, some, most, total, sum[0], WIDTH);
      tile_product(sum[0], WIDTH, score[0], 1, ROWS,
                   TILE_FLOATS(v_cache + place * WIDTH, room, some * WIDTH), WIDTH, here, WIDTH,
                   some, true);
    }
    for (int i = 0; i < here; i++) {
      const long t = (first + i) / $r$, r = (first + i) % $r$;
      const float share = total[i] > 0 ? 1 / total[i] : 0;
      logs[((part * groups + b * $g$ + g) * $r$ + r) * tokens + t] =
          total[i] > 0 ? most[i] + logf(total[i]) : -INFINITY;
      for (int c = 0; c < WIDTH; c++)
        out[part * $step_out_p$ + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ +
            t * $step_out_t$ + c] = share * sum[i][c];
    }
  }
}
