  const double lr = learning_rate(t);
  const float keep = (float)(1 - lr * $decay$); // of a weight, under its decay
  const float rate = (float)(lr / (1 - pow($beta1$, t)));
  const float root = (float)(1 / sqrt(1 - pow($beta2$, t)));
