void $name$(float *restrict to, const float *restrict from)
{
$threads$  for ($counter$ i = 0; i < $n$; i++) to[i] = from[i];
}
