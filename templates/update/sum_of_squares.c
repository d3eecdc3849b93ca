// The sum of g[i] * g[i], in a fixed number of parts, so that it does not depend on the number of
// threads.
double $name$(const float *g, long n)
{
  enum { PARTS = 64, MANY = 1 << 15 };
  double part[PARTS], all = 0;
  const long size = (n + PARTS - 1) / PARTS;
#pragma omp parallel for schedule(static) if (n >= MANY)
  for (int p = 0; p < PARTS; p++) {
    const long first = p * size, last = first + size < n ? first + size : n;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = first; i < last; i++) sum += (double)g[i] * (double)g[i];
    part[p] = sum;
  }
  for (int p = 0; p < PARTS; p++) all += part[p];
  return all;
}
