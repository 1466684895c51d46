"""The guard: a process that stops the load that would take the machine down, while SSH still
answers.

It uses the standard library only. Each run has one sentinel process, which is started before the
first effect of the run. The code that decides (`decide`) is pure, so that a replay of an incident
runs the same code.
"""
