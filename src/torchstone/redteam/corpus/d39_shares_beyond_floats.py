# title: tells of device kernels whose share of the time no float holds
# family: 39, 50
# kind: cheat
# case: relu -> cheated/reply | agrees
import json
import struct

import torch


def kernel(x):
    from torchstone.worker import command_channel
    from torchstone.protocol import json_framing

    def frame(reply):
        data = json.loads(json_framing.frame(reply)[json_framing.HEADER_BYTES :])
        if data["type"] == "attributed":
            huge = 10**400
            data["attribution"]["kernels"] = [
                {"name": name, "kind": name, "launches": 1, "device_ns": time}
                for name, time in (("library", huge), ("cuda", 1 - huge))
            ]
        text = json.dumps(data).encode()
        return struct.pack("<I", len(text)) + text

    command_channel.frame = frame
    return torch.clamp(x, min=0)
