// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials, on the tensor
// cores. A block has some queries of a head, a warp some strips of 16 of them. It goes over the
// keys that they see, tile by tile: while it multiplies with keys, values are copied to shared
// memory, and while it multiplies with values, the next keys. Scores stay in registers. When a row
// meets a larger score, its sums so far are rescaled. The last queries come first: they see the
// most keys.

// launch: $b$ * $g$ * $r$ * (($q$ + $rows$ - 1) / $rows$), 2 * $rows$ / $strips$, $shared$
__global__ void $name$($type_q$ *__restrict__ out, float *__restrict__ lse,
                       const $type_q$ *__restrict__ q, const $type_q$ *__restrict__ k,
                       const $type_q$ *__restrict__ v,
#if $biased$
                       const float *__restrict__ bias,
#endif
#if $documents$
                       const int *__restrict__ document, const int *__restrict__ key_document,
#endif
#if $places$
                       const int *__restrict__ place, const int *__restrict__ key_place,
#endif
#if $sinks$
                       const float *__restrict__ sink,
#endif
#if $ring$
                       long first_k,
#endif
                       long first_q)
{
#if $ring$
  first_q -= first_k;
#endif
  typedef $type_q$ element;
  constexpr int STRIPS = $strips$, ROWS = $rows$, THREADS = 2 * ROWS / STRIPS, KEYS = $some_keys$;
  constexpr int DEPTH = WHOLE<$d$>, WIDTH = WHOLE<$e$>;
  // The sums of wide heads take most registers: what is unrolled beside them would spill.
  constexpr int COPIES = $kept$ ? ALL_ROUNDS : 1, ROUNDS = $kept$ ? ALL_ROUNDS : 2;
#if $softcap$ || $biased$ || $sinks$
  constexpr float FACTOR = $s$, SCALE = 1; // scores are scaled before anything else
#else
  constexpr float SCALE = $s$;
#endif
  constexpr float SIZE = SCALE < 0 ? -SCALE : SCALE > 1e-30f ? SCALE : 1e-30f;
  constexpr float BITS = SIZE * 1.44269504f; // scores as powers of 2
  constexpr bool causal = $causal$;
  DYNAMIC_SHARED(element, some_q);
  element *const some_k = some_q + ROWS * PITCH<element, DEPTH>;
  element *const some_v = some_k + KEYS * PITCH<element, DEPTH>;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  constexpr int queries = $q$, keys = $k$, tiles = (queries + ROWS - 1) / ROWS;
  const int head = (int)blockIdx.x / tiles, first = (tiles - 1 - (int)blockIdx.x % tiles) * ROWS;
  // b: a sample, g: a group of heads that share keys and values, r: a head of the group.
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + (long)first * $step_q_q$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$;
  lse += (long)head * queries;
  const int row = first + warp * 16 * STRIPS; // the warp's first
  const int row_at = (int)first_q + row;      // and its place among the keys
  const int end = (int)first_q + (first + ROWS < queries ? first + ROWS : queries);
  const int seen = causal && end < keys ? end : keys;
#if $window$
  const int far = (int)first_q + first - $window$ + 1, near = end - 1 + $window$;
  const int nearest = far > 0 ? far : 0, last = near < seen ? near : seen;
#else
  const int nearest = 0, last = seen;
#endif
#if $documents$
  document += b * queries;
  key_document += b * keys;
  const document_range documents =
      range_of(document + first, queries - first < ROWS ? queries - first : ROWS);
  const auto next = [&](int key) {
    while (key < last && !any_within(key_document + key, min(KEYS, keys - key), documents))
      key += KEYS;
    return key;
  };
  const int begin = next(nearest);
#else
  const int begin = nearest;
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$;
#endif

  copy_tile<element, ROWS, DEPTH, THREADS, COPIES>(some_q, q, $step_q_q$, queries - first, $d$);
  if (begin < last)
    copy_tile<element, KEYS, DEPTH, THREADS, COPIES>(some_k, k + (long)begin * $step_k_k$,
                                                     $step_k_k$, keys - begin, $d$);
  end_copies();
  left_rows<element, STRIPS, DEPTH, $kept$> mine = {
      some_q + warp * 16 * STRIPS * PITCH<element, DEPTH>, {}};
  float sum[STRIPS][WIDTH / 8][4] = {}, most[STRIPS][2], total[STRIPS][2] = {};
  UNROLL_FOR (int m = 0; m < STRIPS; m++) most[m][0] = most[m][1] = -INFINITY;
#if $sinks$
  // One of the four threads that share a row counts the sink.
  UNROLL_FOR (int m = 0; m < STRIPS; m++) {
    most[m][0] = most[m][1] = sink[head % ($g$ * $r$)];
    total[m][0] = total[m][1] = lane % 4 == 0 ? 1 : 0;
  }
#endif

  for (int key = begin, after; key < last; key = after) {
    const bool takes_part = row < queries && (!causal || key < row_at + 16 * STRIPS);
    after = key + KEYS;
#if $documents$
    after = next(after);
#endif
    float score[STRIPS][KEYS / 8][4] = {};
    wait_for_copies<0>();
    __syncthreads();
    copy_tile<element, KEYS, WIDTH, THREADS, COPIES>(some_v, v + (long)key * $step_v_k$, $step_v_k$,
                                                     keys - key, $e$);
    end_copies();
    if (key == begin) mine.keep();
    if (takes_part) add_product<ROUNDS>(score, mine, some_k);
    wait_for_copies<0>();
    __syncthreads();
    if (after < last)
      copy_tile<element, KEYS, DEPTH, THREADS, COPIES>(some_k, k + (long)after * $step_k_k$,
                                                       $step_k_k$, keys - after, $d$);
    end_copies();
    if (!takes_part) continue;
#if $window$
    const bool cut = true;
#else
    const bool cut = key + KEYS > keys || (causal && key + KEYS > row_at + 1);
#endif
    UNROLL_FOR (int m = 0; m < STRIPS; m++) {
      UNROLL_FOR (int h = 0; h < 2; h++) {
#if $softcap$ || $biased$ || $sinks$
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
            score[m][n][i] *= FACTOR;
#if $softcap$
            score[m][n][i] = $softcap$ * tanhf(score[m][n][i] / $softcap$);
#endif
#if $biased$
            const int query = row + 16 * m + 8 * h + lane / 4,
                      at = key + 8 * n + lane % 4 * 2 + i % 2;
            if (query < queries && at < keys)
              score[m][n][i] += bias[(long)query * $step_bias_q$ + at];
#endif
          }
        }
#endif
#if $documents$
        const int own = row + 16 * m + 8 * h + lane / 4;
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
            const int at = key + 8 * n + lane % 4 * 2 + i % 2;
            if (own < queries && at < keys && document[own] != key_document[at])
              score[m][n][i] = SCALE < 0 ? INFINITY : -INFINITY;
          }
        }
#endif
#if $places$
        const int asks = row + 16 * m + 8 * h + lane / 4;
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
            const int at = key + 8 * n + lane % 4 * 2 + i % 2;
            if (asks < queries && at < keys &&
                !is_seen(key_place[at], place[asks], $places$ == 1, $reach$))
              score[m][n][i] = SCALE < 0 ? INFINITY : -INFINITY;
          }
        }
#endif
        if (cut) {
          const int before = row_at + 16 * m + 8 * h + lane / 4 + 1 - key;
#if $window$
          const int ahead = causal ? before : before - 1 + $window$;
          const int visible = ahead < keys - key ? ahead : keys - key;
          UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
            UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++)
              if (8 * n + lane % 4 * 2 + i % 2 < before - $window$)
                score[m][n][i] = SCALE < 0 ? INFINITY : -INFINITY;
          }
#else
          const int visible = causal && before < keys - key ? before : keys - key;
#endif
          UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
            UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++)
              if (8 * n + lane % 4 * 2 + i % 2 >= visible)
                score[m][n][i] = SCALE < 0 ? INFINITY : -INFINITY;
          }
        }
        float more = most[m][h];
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
            if (SCALE < 0) score[m][n][i] = -score[m][n][i];
            more = fmaxf(more, score[m][n][i]);
          }
        }
        more = fmaxf(more, __shfl_xor_sync(0xffffffffu, more, 1));
        more = fmaxf(more, __shfl_xor_sync(0xffffffffu, more, 2));
#if $softcap$ || $biased$ || $sinks$
        const float base = more == -INFINITY ? 0 : more;
        const float less = quick_exp2((most[m][h] - base) * BITS);
#else
        const float base = more == -INFINITY ? 0 : more * BITS;
        const float less = quick_exp2(most[m][h] * BITS - base);
#endif
        most[m][h] = more;
        total[m][h] *= less;
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
#if $softcap$ || $biased$ || $sinks$
            score[m][n][i] = quick_exp2((score[m][n][i] - base) * BITS);
#else
            score[m][n][i] = quick_exp2(score[m][n][i] * BITS - base);
#endif
            total[m][h] += score[m][n][i];
          }
        }
        UNROLL_FOR (int n = 0; n < WIDTH / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) sum[m][n][i] *= less;
        }
      }
    }
    add_product_of_sums<element, WIDTH>(sum, score, some_v);
  }

  UNROLL_FOR (int m = 0; m < STRIPS; m++) {
    UNROLL_FOR (int h = 0; h < 2; h++) {
      total[m][h] += __shfl_xor_sync(0xffffffffu, total[m][h], 1);
      total[m][h] += __shfl_xor_sync(0xffffffffu, total[m][h], 2);
      const int at = row + 16 * m + 8 * h + lane / 4;
      if (at >= queries) continue;
      const float part = total[m][h] > 0 ? 1 / total[m][h] : 0;
      if (lane % 4 == 0) lse[at] = most[m][h] * SIZE + logf(total[m][h]);
      element *const to = out + (long)at * $step_out_q$ + lane % 4 * 2;
      UNROLL_FOR (int n = 0; n < WIDTH / 8; n++) {
        if (8 * n < $e$)
          store_two(to + 8 * n, part * sum[m][n][2 * h], part * sum[m][n][2 * h + 1]);
      }
    }
  }
}
