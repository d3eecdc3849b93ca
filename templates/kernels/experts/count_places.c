// Counts the places of each expert that this rank has.
void $name$(int *restrict out, const int *restrict expert, long first_e)
{
  const long places = (long)$b$ * $s$ * $k$, experts = $e$;
  for (long e = 0; e < experts; e++) out[e] = 0;
  for (long i = 0; i < places; i++) {
    const long e = expert[i] - first_e;
    if (e >= 0 && e < experts) out[e]++;
  }
}
