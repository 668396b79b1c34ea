"""Values of a history: series, level changes, alerts, gates, bisections."""
