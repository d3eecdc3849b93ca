/* adamw.c: the kernel of AdamW that tpgen made of its function in Lua, beside a loop that was
   written by hand; in turn, the least time of each. KERNEL: its name; N: how many elements. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void KERNEL(float *restrict w, const float *restrict g, float *restrict m, float *restrict v,
            float keep, float rate, float root);

void by_hand(float *restrict w, const float *restrict g, float *restrict m, float *restrict v,
             float keep, float rate, float root);

/* As a careful person writes it. */
void by_hand(float *restrict w, const float *restrict g, float *restrict m, float *restrict v,
             float keep, float rate, float root)
{
#pragma omp parallel for simd schedule(static)
  for (int i = 0; i < N; i++) {
    const float mean = 0.9f * m[i] + 0.1f * g[i];
    const float square = 0.999f * v[i] + 0.001f * (g[i] * g[i]);
    m[i] = mean;
    v[i] = square;
    w[i] = keep * w[i] - rate * mean / (root * sqrtf(square) + 1e-8f);
  }
}

typedef void kernel(float *restrict, const float *restrict, float *restrict, float *restrict, float,
                    float, float);

struct tensors {
  float *w, *g, *m, *v;
};

static float *filled(float from)
{
  float *x = aligned_alloc(64, N * sizeof *x);
  if (!x) exit(1);
  for (int i = 0; i < N; i++) x[i] = from * (float)(i % 1001 - 500);
  return x;
}

static struct tensors new_tensors(void)
{
  struct tensors t = {filled(1e-3f), filled(1e-4f), filled(0), filled(0)};
  return t;
}

static double seconds(kernel *run, struct tensors t)
{
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  run(t.w, t.g, t.m, t.v, 0.99999f, 1e-3f, 1.5f);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

int main(int argc, char **argv)
{
  int rounds = argc > 1 ? atoi(argv[1]) : 30;
  struct tensors a = new_tensors(), b = new_tensors();
  double ours = 1e9, theirs = 1e9, most = 0;
  for (int i = 0; i < rounds; i++) {
    double of_kernel = seconds(KERNEL, a), of_hand = seconds(by_hand, b);
    ours = of_kernel < ours ? of_kernel : ours;
    theirs = of_hand < theirs ? of_hand : theirs;
  }
  for (int i = 0; i < N; i++) {
    double apart = fabs((double)a.w[i] - (double)b.w[i]);
    most = apart > most ? apart : most;
  }
  printf("%d elements, the least of %d: tpgen's %.3f ms, by hand %.3f ms, ratio %.3f; weights at "
         "most %.1e apart\n",
         N, rounds, 1e3 * ours, 1e3 * theirs, ours / theirs, most);
  return most > 1e-5;
}
