"""The judge: a trusted process with a device, which takes jobs through their stages and gives verdicts."""
