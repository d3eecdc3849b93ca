// The number of each token's document, counted from 0 in each row, and its place in it. A token
// $eos$ ends a document. A block has a row, and each of its threads a part of it: it first finds
// what its part ends, and then knows of the parts before it.
// launch: $before$ * $after$, 256
__global__ void $name$(int *__restrict__ document, int *__restrict__ place,
                       const int *__restrict__ a)
{
  __shared__ int ends[256], begin[256]; // how many documents a part ends, where the next one begins
  const long size = $D$, after = $after$, each = (size + 255) / 256;
  const long row = (long)blockIdx.x / after * size * after + (long)blockIdx.x % after;
  const int t = (int)threadIdx.x;
  const long from = t * each, to = from + each < size ? from + each : size;
  ends[t] = begin[t] = 0;
  for (long j = from; j < to; j++) {
    if (a[row + j * after] != $eos$) continue;
    ends[t]++;
    begin[t] = (int)j + 1;
  }
  __syncthreads();
  int number = 0, first = 0;
  for (int i = 0; i < t; i++) {
    number += ends[i];
    first = ends[i] ? begin[i] : first;
  }
  for (long j = from; j < to; j++) {
    const long at = row + j * after;
    document[at] = number;
    place[at] = (int)j - first;
    if (a[at] != $eos$) continue;
    number++;
    first = (int)j + 1;
  }
}
