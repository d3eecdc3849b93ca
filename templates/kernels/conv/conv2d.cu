// A convolution of each group of channels, with zeros beyond the edges of the input. A thread for
// each element of the output.
// launch: ($n$ * $g$ * $o$ * $p$ * $q$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const $type_w$ *__restrict__ w)
{
  const long images = $n$, groups = $g$, ins = $c$, outs = $o$;
  const int height = $y$, width = $x$, kernel_y = $k$, kernel_x = $l$, rows = $p$, columns = $q$;
  const int stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const int dilation_y = $dilation_y$, dilation_x = $dilation_x$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= images * groups * outs * rows * columns) return;
  const int q = (int)(n % columns), p = (int)(n / columns % rows);
  const long channel = n / columns / rows % (groups * outs);
  const long image = n / columns / rows / (groups * outs);
  const $type_a$ *from = a + (image * groups + channel / outs) * ins * height * width;
  const $type_w$ *weight = w + channel * ins * kernel_y * kernel_x;
  float sum = 0;
  for (long c = 0; c < ins; c++) {
    for (int k = 0; k < kernel_y; k++) {
      const int y = p * stride_y + k * dilation_y - pad_y;
      if (y < 0 || y >= height) continue;
      for (int l = 0; l < kernel_x; l++) {
        const int x = q * stride_x + l * dilation_x - pad_x;
        if (x < 0 || x >= width) continue;
        sum += $float_w$(weight[(c * kernel_y + k) * kernel_x + l]) *
               $float_a$(from[(c * height + y) * width + x]);
      }
    }
  }
  out[n] = sum;
}
