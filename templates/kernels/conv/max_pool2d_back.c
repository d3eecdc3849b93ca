// Each window's gradient goes to the first of its largest elements, or to its last NaN.
void $name$(float *restrict da, const $type_dout$ *restrict dout, const $type_a$ *restrict a,
            const $type_out$ *restrict out)
{
  const long planes = $batch$, height = $y$, width = $x$, rows = $p$, columns = $q$;
  const long kernel_y = $kernel_y$, kernel_x = $kernel_x$;
  const long stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  for (long n = 0; n < planes * height * width; n++) da[n] = 0;
  for (long n = 0; n < planes * rows * columns; n++) {
    const long top = n / columns % rows * stride_y - pad_y;
    const long left = n % columns * stride_x - pad_x;
    const long plane = n / columns / rows * height * width;
    long at = -1;
    for (long y = top < 0 ? 0 : top; y < top + kernel_y && y < height; y++) {
      for (long x = left < 0 ? 0 : left; x < left + kernel_x && x < width; x++) {
        const float here = $float_a$(a[plane + y * width + x]);
        if ((at < 0 && here == $float_out$(out[n])) || here != here) at = plane + y * width + x;
      }
    }
    if (at >= 0) da[at] += $float_dout$(dout[n]);
  }
}
