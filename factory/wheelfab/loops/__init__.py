"""The import loop: each wheel loaded again and again, and every load judged by stage."""
