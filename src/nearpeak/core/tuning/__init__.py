"""Values of kernel tuning: spaces of configurations, trials and studies."""
