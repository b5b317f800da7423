"""The judge: one trusted process per device, which takes a job through its stages and gives the verdict."""
