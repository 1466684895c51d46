"""The sentinel: stops the load that would take the machine down, while SSH still answers.

Standard library only. One process a run, started before the first effect, judged by pure code
(`decide`) that a replay of an incident runs as well.
"""
