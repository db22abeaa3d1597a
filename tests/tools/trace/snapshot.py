"""Pickles as torch.cuda.memory._snapshot() gives them: segments, frames, events that say nothing about
lives."""
import pickle

PROTOCOLS = (2, 3, 4, 5)


def snapshot(requests, streams=(0,)):
    """Of requests (is_malloc, id, size); on two devices the second, if there are several streams."""
    frames = [{"filename": f"/home/me/model_{i}.py", "line": 17 * i, "name": "forward"}
              for i in range(5)]
    events = [{"action": "segment_alloc", "addr": 0x7f0000000000, "size": 20 << 20, "stream": 0,
               "time_us": 1700000000000000, "frames": []}]
    place = {}
    for number, (is_malloc, key, size) in enumerate(requests):
        if is_malloc:
            free = set(range(len(place) + 1)) - set(place.values())
            place[key] = min(free)
        event = {"addr": 0x7f0000000000 + 512 * place[key], "size": size,
                 "stream": streams[key % len(streams)], "time_us": 1700000000000000 + number,
                 "frames": frames[:number % 5]}
        if is_malloc:
            events.append({"action": "alloc", **event})
            continue
        events.append({"action": "free_requested", **event})
        if number % 7 == 0:
            events.append({"action": "snapshot", "addr": 0, "size": 0, "stream": 0})
        events.append({"action": "free_completed", **event})
        del place[key]
    traces = [events] if len(streams) == 1 else [[], events]
    if len(streams) == 1:
        traces.append([])
    return {"segments": [{"device": 0, "address": 0x7f0000000000, "total_size": 20 << 20,
                          "is_expandable": False, "blocks": [{"size": 512, "state": "inactive"}],
                          "frames": frames}],
            "device_traces": traces, "allocator_settings": {"max_split_size": -1,
                                                            "roundup_power2_divisions": {"1": 0},
                                                            "garbage_collection_threshold": 0.0},
            "external_annotations": None, "pool": (0, 1)}


def dump(value, protocol=4):
    return pickle.dumps(value, protocol)
