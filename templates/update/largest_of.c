// The largest of `most` and all |g[i]|; NaN if one of them is.
double $name$(const float *g, long n, double most)
{
  enum { PARTS = 64, MANY = 1 << 15 };
  double part[PARTS];
  const long size = (n + PARTS - 1) / PARTS;
#pragma omp parallel for schedule(static) if (n >= MANY)
  for (int p = 0; p < PARTS; p++) {
    const long first = p * size, last = first + size < n ? first + size : n;
    float here = 0;
    for (long i = first; i < last; i++) {
      const float x = fabsf(g[i]);
      if (x > here || x != x) here = x;
    }
    part[p] = (double)here;
  }
  for (int p = 0; p < PARTS; p++)
    if (part[p] > most || part[p] != part[p]) most = part[p];
  return most;
}
