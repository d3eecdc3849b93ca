void $name$($parameters$)
{
  const $counter$ i = $number$;
  if (i >= $n$) return;
$clip$$numbers$$loads$#pragma unroll
  for (int e = 0; e < $width$; e++) {
$body$  }
$stores$}
