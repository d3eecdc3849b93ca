void $name$(float *__restrict__ w, const float *__restrict__ g, float *__restrict__ m, float *__restrict__ v$norm$, const struct constants *__restrict__ now)
{
  const $counter$ i = $number$;
  if (i >= $n$) return;
$clip$  const float keep = now->keep, rate = now->rate, root = now->root;
  const vec<float, $width$> g_v = load<$width$>(g + i);
  vec<float, $width$> w_v = load<$width$>(w + i);
  vec<float, $width$> m_v = load<$width$>(m + i);
  vec<float, $width$> v_v = load<$width$>(v + i);
#pragma unroll
  for (int e = 0; e < $width$; e++) {
    const float d = $times$g_v[e];
    m_v[e] = $beta1$ * m_v[e] + $take1$ * d;
    v_v[e] = $beta2$ * v_v[e] + $take2$ * d * d;
    w_v[e] = keep * w_v[e] - rate * m_v[e] / (root * sqrtf(v_v[e]) + $eps$);
  }
  store(m + i, m_v);
  store(v + i, v_v);
  store(w + i, w_v);
}
