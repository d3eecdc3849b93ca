void $name$(float *__restrict__ to, const float *__restrict__ from)
{
  const $counter$ i = $number$;
  if (i < $n$) to[i] = from[i];
}
