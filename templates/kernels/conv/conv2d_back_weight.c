// The gradient of a convolution's weights: for each, the sum, over all places where it met an
// element of the input, of that element times the output's gradient.
void $name$(float *restrict dw, const $type_dout$ *restrict dout, const $type_a$ *restrict a)
{
  const long images = $n$, groups = $g$, ins = $c$, outs = $o$;
  const long height = $y$, width = $x$, kernel_y = $k$, kernel_x = $l$, rows = $p$, columns = $q$;
  const long stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const long dilation_y = $dilation_y$, dilation_x = $dilation_x$;
  static _Thread_local float sum[$q$]; // of each column
  for (long channel = 0; channel < groups * outs; channel++) {
    for (long n = 0; n < ins * kernel_y * kernel_x; n++) {
      const long c = channel / outs * ins + n / (kernel_y * kernel_x), l = n % kernel_x;
      const long down = n / kernel_x % kernel_y * dilation_y - pad_y;
      const long right = l * dilation_x - pad_x;
      // the first column that has an input, and the first one after these that has none
      const long begin = right < 0 ? (stride_x - 1 - right) / stride_x : 0;
      const long inside = right < width ? (width - 1 - right) / stride_x + 1 : 0;
      const long end = inside < columns ? inside : columns;
      // The same of rows: a test in their loop instead is one that GCC 12 makes wrong code of.
      const long top = down < 0 ? (stride_y - 1 - down) / stride_y : 0;
      const long below = down < height ? (height - 1 - down) / stride_y + 1 : 0;
      const long bottom = below < rows ? below : rows;
      for (long q = 0; q < columns; q++) sum[q] = 0;
      for (long image = 0; image < images; image++) {
        for (long p = top; p < bottom; p++) {
          const long y = p * stride_y + down;
          const $type_a$ *const line = a + ((image * groups * ins + c) * height + y) * width;
          const $type_dout$ *const from =
              dout + ((image * groups * outs + channel) * rows + p) * columns;
          for (long q = begin; q < end; q++)
            sum[q] += $float_dout$(from[q]) * $float_a$(line[q * stride_x + right]);
        }
      }
      double total = 0;
      for (long q = 0; q < columns; q++) total += (double)sum[q];
      dw[channel * ins * kernel_y * kernel_x + n] = (float)total;
    }
  }
}
