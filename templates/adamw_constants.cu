  const float c1 = (float)(1 / (1 - pow($beta1$, t)));
  const float c2 = (float)(1 / (1 - pow($beta2$, t)));
