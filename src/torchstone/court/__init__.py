"""THE JUDGE: one trusted process per device, which conducts trials.

Nothing is imported here: executors import only how to talk to the judge, never torch.
"""
