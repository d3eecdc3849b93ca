// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials, on the tensor
// cores. A block has some queries of a head, a warp some strips of 16 of them. It goes over the
// keys that they see, tile by tile: while it multiplies with keys, values are copied to shared
// memory, and while it multiplies with values, the next keys. Scores stay in registers. When a row
// meets a larger score, its sums so far are rescaled. The last queries come first: they see the
// most keys.

// launch: $b$ * $g$ * $r$ * (($q$ + $rows$ - 1) / $rows$), 2 * $rows$ / $strips$, $shared$
__global__ void $name$($type_q$ *__restrict__ out, float *__restrict__ lse,
                       const $type_q$ *__restrict__ q, const $type_q$ *__restrict__ k,
                       const $type_q$ *__restrict__ v, long first_q)
{
  typedef $type_q$ element;
  constexpr int STRIPS = $strips$, ROWS = $rows$, THREADS = 2 * ROWS / STRIPS, KEYS = $some_keys$;
  constexpr int DEPTH = WHOLE<$d$>, WIDTH = WHOLE<$e$>;
  constexpr float SCALE = $s$, SIZE = SCALE < 0 ? -SCALE : SCALE > 1e-30f ? SCALE : 1e-30f;
  constexpr float BITS = SIZE * 1.44269504f; // scores as powers of 2
  constexpr bool causal = $causal$;
  DYNAMIC_SHARED(element, some_q);
  element *const some_k = some_q + ROWS * PITCH<element, DEPTH>;
  element *const some_v = some_k + KEYS * PITCH<element, DEPTH>;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  constexpr int queries = $q$, keys = $k$, tiles = (queries + ROWS - 1) / ROWS;
  const int head = (int)blockIdx.x / tiles, first = (tiles - 1 - (int)blockIdx.x % tiles) * ROWS;
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

  copy_tile<element, ROWS, DEPTH, THREADS>(some_q, q, $step_q_q$, queries - first, $d$);
  copy_tile<element, KEYS, DEPTH, THREADS>(some_k, k, $step_k_k$, keys, $d$);
  end_copies();
  left_rows<element, STRIPS, DEPTH, $kept$> mine = {
      some_q + warp * 16 * STRIPS * PITCH<element, DEPTH>, {}};
  float sum[STRIPS][WIDTH / 8][4] = {}, most[STRIPS][2], total[STRIPS][2] = {};
  UNROLL_FOR (int m = 0; m < STRIPS; m++) most[m][0] = most[m][1] = -INFINITY;

  for (int key = 0; key < seen; key += KEYS) {
    const bool takes_part = row < queries && (!causal || key < row_at + 16 * STRIPS);
    float score[STRIPS][KEYS / 8][4] = {};
    wait_for_copies<0>();
    __syncthreads();
    copy_tile<element, KEYS, WIDTH, THREADS>(some_v, v + (long)key * $step_v_k$, $step_v_k$,
                                             keys - key, $e$);
    end_copies();
    if (key == 0) mine.keep();
    if (takes_part) add_product(score, mine, some_k);
    wait_for_copies<0>();
    __syncthreads();
    if (key + KEYS < seen)
      copy_tile<element, KEYS, DEPTH, THREADS>(some_k, k + (long)(key + KEYS) * $step_k_k$,
                                               $step_k_k$, keys - key - KEYS, $d$);
    end_copies();
    if (!takes_part) continue;
    const bool cut = key + KEYS > keys || (causal && key + KEYS > row_at + 1);
    UNROLL_FOR (int m = 0; m < STRIPS; m++) {
      UNROLL_FOR (int h = 0; h < 2; h++) {
        if (cut) {
          const int before = row_at + 16 * m + 8 * h + lane / 4 + 1 - key;
          const int visible = causal && before < keys - key ? before : keys - key;
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
        const float base = more == -INFINITY ? 0 : more * BITS;
        const float less = quick_exp2(most[m][h] * BITS - base);
        most[m][h] = more;
        total[m][h] *= less;
        UNROLL_FOR (int n = 0; n < KEYS / 8; n++) {
          UNROLL_FOR (int i = 2 * h; i < 2 * h + 2; i++) {
            score[m][n][i] = quick_exp2(score[m][n][i] * BITS - base);
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
