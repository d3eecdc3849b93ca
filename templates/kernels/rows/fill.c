// A maximum or minimum over no elements.
void $name$(float *restrict out)
{
  for (long i = 0; i < $n$; i++) out[i] = $value$;
}
