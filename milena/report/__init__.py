"""Pages with tables and plots, for runs of the lab and jobs of the pipeline."""
