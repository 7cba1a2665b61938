"""Tests of the lessons: what they read in a trace, draw and say. The traces are written by hand; nothing is
run."""
