# title: gives a dimension of one element a stride that no machine integer holds
# family: 39
# kind: cheat
# case: relu_row -> cheated/reply
import json
import struct

import torch


def kernel(x):
    from torchstone.worker import command_channel
    from torchstone.protocol import json_framing

    def frame(reply):
        data = json.loads(json_framing.frame(reply)[json_framing.HEADER_BYTES :])
        data["places"] = [[[place[0], [10**25, 1]] for place in places] for places in data.get("places", [])]
        text = json.dumps(data).encode()
        return struct.pack("<I", len(text)) + text

    command_channel.frame = frame
    return torch.clamp(x, min=0)
