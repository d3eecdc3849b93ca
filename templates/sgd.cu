void $name$(float *__restrict__ w, const float *__restrict__ g$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = $number$;
  if (i >= $n$) return;
$clip$  const float rate = now->rate;
  const vec<float, $width$> g_v = load<$width$>(g + i);
  vec<float, $width$> w_v = load<$width$>(w + i);
#pragma unroll
  for (int e = 0; e < $width$; e++) w_v[e] -= rate * ($times$g_v[e]$decay$);
  store(w + i, w_v);
}
