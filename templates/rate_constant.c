// The learning rate, the same at every step.
static double learning_rate(int t)
{
  (void)t;
  return $lr$;
}
