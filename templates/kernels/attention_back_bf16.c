// From the gradient of attention's output those of q, k and v, of bfloat16, computed as floats. The
// weights are computed anew from the logarithms of their rows' sums; a row's mean of the gradients
// of its weights is taken off from each. Sums are rounded once, when they are whole: those of some
// keys go over all queries that see them, those of some queries over all keys that they see, so
// that weights are computed for both. Scores lie by keys, the queries of one side by side.
enum { $name$_QUERIES = 64, $name$_KEYS = 64 };

static void $name$_widen(float *restrict to, const bf16 *restrict row, long step, int rows,
                         int width)
{
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < width; c++) to[i * width + c] = bf16_to_float(row[i * step + c]);
}

static void $name$_narrow(bf16 *restrict row, long step, const float *restrict from, int rows,
                          int width)
{
  for (int i = 0; i < rows; i++)
    for (int c = 0; c < width; c++) row[i * step + c] = float_to_bf16(from[i * width + c]);
}

// Some queries of a head: their rows, the same as columns (those of q times the scale, and zero
// beyond those that are here), and what their weights are computed with.
struct $name$_queries {
  long first; // among the head's
  int here;
  float q[$name$_QUERIES][$d$], dout[$name$_QUERIES][$e$];
  float turned[$d$][$name$_QUERIES], turned_dout[$e$][$name$_QUERIES];
  float log_sum[$name$_QUERIES], mean[$name$_QUERIES];
};

static void $name$_turn(float (*restrict turned)[$name$_QUERIES], const float *restrict row,
                        int here, int width, float factor)
{
  for (int i = 0; i < $name$_QUERIES; i++)
    for (int c = 0; c < width; c++) turned[c][i] = i < here ? factor * row[i * width + c] : 0;
}

// The sum of the products of n pairs, in 16 parts.
static float $name$_dot(const float *restrict x, const bf16 *restrict y, int n)
{
  float part[16] = {0}, sum = 0;
  for (int c = 0; c < n / 16 * 16; c += 16)
    for (int i = 0; i < 16; i++) part[i] += x[c + i] * bf16_to_float(y[c + i]);
  for (int c = n / 16 * 16; c < n; c++) sum += x[c] * bf16_to_float(y[c]);
  for (int i = 0; i < 16; i++) sum += part[i];
  return sum;
}

static void $name$_take(struct $name$_queries *to, long first, const bf16 *q, const bf16 *dout,
                        const bf16 *out, const float *lse)
{
  const long left = $q$ - first;
  to->first = first;
  to->here = left < $name$_QUERIES ? (int)left : $name$_QUERIES;
  $name$_widen(to->q[0], q + first * $step_q_q$, $step_q_q$, to->here, $d$);
  $name$_widen(to->dout[0], dout + first * $step_dout_q$, $step_dout_q$, to->here, $e$);
  $name$_turn(to->turned, to->q[0], to->here, $d$, $s$);
  $name$_turn(to->turned_dout, to->dout[0], to->here, $e$, 1);
  for (int i = 0; i < $name$_QUERIES; i++) {
    const float known = i < to->here ? lse[first + i] : -INFINITY;
    to->mean[i] = i < to->here ? $name$_dot(to->dout[i], out + (first + i) * $step_out_q$, $e$) : 0;
    to->log_sum[i] = known == -INFINITY ? INFINITY : known; // a query that sees nothing
  }
}

// The weights of some keys, and the gradients of their scores. `behind`: by how much the first of
// the keys lies behind the first of the queries.
static void $name$_weigh(float (*restrict score)[$name$_QUERIES],
                         float (*restrict slope)[$name$_QUERIES], const struct $name$_queries *by,
                         const float *some_k, const float *some_v, int keys, long behind)
{
  enum { QUERIES = $name$_QUERIES };
  const bool causal = $causal$;
  tile_product(score[0], QUERIES, some_k, $d$, 1, by->turned[0], QUERIES, keys, QUERIES, $d$,
               false);
  tile_product(slope[0], QUERIES, some_v, $e$, 1, by->turned_dout[0], QUERIES, keys, QUERIES, $e$,
               false);
  for (int j = 0; causal && j < keys; j++) {
    const long before = behind + j, blind = before < QUERIES ? before : QUERIES;
    for (long i = 0; i < blind; i++) score[j][i] = -INFINITY; // these do not see the key
  }
  for (int j = 0; j < keys; j++)
    for (int i = 0; i < QUERIES; i++) {
      score[j][i] = tile_exp(score[j][i] - by->log_sum[i]);
      slope[j][i] = $s$ * score[j][i] * (slope[j][i] - by->mean[i]);
    }
}

void $name$(bf16 *restrict dq, bf16 *restrict dk, bf16 *restrict dv, const bf16 *restrict dout,
            const bf16 *restrict q, const bf16 *restrict k, const bf16 *restrict v,
            const bf16 *restrict out, const float *restrict lse, long first_q, long first_k)
{
  enum { QUERIES = $name$_QUERIES, KEYS = $name$_KEYS, DEPTH = $d$, WIDTH = $e$ };
  const long groups = (long)$b$ * $g$, heads = groups * $r$, queries = $q$, keys = $k$;
  const long tiles = (queries + QUERIES - 1) / QUERIES, key_tiles = (keys + KEYS - 1) / KEYS;
  const bool causal = $causal$;

#pragma omp parallel for schedule(dynamic) if (heads * queries * keys >= 16384)
  for (long tile = 0; tile < groups * key_tiles; tile++) {
    const long group = tile / key_tiles, key = tile % key_tiles * KEYS;
    const long b = group / $g$, g = group % $g$;
    const int some = keys - key < KEYS ? (int)(keys - key) : KEYS;
    float some_k[KEYS][DEPTH], some_v[KEYS][WIDTH];
    float sum_k[KEYS][DEPTH] = {{0}}, sum_v[KEYS][WIDTH] = {{0}};
    float score[KEYS][QUERIES], slope[KEYS][QUERIES];
    struct $name$_queries by;
    $name$_widen(some_k[0], k + b * $step_k_b$ + g * $step_k_g$ + key * $step_k_k$, $step_k_k$,
                 some, DEPTH);
    $name$_widen(some_v[0], v + b * $step_v_b$ + g * $step_v_g$ + key * $step_v_k$, $step_v_k$,
                 some, WIDTH);
    for (long n = 0; n < $r$ * tiles; n++) {
      const long r = n / tiles, first = n % tiles * QUERIES;
      const long behind = first_k + key - first_q - first;
      if (causal && behind >= QUERIES) continue;
      $name$_take(&by, first, q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$,
                  dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$,
                  out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$,
                  lse + (group * $r$ + r) * queries);
      $name$_weigh(score, slope, &by, some_k[0], some_v[0], some, behind);
      tile_product(sum_v[0], WIDTH, score[0], QUERIES, 1, by.dout[0], WIDTH, some, WIDTH, by.here,
                   true);
      tile_product(sum_k[0], DEPTH, slope[0], QUERIES, 1, by.q[0], DEPTH, some, DEPTH, by.here,
                   true);
    }
    $name$_narrow(dk + b * $step_dk_b$ + g * $step_dk_g$ + key * $step_dk_k$, $step_dk_k$, sum_k[0],
                  some, DEPTH);
    $name$_narrow(dv + b * $step_dv_b$ + g * $step_dv_g$ + key * $step_dv_k$, $step_dv_k$, sum_v[0],
                  some, WIDTH);
  }

#pragma omp parallel for schedule(dynamic) if (heads * queries * keys >= 16384)
  for (long tile = 0; tile < heads * tiles; tile++) {
    const long head = tile / tiles, b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
    const long first = tile % tiles * QUERIES;
    float some_k[KEYS][DEPTH], some_v[KEYS][WIDTH], sum[QUERIES][DEPTH] = {{0}};
    float score[KEYS][QUERIES], slope[KEYS][QUERIES];
    struct $name$_queries by;
    $name$_take(&by, first, q + b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$,
                dout + b * $step_dout_b$ + g * $step_dout_g$ + r * $step_dout_r$,
                out + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$, lse + head * queries);
    const long seen = first_q + first + by.here - first_k,
               last = causal && seen < keys ? seen : keys;
    for (long key = 0; key < last; key += KEYS) {
      const int some = last - key < KEYS ? (int)(last - key) : KEYS;
      $name$_widen(some_k[0], k + b * $step_k_b$ + g * $step_k_g$ + key * $step_k_k$, $step_k_k$,
                   some, DEPTH);
      $name$_widen(some_v[0], v + b * $step_v_b$ + g * $step_v_g$ + key * $step_v_k$, $step_v_k$,
                   some, WIDTH);
      $name$_weigh(score, slope, &by, some_k[0], some_v[0], some, first_k + key - first_q - first);
      tile_product(sum[0], DEPTH, slope[0], 1, QUERIES, some_k[0], DEPTH, by.here, DEPTH, some,
                   true);
    }
    $name$_narrow(dq + b * $step_dq_b$ + g * $step_dq_g$ + r * $step_dq_r$ + first * $step_dq_q$,
                  $step_dq_q$, sum[0], by.here, DEPTH);
  }
}
