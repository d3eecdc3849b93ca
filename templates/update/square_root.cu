__global__ void square_root(float *norm, const double *squares)
{
  *norm = (float)sqrt(*squares);
}
