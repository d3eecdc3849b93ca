// A maximum or a minimum of no element.
void $name$(float *restrict out)
{
  for (long i = 0; i < $n$; i++) out[i] = $value$;
}
