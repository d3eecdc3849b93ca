// The largest element of each window. NaN is larger than any number.
void $name$(float *restrict out, const $type_a$ *restrict a)
{
  const long planes = $batch$, height = $y$, width = $x$, rows = $p$, columns = $q$;
  const long kernel_y = $kernel_y$, kernel_x = $kernel_x$;
  const long stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  for (long n = 0; n < planes * rows * columns; n++) {
    const long top = n / columns % rows * stride_y - pad_y;
    const long left = n % columns * stride_x - pad_x;
    const $type_a$ *const from = a + n / columns / rows * height * width;
    float most = -INFINITY;
    for (long y = top < 0 ? 0 : top; y < top + kernel_y && y < height; y++) {
      for (long x = left < 0 ? 0 : left; x < left + kernel_x && x < width; x++) {
        const float here = $float_a$(from[y * width + x]);
        if (here > most || here != here) most = here;
      }
    }
    out[n] = most;
  }
}
