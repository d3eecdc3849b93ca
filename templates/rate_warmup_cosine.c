// The learning rate of step t, counted from 1: $up$a cosine down to step $steps$.
static double learning_rate(int t)
{
  const double most = $most$, least = $least$, pi = 3.14159265358979323846;
$climb$  if (t >= $steps$) return least;
  return least + (most - least) * (1 + cos(pi * $down$)) / 2;
}
