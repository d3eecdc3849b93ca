// A convolution of each group of channels, with zeros beyond the edges of the input.
void $name$(float *restrict out, const $type_a$ *restrict a, const $type_w$ *restrict w)
{
  const long images = $n$, groups = $g$, ins = $c$, outs = $o$;
  const long height = $y$, width = $x$, kernel_y = $k$, kernel_x = $l$, rows = $p$, columns = $q$;
  const long stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const long dilation_y = $dilation_y$, dilation_x = $dilation_x$;
  for (long n = 0; n < images * groups * outs * rows * columns; n++) out[n] = 0;
  for (long image = 0; image < images; image++) {
    for (long channel = 0; channel < groups * outs; channel++) {
      float *const to = out + (image * groups * outs + channel) * rows * columns;
      const $type_a$ *const from = a + (image * groups + channel / outs) * ins * height * width;
      for (long n = 0; n < ins * kernel_y * kernel_x; n++) {
        const long c = n / (kernel_y * kernel_x), l = n % kernel_x;
        const long down = n / kernel_x % kernel_y * dilation_y - pad_y;
        const long right = l * dilation_x - pad_x;
        const float weight = $float_w$(w[channel * ins * kernel_y * kernel_x + n]);
        // the first column that has an input, and the first one after these that has none
        const long begin = right < 0 ? (stride_x - 1 - right) / stride_x : 0;
        const long inside = right < width ? (width - 1 - right) / stride_x + 1 : 0;
        const long end = inside < columns ? inside : columns;
        // The same of rows: a test in their loop instead is one that GCC 12 makes wrong code of.
        const long top = down < 0 ? (stride_y - 1 - down) / stride_y : 0;
        const long below = down < height ? (height - 1 - down) / stride_y + 1 : 0;
        const long bottom = below < rows ? below : rows;
        for (long p = top; p < bottom; p++) {
          const long y = p * stride_y + down;
          const $type_a$ *const line = from + (c * height + y) * width;
          for (long q = begin; q < end; q++)
            to[p * columns + q] += weight * $float_a$(line[q * stride_x + right]);
        }
      }
    }
  }
}
