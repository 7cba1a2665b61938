"""What pages share: the frame around them, controls, the wait for a run, and the tabs beneath a figure."""
