// Attention of new tokens to the tokens of a cache and to each other, where a value is the first
// numbers of its key. First the new keys are written after the cache's: a block for each token of a
// group of heads.
// launch: $b$ * $g$ * $t$, 128
__global__ void $name$(float *__restrict__ out, const $type_q$ *__restrict__ q,
                       const $type_k$ *__restrict__ k, $type_cache$ *__restrict__ cache,
                       const int *__restrict__ slot, const int *__restrict__ start)
{
  // b: a sequence, g: a group of heads that share keys.
  const long b = (long)blockIdx.x / ($g$ * $t$), g = (long)blockIdx.x / $t$ % $g$;
  const long t = (long)blockIdx.x % $t$, context = $c$;
  (void)out, (void)q;
  if (slot[b] < 0 || start[b] + t >= context) return;
  const long place = ((long)slot[b] * $g$ + g) * context + start[b] + t;
  for (int c = (int)threadIdx.x; c < $d$; c += 128)
    put_float(cache + place * $d$ + c,
              $float_k$(k[b * $step_k_b$ + g * $step_k_g$ + t * $step_k_t$ + c]));
}

// A block for each token of a head. It goes over the keys that the token sees, 128 at a time, a
// thread for each; when it meets a larger score, the sums so far are rescaled.
// launch: $b$ * $g$ * $r$ * $t$, 128
__global__ void $name$_2nd(float *__restrict__ out, const $type_q$ *__restrict__ q,
                           const $type_k$ *__restrict__ k, $type_cache$ *__restrict__ cache,
                           const int *__restrict__ slot, const int *__restrict__ start)
{
  __shared__ float query[$d$], weight[128];
  const long head = (long)blockIdx.x / $t$, t = (long)blockIdx.x % $t$, context = $c$;
  const long b = head / ($g$ * $r$), g = head / $r$ % $g$, r = head % $r$, window = $window$;
  const int thread = (int)threadIdx.x;
  (void)k;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + t * $step_q_t$;
  out += b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ + t * $step_out_t$;
  for (int c = thread; c < $d$; c += 128) query[c] = $s$ * $float_q$(q[c]);
  __syncthreads();
  const long newest = start[b] + t, seen = newest < context ? newest + 1 : context;
  const long end = slot[b] < 0 ? 0 : seen;
  const long first = window && newest + 1 > window ? newest + 1 - window : 0;
  const long place = ((long)(slot[b] < 0 ? 0 : slot[b]) * $g$ + g) * context;
  float most = -INFINITY, total = 0, sum[($e$ + 127) / 128] = {};
  for (long key = first; key < end; key += 128) {
    const int some = end - key < 128 ? (int)(end - key) : 128;
    float score = -INFINITY;
    if (thread < some) {
      const $type_cache$ *const row = cache + (place + key + thread) * $d$;
      score = 0;
      for (int c = 0; c < $d$; c++) score += query[c] * $float_cache$(row[c]);
    }
    const float base = fmaxf(most, block_max<128>(score));
    const float fresh = score == -INFINITY ? 0 : expf(score - base), past = expf(most - base);
    weight[thread] = fresh;
    total = total * past + block_sum<128>(fresh);
    most = base;
    __syncthreads();
    for (int n = 0; n < ($e$ + 127) / 128; n++) {
      const int c = n * 128 + thread;
      sum[n] *= past;
      for (int j = 0; j < some && c < $e$; j++)
        sum[n] += weight[j] * $float_cache$(cache[(place + key + j) * $d$ + c]);
    }
    __syncthreads();
  }
  for (int n = 0; n < ($e$ + 127) / 128; n++) {
    const int c = n * 128 + thread;
    if (c < $e$) out[c] = total > 0 ? sum[n] / total : 0;
  }
}
