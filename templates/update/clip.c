  const float factor = $clip$ / (*norm + 1e-6f), clip = factor > 1 ? 1 : factor;
