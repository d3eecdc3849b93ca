// Each window's gradient goes to the first of its largest elements, or to its last NaN: a thread
// for each element of the input checks the windows that contain it.
// launch: ($batch$ * $y$ * $x$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ da, const $type_dout$ *__restrict__ dout,
                       const $type_a$ *__restrict__ a, const $type_out$ *__restrict__ out)
{
  const long planes = $batch$;
  const int height = $y$, width = $x$, rows = $p$, columns = $q$;
  const int kernel_y = $kernel_y$, kernel_x = $kernel_x$;
  const int stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= planes * height * width) return;
  const int mine_x = (int)(n % width), mine_y = (int)(n / width % height);
  const long plane = n / width / height;
  const int above = mine_y + pad_y - kernel_y + 1, beside = mine_x + pad_x - kernel_x + 1;
  const int first_p = above > 0 ? (above + stride_y - 1) / stride_y : 0;
  const int first_q = beside > 0 ? (beside + stride_x - 1) / stride_x : 0;
  float sum = 0;
  for (int p = first_p; p < rows && p * stride_y - pad_y <= mine_y; p++) {
    for (int q = first_q; q < columns && q * stride_x - pad_x <= mine_x; q++) {
      const int top = p * stride_y - pad_y, left = q * stride_x - pad_x;
      const long window = (plane * rows + p) * columns + q;
      long at = -1;
      for (int y = top < 0 ? 0 : top; y < top + kernel_y && y < height; y++) {
        for (int x = left < 0 ? 0 : left; x < left + kernel_x && x < width; x++) {
          const float here = $float_a$(a[(plane * height + y) * width + x]);
          if ((at < 0 && here == $float_out$(out[window])) || here != here)
            at = (plane * height + y) * width + x;
        }
      }
      if (at == n) sum += $float_dout$(dout[window]);
    }
  }
  da[n] = sum;
}
