void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = $number$;
  if (i >= $n$) return;
$clip$  const float rate = now->rate;
  const vec<float, $width$> g_v = load<$width$>(g + i);
  vec<float, $width$> w_v = load<$width$>(w + i);
  vec<float, $width$> m_v = load<$width$>(m + i);
#pragma unroll
  for (int e = 0; e < $width$; e++) {
    m_v[e] = $momentum$ * m_v[e] + ($times$g_v[e]$decay$);
    w_v[e] -= rate * m_v[e];
  }
  store(m + i, m_v);
  store(w + i, w_v);
}
