// The gradient of a convolution's weights: for each, a block sums over all places where it met an
// element of the input.
// launch: $g$ * $o$ * $c$ * $k$ * $l$, 256
__global__ void $name$(float *__restrict__ dw, const $type_dout$ *__restrict__ dout,
                       const $type_a$ *__restrict__ a)
{
  const long images = $n$, groups = $g$, ins = $c$, outs = $o$;
  const int height = $y$, width = $x$, kernel_y = $k$, kernel_x = $l$, rows = $p$, columns = $q$;
  const int stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const int dilation_y = $dilation_y$, dilation_x = $dilation_x$;
  const long channel = (long)blockIdx.x / kernel_x / kernel_y / ins;
  const long c = channel / outs * ins + (long)blockIdx.x / kernel_x / kernel_y % ins;
  const int k = (int)((long)blockIdx.x / kernel_x % kernel_y), l = (int)(blockIdx.x % $l$);
  float sum = 0;
  for (long n = (long)threadIdx.x; n < images * rows * columns; n += 256) {
    const int q = (int)(n % columns), p = (int)(n / columns % rows);
    const long image = n / columns / rows;
    const int y = p * stride_y + k * dilation_y - pad_y;
    const int x = q * stride_x + l * dilation_x - pad_x;
    if (y < 0 || y >= height || x < 0 || x >= width) continue;
    sum += $float_dout$(dout[((image * groups * outs + channel) * rows + p) * columns + q]) *
           $float_a$(a[((image * groups * ins + c) * height + y) * width + x]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dw[blockIdx.x] = sum;
}
