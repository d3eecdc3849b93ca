// Attention of one new token of each sequence to the tokens of a cache and to itself. A task has a
// group of heads that share keys and values. First it writes the new key and value after the
// cache's. Then it goes over the keys that the token sees, some at a time. When a head meets a
// larger score, its sums so far are rescaled.
enum { $name$_KEYS = 64 };

// Turns a head's scores into weights, and rescales its earlier sums to the same base.
static void $name$_weigh(float *restrict score, int keys, float *restrict most,
                         float *restrict total, float *restrict sum)
{
  float base = *most, part = 0;
#pragma omp simd reduction(max : base)
  for (int j = 0; j < keys; j++) base = score[j] > base ? score[j] : base;
  const float less = base == -INFINITY ? 1 : tile_exp(*most - base);
#pragma omp simd reduction(+ : part)
  for (int j = 0; j < keys; j++) {
    score[j] = score[j] == -INFINITY ? 0 : tile_exp(score[j] - base);
    part += score[j];
  }
  *total = *total * less + part;
  *most = base;
  for (int c = 0; c < $e$; c++) sum[c] *= less;
}

// Adds the values of some keys, by their weights.
static void $name$_add(float *restrict sum, const float *restrict weight, const float *restrict v,
                       int keys)
{
  enum { WIDTH = $e$ };
  int j = 0;
  for (; j + 4 <= keys; j += 4, v += 4 * WIDTH)
#pragma omp simd
    for (int c = 0; c < WIDTH; c++)
      sum[c] += weight[j] * v[c] + weight[j + 1] * v[WIDTH + c] + weight[j + 2] * v[2 * WIDTH + c] +
                weight[j + 3] * v[3 * WIDTH + c];
  for (; j < keys; j++, v += WIDTH)
    for (int c = 0; c < WIDTH; c++) sum[c] += weight[j] * v[c];
}

void $name$(float *restrict out, const $type_q$ *restrict q, const $type_k$ *restrict k,
            const $type_v$ *restrict v, $type_k_cache$ *restrict k_cache,
            $type_v_cache$ *restrict v_cache, const int *restrict slot, const int *restrict start)
{
  enum { HEADS = $r$, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long context = $c$, window = $window$;
#pragma omp parallel for schedule(static)
  for (long at = 0; at < (long)$b$ * $g$; at++) {
    // b: a sequence, g: a group of heads that share keys and values.
    const long b = at / $g$, g = at % $g$, here = start[b];
    const long line = ((long)slot[b] * $g$ + g) * context;
    const long end = slot[b] < 0 ? 0 : here < context ? here + 1 : context;
    const long sees = window && here + 1 > window ? here + 1 - window : 0;
    float query[HEADS][DEPTH], weight[HEADS][KEYS], sum[HEADS][WIDTH] = {{0}};
    float most[HEADS], total[HEADS] = {0}, room[KEYS * (DEPTH > WIDTH ? DEPTH : WIDTH)];
    if (here < end) {
      for (long c = 0; c < DEPTH; c++)
        TILE_STORE(k_cache[(line + here) * DEPTH + c],
                   $float_k$(k[b * $step_k_b$ + g * $step_k_g$ + c]));
      for (long c = 0; c < WIDTH; c++)
        TILE_STORE(v_cache[(line + here) * WIDTH + c],
                   $float_v$(v[b * $step_v_b$ + g * $step_v_g$ + c]));
    }
    for (int r = 0; r < HEADS; r++) {
      most[r] = -INFINITY;
      for (int c = 0; c < DEPTH; c++)
        query[r][c] = $s$ * $float_q$(q[b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + c]);
    }
    for (long key = sees; key < end; key += KEYS) {
      const int some = end - key < KEYS ? (int)(end - key) : KEYS;
      const float *keys = TILE_FLOATS(k_cache + (line + key) * DEPTH, room, some * DEPTH);
      for (int j = 0; j < some; j++, keys += DEPTH)
        for (int r = 0; r < HEADS; r++) {
          float dot = 0;
#pragma omp simd reduction(+ : dot)
          for (int c = 0; c < DEPTH; c++) dot += query[r][c] * keys[c];
          weight[r][j] = dot;
        }
      const float *values = TILE_FLOATS(v_cache + (line + key) * WIDTH, room, some * WIDTH);
      for (int r = 0; r < HEADS; r++) {
        $name$_weigh(weight[r], some, &most[r], &total[r], sum[r]);
        $name$_add(sum[r], weight[r], values, some);
      }
    }
    for (int r = 0; r < HEADS; r++) {
      const float part = total[r] > 0 ? 1 / total[r] : 0;
      for (int c = 0; c < WIDTH; c++)
        out[b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + c] = part * sum[r][c];
    }
  }
}
