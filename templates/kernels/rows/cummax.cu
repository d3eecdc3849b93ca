// The greatest element so far along the middle dimension, or the smallest one, and its index: of
// equal ones the last. From one that is not a number on it is that. A block for each row goes over
// it, 256 elements at a time.
// launch: $before$ * $after$, 256
__global__ void $name$(float *__restrict__ out, int *__restrict__ index,
                       const $type_a$ *__restrict__ a)
{
  __shared__ float best_of[8];
  __shared__ int place_of[8];
  const long size = $D$, after = $after$;
  const float sign = $least$ ? -1.0f : 1.0f;
  const long first = (long)blockIdx.x / after * size * after + (long)blockIdx.x % after;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  // whether a later one takes the place of an earlier one; place -1: there is none
  const auto wins = [](float later, float earlier) { return later >= earlier || later != later; };
  float carry = 0;
  int carried = -1;
  for (long from = 0; from < size; from += 256) {
    const long j = from + (long)threadIdx.x;
    const long at = first + j * after;
    float best = j < size ? sign * $float_a$(a[at]) : 0;
    int place = j < size ? (int)j : -1;
    for (int d = 1; d < 32; d *= 2) {
      const float left = __shfl_up_sync(0xffffffffu, best, (unsigned)d);
      const int left_place = __shfl_up_sync(0xffffffffu, place, (unsigned)d);
      if (lane >= d && (place < 0 || !wins(best, left))) {
        best = left;
        place = left_place;
      }
    }
    if (lane == 31) {
      best_of[warp] = best;
      place_of[warp] = place;
    }
    __syncthreads();
    for (int w = 0; w < 8; w++) {
      if (w == warp && carried >= 0 && (place < 0 || !wins(best, carry))) {
        best = carry;
        place = carried;
      }
      if (place_of[w] >= 0 && (carried < 0 || wins(best_of[w], carry))) {
        carry = best_of[w];
        carried = place_of[w];
      }
    }
    if (j < size) {
      out[at] = sign * best;
      index[at] = place;
    }
    __syncthreads();
  }
}
