"""Programs of the ranks of a training job, rewritten from a shape or a captured step by the rules of a plan."""
