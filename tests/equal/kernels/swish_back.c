// The gradient of swish, from that of its output d, and x; y is the output.
void $name$(float *restrict out, const float *restrict d, const float *restrict x,
            const float *restrict y)
{
  for (long i = 0; i < (long)$batch$; i++) {
    float part = 1 / (1 + expf(-$s$ * x[i]));
    out[i] = d[i] * (part + $s$ * y[i] * (1 - part));
  }
}
