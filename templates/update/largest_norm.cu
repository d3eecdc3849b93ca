__global__ void largest_norm(float *norm, const double *largest)
{
  *norm = (float)*largest;
}
