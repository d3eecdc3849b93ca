// The number of each token's document, counted from 0 in each row, and its place in it. A token
// $eos$ ends a document.
void $name$(int *restrict document, int *restrict place, const int *restrict a)
{
  const long before = $before$, size = $D$, after = $after$;
  for (long i = 0; i < before * after; i++) {
    const long row = i / after * size * after + i % after;
    int number = 0;
    long first = 0;
    for (long j = 0; j < size; j++) {
      const long at = row + j * after;
      document[at] = number;
      place[at] = (int)(j - first);
      if (a[at] != $eos$) continue;
      number++;
      first = j + 1;
    }
  }
}
