// What a scan begins with in a call: what the slot's last call handed on, or, where a text begins,
// what the scan itself begins with. A thread for each element.
// launch: ($b$ * $batch$ + 255) / 256, 256
__global__ void $name$(float *__restrict__ out, $type_cache$ *__restrict__ cache,
                       const $type_initial$ *__restrict__ initial, const int *__restrict__ slot,
                       const int *__restrict__ start)
{
  const long size = $batch$, at = (long)blockIdx.x * 256 + (long)threadIdx.x;
  const long b = at / size, i = at % size;
  if (b >= $b$) return;
  const bool begins = slot[b] < 0 || start[b] == 0;
  out[at] = begins ? $float_initial$(initial[i]) : $float_cache$(cache[(long)slot[b] * size + i]);
}
