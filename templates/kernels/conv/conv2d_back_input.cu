// The gradient of a convolution's input: a thread for each of its elements adds up its share of the
// output's gradient.
// launch: ($n$ * $g$ * $c$ * $y$ * $x$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ da, const $type_dout$ *__restrict__ dout,
                       const $type_w$ *__restrict__ w)
{
  const long images = $n$, groups = $g$, ins = $c$, outs = $o$;
  const int height = $y$, width = $x$, kernel_y = $k$, kernel_x = $l$, rows = $p$, columns = $q$;
  const int stride_y = $stride_y$, stride_x = $stride_x$, pad_y = $pad_y$, pad_x = $pad_x$;
  const int dilation_y = $dilation_y$, dilation_x = $dilation_x$;
  const long n = (long)blockIdx.x * 256 + (long)threadIdx.x;
  if (n >= images * groups * ins * height * width) return;
  const int x = (int)(n % width), y = (int)(n / width % height);
  const long c = n / width / height % ins, group = n / width / height / ins % groups;
  const long image = n / width / height / ins / groups;
  float sum = 0;
  for (long channel = group * outs; channel < (group + 1) * outs; channel++) {
    const $type_dout$ *from = dout + (image * groups * outs + channel) * rows * columns;
    const $type_w$ *weight = w + (channel * ins + c) * kernel_y * kernel_x;
    for (int k = 0; k < kernel_y; k++) {
      const int down = y + pad_y - k * dilation_y, p = down / stride_y;
      if (down < 0 || down % stride_y || p >= rows) continue;
      for (int l = 0; l < kernel_x; l++) {
        const int right = x + pad_x - l * dilation_x, q = right / stride_x;
        if (right < 0 || right % stride_x || q >= columns) continue;
        sum += $float_w$(weight[k * kernel_x + l]) * $float_dout$(from[p * columns + q]);
      }
    }
  }
  da[n] = sum;
}
