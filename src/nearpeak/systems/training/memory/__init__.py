"""Memory of a rank of a training job."""
