// The largest element of each window. NaN is larger than any number. A thread for each window.
// launch: ($batch$ * $p$ * $q$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a)
{
  const long planes = $batch$;
  const int height = $y$, width = $x$, rows = $p$, columns = $q$;
  const int kernel_y = $kernel_y$, kernel_x = $kernel_x$;
  const int stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= planes * rows * columns) return;
  const int top = (int)(n / columns % rows) * stride_y - pad_y;
  const int left = (int)(n % columns) * stride_x - pad_x;
  const $type_a$ *from = a + n / columns / rows * height * width;
  float most = -INFINITY;
  for (int y = top < 0 ? 0 : top; y < top + kernel_y && y < height; y++) {
    for (int x = left < 0 ? 0 : left; x < left + kernel_x && x < width; x++) {
      const float here = $float_a$(from[y * width + x]);
      if (here > most || here != here) most = here;
    }
  }
  out[n] = most;
}
