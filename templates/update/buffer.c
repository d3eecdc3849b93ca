void $name$(float *restrict w, const float *restrict g)
{
$threads$  for ($counter$ i = 0; i < $n$; i++) w[i] -= g[i];
}
