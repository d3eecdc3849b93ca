// softmax(scale q k^T) v, and the logarithm of the sum of each row's exponentials. A block has 64
// queries of a head and goes over the keys that they see, 64 at a time; a thread has 4 of each.
// When a row meets a larger score, its sums so far are rescaled. The last queries come first: they
// see the most keys.

// launch: $b$ * $g$ * $r$ * (($q$ + 63) / 64), 256
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
  __shared__ __align__(16) square_row room[SQUARE], weight[SQUARE];
  const long queries = $q$, keys = $k$, tiles = (queries + SQUARE - 1) / SQUARE;
  const bool causal = $causal$;
  const float scale = $s$;
  const long head = (long)blockIdx.x / tiles;
  const long first = (tiles - 1 - (long)blockIdx.x % tiles) * SQUARE;
  // b: a sample, g: a group of heads that share keys and values, r: a head of the group.
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$;
  const int row = (int)threadIdx.x / 16 * 4, column = (int)threadIdx.x % 16 * 4;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + first * $step_q_q$;
  k += b * $step_k_b$ + g * $step_k_g$;
  v += b * $step_v_b$ + g * $step_v_g$;
  out += b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + first * $step_out_q$;
  lse += head * queries + first;
  const long here = queries - first < SQUARE ? queries - first : SQUARE;
  const long seen = causal && first_q + first + here < keys ? first_q + first + here : keys;
#if $window$
  const long far = first_q + first - $window$ + 1, near = first_q + first + here - 1 + $window$;
  const long begin = far > 0 ? far : 0, end = near < seen ? near : seen;
#else
  const long begin = 0, end = seen;
#endif
  float most[4], total[4] = {}, sum[($e$ + 63) / 64][4][4] = {};
  for (int i = 0; i < 4; i++) most[i] = -INFINITY;
#if $sinks$
  for (int i = 0; i < 4; i++) most[i] = sink[head % ($g$ * $r$)], total[i] = 1;
#endif
#if $biased$
  bias += b * $step_bias_b$ + g * $step_bias_g$ + r * $step_bias_r$ + first * $step_bias_q$;
#endif
#if $documents$
  document += b * queries + first;
  key_document += b * keys;
  const document_range documents = range_of(document, (int)here);
#endif
#if $places$
  place += first;
  const document_range places = range_of(place, (int)here);
#endif

  for (long key = begin; key < end; key += SQUARE) {
#if $documents$
    if (!any_within(key_document + key, keys - key < SQUARE ? (int)(keys - key) : SQUARE,
                    documents))
      continue;
#endif
#if $places$
    if (!any_seen(key_place + key, keys - key < SQUARE ? (int)(keys - key) : SQUARE, places,
                  $places$ == 1, $reach$))
      continue;
#endif
    float score[4][4] = {};
    add_rows_by_rows<element>(score, {q, $step_q_q$, here, $d$},
                              {k + key * $step_k_k$, $step_k_k$, keys - key, $d$}, room);
    UNROLL_FOR (int i = 0; i < 4; i++) {
      float more = most[i], part = 0;
      UNROLL_FOR (int j = 0; j < 4; j++) {
        const long at = key + column + j, ahead = at - first_q - first - row - i;
        bool sees = at < keys && (!causal || ahead <= 0);
        score[i][j] *= scale;
#if $softcap$
        score[i][j] = $softcap$ * tanhf(score[i][j] / $softcap$);
#endif
#if $biased$
        if (sees && row + i < here) score[i][j] += bias[(row + i) * $step_bias_q$ + at];
#endif
#if $window$
        sees = sees && ahead > -$window$ && ahead < $window$;
#endif
#if $documents$
        sees = sees && row + i < here && document[row + i] == key_document[at];
#endif
#if $places$
        sees = sees && row + i < here &&
               is_seen(key_place[at], place[row + i], $places$ == 1, $reach$);
#endif
        score[i][j] = sees ? score[i][j] : -INFINITY;
        more = fmaxf(more, score[i][j]);
      }
      for (int d = 8; d; d /= 2) more = fmaxf(more, __shfl_xor_sync(0xffffffffu, more, d));
      const float base = more == -INFINITY ? 0 : more, less = expf(most[i] - base);
      UNROLL_FOR (int j = 0; j < 4; j++) part += score[i][j] = expf(score[i][j] - base);
      for (int d = 8; d; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
      most[i] = more;
      total[i] = total[i] * less + part;
      UNROLL_FOR (int n = 0; n < ($e$ + 63) / 64; n++) {
        UNROLL_FOR (int j = 0; j < 4; j++) sum[n][i][j] *= less;
      }
    }
    store_transposed(weight, score);
    add_square_by_rows<element>(sum, weight, {v + key * $step_v_k$, $step_v_k$, keys - key, $e$},
                                room);
  }

  UNROLL_FOR (int i = 0; i < 4; i++) {
    if (row + i >= here) continue;
    const float part = total[i] > 0 ? 1 / total[i] : 0;
    if (column == 0) lse[row + i] = most[i] + logf(total[i]);
    UNROLL_FOR (int n = 0; n < ($e$ + 63) / 64; n++) {
      UNROLL_FOR (int j = 0; j < 4; j++) {
        const int c = n * SQUARE + column + j;
        if (c < $e$) put_float(out + (row + i) * $step_out_q$ + c, part * sum[n][i][j]);
      }
    }
  }
}
