"""Where the benchmark runs: memory, capture and timing on cuda (through torch) and on the CPU."""
import ctypes
import glob
import mmap
import platform
import random
import subprocess
import time

POISON = 0xA5
ROTATION = 4            # live bytes of all sets together, in caches
SPIN_CYCLES = 200_000   # about 0.1 ms: the device waits until the sample is enqueued
BLOCK_BYTES = (1 << 20) + 4099


def cold_sets(machine, num_bytes):
    """Sets to rotate over, so that what comes back has left the cache."""
    return max(2, -(-ROTATION * machine.cache_bytes // num_bytes))


def command_output(*command):
    """First line of what a command prints; None if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None


def size_of_cache():
    """Bytes of the CPU's largest cache; 32 MiB where the system does not say."""
    sizes = []
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
        sizes.append(int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1:], 0))
    return max(sizes, default=32 << 20)


class Host:
    """No graphs: a captured call is the call."""
    kind = "cpu"

    def __init__(self, torch=None):
        self.torch = torch
        self.stream = None
        self.cache_bytes = size_of_cache()
        self._libc = ctypes.CDLL(None)
        for name in ("memcmp", "memcpy"):
            getattr(self._libc, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._poison = self.allocate(BLOCK_BYTES)
        self.poison(self._poison)

    def describe(self):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip()
                     for line in file if line.startswith("model name")]
        return {"device": "cpu", "device_name": names[0] if names else "unknown", "num_sms": 1,
                "compute_capability": 0, "cache_bytes": self.cache_bytes,
                "system": f"{platform.system()} {platform.release()}", "driver": None,
                "clock_sm_mhz": None, "clock_memory_mhz": None}

    def free_bytes(self):
        with open("/proc/meminfo", encoding="ascii") as file:
            values = dict(line.split(":") for line in file)
        return int(values["MemAvailable"].split()[0]) << 10

    def allocate(self, num_bytes):
        return (ctypes.c_ubyte * num_bytes).from_buffer(mmap.mmap(-1, num_bytes))

    def address(self, buffer):
        return ctypes.addressof(buffer)

    def count(self, value):
        return ctypes.c_int64(value)

    def view(self, buffer, start, rows, width, element_bytes):
        dtype = {1: self.torch.uint8, 2: self.torch.int16, 8: self.torch.int64}[element_bytes]
        flat = self.torch.frombuffer(buffer, dtype=dtype, offset=start, count=rows * width)
        return flat.view(rows, width)

    def count_view(self, count):
        return self.torch.frombuffer(count, dtype=self.torch.int64)

    def randomize(self, buffer, seed):
        block = random.Random(seed).randbytes(min(BLOCK_BYTES, len(buffer)))
        for start in range(0, len(buffer), len(block)):
            part = min(len(block), len(buffer) - start)
            ctypes.memmove(self.address(buffer) + start, block, part)

    def poison(self, buffer):
        ctypes.memset(buffer, POISON, len(buffer))

    def copy(self, destination, source, num_bytes):
        self._libc.memcpy(self.address(destination), self.address(source), num_bytes)

    def differing(self, a, b, start, num_bytes):
        if self._libc.memcmp(self.address(a) + start, self.address(b) + start, num_bytes) == 0:
            return 0
        parts = (memoryview(x).cast("B")[start:start + num_bytes] for x in (a, b))
        return sum(x != y for x, y in zip(*parts))

    def unpoisoned(self, buffer, start, num_bytes):
        wrong = 0
        for first in range(start, start + num_bytes, BLOCK_BYTES):
            part = min(BLOCK_BYTES, start + num_bytes - first)
            if self._libc.memcmp(self.address(buffer) + first, self.address(self._poison), part):
                wrong += sum(x != POISON
                             for x in memoryview(buffer).cast("B")[first:first + part])
        return wrong

    def capture(self, enqueue):
        """What replays `enqueue`, and its number of graph nodes (None: there is no graph)."""
        return enqueue, None

    def run(self, enqueue):
        enqueue()

    def time(self, replays):
        """Seconds of each, one after the other."""
        seconds = []
        for replay in replays:
            begin = time.perf_counter()
            replay()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def synchronize(self):
        pass

    def release_memory(self):
        pass


class Cuda:
    """The current GPU of torch; everything runs on one stream of its own."""
    kind = "cuda"

    def __init__(self, torch):
        self.torch = torch
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.properties = torch.cuda.get_device_properties(self.device)
        self.cache_bytes = self.properties.L2_cache_size
        self.torch_stream = torch.cuda.Stream(self.device)
        self.stream = self.torch_stream.cuda_stream
        self._driver = ctypes.CDLL("libcuda.so.1")

    def describe(self):
        p = self.properties
        query = command_output("nvidia-smi", f"--id=GPU-{p.uuid}", "--format=csv,noheader,nounits",
                               "--query-gpu=driver_version,clocks.sm,clocks.mem")
        driver, sm, memory = query.split(", ") if query else (None, None, None)
        return {"device": "cuda", "device_name": p.name, "num_sms": p.multi_processor_count,
                "compute_capability": p.major * 10 + p.minor, "cache_bytes": self.cache_bytes,
                "system": f"{platform.system()} {platform.release()}", "driver": driver,
                "clock_sm_mhz": int(sm) if sm else None,
                "clock_memory_mhz": int(memory) if memory else None}

    def free_bytes(self):
        return self.torch.cuda.mem_get_info(self.device)[0]

    def allocate(self, num_bytes):
        return self.torch.empty(num_bytes, dtype=self.torch.uint8, device=self.device)

    def address(self, buffer):
        return buffer.data_ptr()

    def count(self, value):
        return self.torch.tensor([value], dtype=self.torch.int64, device=self.device)

    def view(self, buffer, start, rows, width, element_bytes):
        dtype = {1: self.torch.uint8, 2: self.torch.int16, 8: self.torch.int64}[element_bytes]
        part = buffer[start:start + rows * width * element_bytes]
        return part.view(dtype).view(rows, width)

    def count_view(self, count):
        return count

    def randomize(self, buffer, seed):
        generator = self.torch.Generator(self.device).manual_seed(seed)
        buffer.random_(0, 256, generator=generator)

    def poison(self, buffer):
        buffer.fill_(POISON)

    def copy(self, destination, source, num_bytes):
        destination[:num_bytes].copy_(source[:num_bytes])

    def differing(self, a, b, start, num_bytes):
        return int((a[start:start + num_bytes] != b[start:start + num_bytes]).sum())

    def unpoisoned(self, buffer, start, num_bytes):
        return int((buffer[start:start + num_bytes] != POISON).sum())

    def capture(self, enqueue):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.torch_stream):
            enqueue()
            nodes = self._captured_nodes()
        return graph.replay, nodes

    def _captured_nodes(self):
        """Nodes of the graph that is being captured: torch has no call for it, the driver has."""
        status, identity, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        dependencies, number = ctypes.c_void_p(), ctypes.c_size_t()
        failed = self._driver.cuStreamGetCaptureInfo_v2(
            ctypes.c_void_p(self.stream), ctypes.byref(status), ctypes.byref(identity),
            ctypes.byref(graph), ctypes.byref(dependencies), ctypes.byref(number))
        failed = failed or self._driver.cuGraphGetNodes(graph, None, ctypes.byref(number))
        return None if failed else number.value

    def run(self, enqueue):
        with self.torch.cuda.stream(self.torch_stream):
            enqueue()
        self.synchronize()

    def time(self, replays):
        cuda, events = self.torch.cuda, []
        with cuda.stream(self.torch_stream):
            for replay in replays:
                begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
                cuda._sleep(SPIN_CYCLES)
                begin.record()
                replay()
                end.record()
                events.append((begin, end))
        self.synchronize()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in events]

    def synchronize(self):
        self.torch.cuda.synchronize(self.device)

    def release_memory(self):
        self.torch.cuda.empty_cache()
