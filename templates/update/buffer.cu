void $name$(float *__restrict__ w, const float *__restrict__ g)
{
  const $counter$ i = $number$;
  if (i >= $n$) return;
  const vec<float, $width$> g_v = load<$width$>(g + i);
  vec<float, $width$> w_v = load<$width$>(w + i);
#pragma unroll
  for (int e = 0; e < $width$; e++) w_v[e] -= g_v[e];
  store(w + i, w_v);
}
