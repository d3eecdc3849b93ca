// Attention of new tokens to the rank's parts of a cache and to those of the tokens themselves that
// are in them. First the new keys and values are written where they belong: a block for each token
// of a group of heads.
// launch: $b$ * $g$ * $t$, 128
__global__ void $name$(float *__restrict__ out, float *__restrict__ logs,
                       const $type_q$ *__restrict__ q, const $type_k$ *__restrict__ k,
                       const $type_v$ *__restrict__ v, $type_k_cache$ *__restrict__ k_cache,
                       $type_v_cache$ *__restrict__ v_cache, const int *__restrict__ slot,
                       const int *__restrict__ start, long first_p)
{
  // b: a sequence, g: a group of heads that share keys and values.
  const long b = (long)blockIdx.x / ($g$ * $t$), g = (long)blockIdx.x / $t$ % $g$;
  const long t = (long)blockIdx.x % $t$, parts = $p$, length = $c$;
  const long token = start[b] + t, part = token / length - first_p;
  (void)out, (void)logs, (void)q;
  if (slot[b] < 0 || part < 0 || part >= parts) return;
  const long place = (((long)slot[b] * parts + part) * $g$ + g) * length + token % length;
  for (int c = (int)threadIdx.x; c < $d$; c += 128)
    put_float(k_cache + place * $d$ + c,
              $float_k$(k[b * $step_k_b$ + g * $step_k_g$ + t * $step_k_t$ + c]));
  for (int c = (int)threadIdx.x; c < $e$; c += 128)
    put_float(v_cache + place * $e$ + c,
              $float_v$(v[b * $step_v_b$ + g * $step_v_g$ + t * $step_v_t$ + c]));
}

// A block for each part and each token of a head. It goes over the keys of the part that the token
// sees, 128 at a time, a thread for each; when it meets a larger score, the sums so far are
// rescaled.
// launch: $p$ * $b$ * $g$ * $r$ * $t$, 128
__global__ void $name$_2nd(float *__restrict__ out, float *__restrict__ logs,
                           const $type_q$ *__restrict__ q, const $type_k$ *__restrict__ k,
                           const $type_v$ *__restrict__ v, $type_k_cache$ *__restrict__ k_cache,
                           $type_v_cache$ *__restrict__ v_cache, const int *__restrict__ slot,
                           const int *__restrict__ start, long first_p)
{
  __shared__ float query[$d$], weight[128];
  const long head = (long)blockIdx.x / $t$, t = (long)blockIdx.x % $t$, length = $c$;
  const long part = head / ($b$ * $g$ * $r$), b = head / ($g$ * $r$) % $b$, g = head / $r$ % $g$;
  const long r = head % $r$, window = $window$;
  const int thread = (int)threadIdx.x;
  (void)k, (void)v;
  q += b * $step_q_b$ + g * $step_q_g$ + r * $step_q_r$ + t * $step_q_t$;
  out += part * $step_out_p$ + b * $step_out_b$ + g * $step_out_g$ + r * $step_out_r$ +
         t * $step_out_t$;
  for (int c = thread; c < $d$; c += 128) query[c] = $s$ * $float_q$(q[c]);
  __syncthreads();
  const long newest = start[b] + t - (first_p + part) * length; // from the part's first token
  const long seen = newest < length ? newest + 1 : length, end = slot[b] < 0 ? 0 : seen;
  const long first = window && newest + 1 > window ? newest + 1 - window : 0;
  const long place = (((long)(slot[b] < 0 ? 0 : slot[b]) * $p$ + part) * $g$ + g) * length;
  float most = -INFINITY, total = 0, sum[($e$ + 127) / 128] = {};
  for (long key = first; key < end; key += 128) {
    const int some = end - key < 128 ? (int)(end - key) : 128;
    float score = -INFINITY;
    if (thread < some) {
      const $type_k_cache$ *const row = k_cache + (place + key + thread) * $d$;
      score = 0;
      for (int c = 0; c < $d$; c++) score += query[c] * $float_k_cache$(row[c]);
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
        sum[n] += weight[j] * $float_v_cache$(v_cache[(place + key + j) * $e$ + c]);
    }
    __syncthreads();
  }
  for (int n = 0; n < ($e$ + 127) / 128; n++) {
    const int c = n * 128 + thread;
    if (c < $e$) out[c] = total > 0 ? sum[n] / total : 0;
  }
  if (thread == 0) logs[(long)blockIdx.x] = total > 0 ? most + logf(total) : -INFINITY;
}
