// Adds each token's gradient to its row of the table, in the order of the tokens. A block has 32
// rows. It lists their tokens among 2048 at a time, each warp among 256, and goes over the list.
// launch: ($v$ + 31) / 32, 256
__global__ void $name$(float *__restrict__ out, const $type_a$ *__restrict__ a,
                       const int *__restrict__ token, long first_v)
{
  __shared__ int of_warp[8];
  __shared__ short listed[2048], row_of[2048]; // the listed tokens, and their rows
  const long tokens = $batch$, width = $d$, first = (long)blockIdx.x * 32;
  const int rows = $v$ - first < 32 ? (int)($v$ - first) : 32;
  const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
  for (long j = t; j < rows * width; j += 256) out[first * width + j] = 0;
  for (long from = 0; from < tokens; from += 2048) {
    int row[8], mine = 0, at = 0, all = 0;
    unsigned found[8]; // a bit for each lane
#pragma unroll
    for (int u = 0; u < 8; u++) {
      const long i = from + warp * 256 + u * 32 + lane, here = i < tokens ? token[i] : -1;
      const long beyond = here - first_v - first;
      row[u] = here >= 0 && beyond >= 0 && beyond < rows ? (int)beyond : -1;
      found[u] = __ballot_sync(0xffffffffu, row[u] >= 0);
      mine += __popc(found[u]);
    }
    __syncthreads(); // the previous list has been read
    if (lane == 0) of_warp[warp] = mine;
    __syncthreads();
    for (int w = 0; w < 8; w++) {
      at += w < warp ? of_warp[w] : 0;
      all += of_warp[w];
    }
#pragma unroll
    for (int u = 0; u < 8; u++) {
      const int place = at + __popc(found[u] & ((1u << lane) - 1));
      if (row[u] >= 0) {
        listed[place] = (short)(warp * 256 + u * 32 + lane);
        row_of[place] = (short)row[u];
      }
      at += __popc(found[u]);
    }
    __syncthreads();
    for (long j = t; j < width; j += 256) {
#pragma unroll 4
      for (int n = 0; n < all; n++)
        out[(first + row_of[n]) * width + j] += $float_a$(a[(from + listed[n]) * width + j]);
    }
  }
}
